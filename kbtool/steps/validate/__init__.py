"""The step kind ``validate``: compare the built library with the float64 reference."""
