"""The step kind ``environment``: check that this machine has what the recipe needs."""
