"""``python -m kbtool``."""

from kbtool.cli.main import main

main()
