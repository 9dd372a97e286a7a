"""The only file I/O on records: find, parse, load, write, lock."""
