"""Everything that touches torch or a compiler: build, reference, comparison, timing, probe."""
