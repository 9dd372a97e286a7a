"""From a knowledge base to a folder of HTML: the source files, mkdocs, and the server."""
