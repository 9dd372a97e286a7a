"""The docstrings of a model's fields, read from its source when they are asked for.

Pydantic can read them itself, but does so for each model at each import: 0.2 s of every command.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel


@cache
def docstrings_of(model: type[BaseModel]) -> dict[str, str]:
    """Field → the string below it in the source of the model, or of the base that declares it."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        found.update(_by_class(inspect.getmodule(cls)).get(cls.__qualname__, {}))
    return found


@cache
def _by_class(module: Any) -> dict[str, dict[str, str]]:
    """Class of a module → its fields with docstrings."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError):  # a built-in module has no source
        return {}
    return {node.name: _below_fields(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _below_fields(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, below in pairwise(node.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(ast.Constant(str() as text)):
                    found[field.target.id] = inspect.cleandoc(text)
    return found
