"""The step kind ``tune``: compare the library's own choice of a setting with all others."""
