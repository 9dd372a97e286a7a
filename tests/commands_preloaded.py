"""Imports what commands import, for the process that forks them; see ``commands``."""

import importlib
import os
import pkgutil

import kbtool

os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")

NOT = ("kbtool.gpu", "kbtool.attention", "kbtool.__main__")
"""Commands leave torch to processes of their own."""

for module in pkgutil.walk_packages(kbtool.__path__, "kbtool."):
    if not module.name.startswith(NOT):
        importlib.import_module(module.name)
