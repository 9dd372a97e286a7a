"""The step kind ``ablate``."""
