"""The step kind ``validate``: the built library against the float64 reference."""
