"""The step kind ``environment``: is this machine what the recipe needs?."""
