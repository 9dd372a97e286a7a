"""The step kind ``build``: sources become a library."""
