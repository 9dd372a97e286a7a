"""The step kind ``command``: run a program of the knowledge base."""
