"""The step kind ``tune``: the library's own choice of a setting beside every other."""
