"""kbtool: a lab notebook for GPU kernel work that refuses to lie."""

__version__ = "0.1.0"
