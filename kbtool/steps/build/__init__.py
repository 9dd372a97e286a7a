"""The step kind ``build``: compile and link the kernel."""
