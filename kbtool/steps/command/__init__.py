"""The step kind ``command``: a program of the knowledge base's own."""
