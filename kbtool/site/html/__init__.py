"""Builds a knowledge base into a folder of HTML: source files, mkdocs, and the server."""
