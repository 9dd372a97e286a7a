"""Rules between records: a file a subject, a generator a rule, its docstring the rule.

A rule stands in the ``RULES`` of its file. What it needs of a record is a ``fact`` beside it. No
module here imports a model: with nothing changed, a check runs on facts from the cache alone.
"""

from __future__ import annotations

from kbtool.checks.facts import Fact
from kbtool.checks.rules import costs, figures, kernels, links, names, runs, times
from kbtool.checks.tree import Rule

_SUBJECTS = (names, links, times, runs, kernels, costs, figures)

TREE_RULES: tuple[Rule, ...] = tuple(rule for subject in _SUBJECTS for rule in subject.RULES)
"""The rules between records."""

FACTS: tuple[Fact, ...] = tuple(
    {
        value.name: value
        for subject in _SUBJECTS
        for value in vars(subject).values()
        if isinstance(value, Fact)
    }.values()
)
"""What they need of a record."""
