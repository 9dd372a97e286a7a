"""Compute once what many commands in one process ask for again and again.

A command reads every record, and its own catalogue and guide, in a process of its own. In the soak
of fields one process runs hundreds of thousands of commands, and of all that they read one file
differs. What follows from the text that a function is given, and from nothing else, is kept.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

LARGEST = 100_000
"""What is given more characters than this is computed each time: it is the mutant."""
_MOST = 4_000_000
"""How many characters the results of a function are kept for, as a measure of their memory."""
_GARBAGE = 100_000
"""Objects after which the garbage collector looks for cycles; records hold none."""

PURE: tuple[tuple[str, str], ...] = (
    ("kbtool.store.document", "_load"),
    ("kbtool.store.tree", "open_run"),
    ("kbtool.store.derived", "_digest"),
    ("kbtool.checks.check", "_digest"),
    ("kbtool.store.history", "_git"),
    ("kbtool.gpu.probe", "_output"),
    ("kbtool.site.html.tree", "_place"),
    ("kbtool.site.text.quoted", "readable"),
    ("kbtool.site.addresses", "relative"),
)
"""Functions whose result follows from what they are given. No knowledge base here is a repository,
so what git says follows from its arguments too."""


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keep the results of ``PURE`` while it lasts, and write no file to the disk itself."""
    with contextlib.ExitStack() as stack:
        for module, name in PURE:
            stack.enter_context(replaced(importlib.import_module(module), name, kept_of))
        tree = importlib.import_module("kbtool.store.tree")
        stack.enter_context(replaced(tree, "_record", _kept_records))
        stack.enter_context(replaced(os, "fsync", lambda _: lambda handle: None))
        former = gc.get_threshold()
        gc.set_threshold(_GARBAGE, *former[1:])
        stack.callback(gc.set_threshold, *former)
        yield


@contextlib.contextmanager
def replaced(module: Any, name: str, by: Callable[[Any], Any]) -> Iterator[None]:
    """Put what ``by`` makes of a module's attribute in its place while it lasts."""
    former = getattr(module, name)
    setattr(module, name, by(former))
    try:
        yield
    finally:
        setattr(module, name, former)


def kept_of(real: Callable[..., Any]) -> Callable[..., Any]:
    """``real`` with its results kept; an exception is raised anew each time."""
    results: dict[Any, Any] = {}
    characters = 0

    def kept(*given: Any, **named: Any) -> Any:
        nonlocal characters
        asked = (*(tuple(one) if isinstance(one, list) else one for one in given), *named.items())
        try:
            if asked in results:
                return results[asked]
        except TypeError:  # no key
            return real(*given, **named)
        made = real(*given, **named)
        size = 100 + sum(len(one) for one in given if isinstance(one, str | bytes))
        if size > LARGEST:
            return made
        characters += size
        if characters > _MOST:
            results.clear()
            characters = size
        results[asked] = made
        return made

    return kept


def _kept_records(real: Callable[..., Any]) -> Callable[..., Any]:
    """``_record`` for the same data in memory, which ``_load`` keeps."""
    results: dict[tuple[int, str], tuple[Any, Any]] = {}

    def kept(document: Any, kind: Any) -> Any:
        data = getattr(document, "data", None)
        if data is None:
            return real(document, kind)
        asked = (id(data), kind.__name__)
        if asked not in results:
            if len(results) >= 200:
                results.clear()
            # With the data, so that its address stays its own.
            results[asked] = (data, real(document, kind))
        return results[asked][1]

    return kept
