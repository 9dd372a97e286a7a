"""kbtool: GPU kernel work as records in git, with recipes that run and a generated site."""

__version__ = "0.1.0"
