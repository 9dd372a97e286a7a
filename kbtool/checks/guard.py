"""A rule that fails does not keep the others from being tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kbtool.model.finding import Finding, fault


def findings_of(
    rule: Callable[..., Iterator[Finding]], path: str, *arguments: Any
) -> Iterator[Finding]:
    """The findings of a rule; if it raises an exception, one more that names the rule.

    Args:
        rule: the rule.
        path: the file that it is tried on; ``.`` for a rule between records.
        arguments: what the rule takes.
    """
    try:
        yield from rule(*arguments)
    except Exception as error:  # whatever a rule does, the rest is checked
        yield fault(path, f"rule {rule.__name__}", error)
