"""The step kind ``mutants``: every known bug put back, one at a time, for validation to find."""
