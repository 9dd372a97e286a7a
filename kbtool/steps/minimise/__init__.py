"""The step kind ``minimise``: the smallest case that fails, its boundary, and the part at fault."""
