"""What connects ``kbtool.attention`` with other libraries, each behind an extra of its own."""
