"""The step kind ``benchmark``: the validated library beside its peers."""
