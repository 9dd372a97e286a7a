"""Rules between records: one module per subject, one generator per rule.

Each module lists its rules in ``RULES`` and defines the ``fact``s that they need. No module here
imports a model, so a check of unchanged files needs only cached facts.
"""

from __future__ import annotations

from kbtool.checks import excuses
from kbtool.checks.facts import Fact
from kbtool.checks.rules import commits, costs, figures, kernels, links, names, runs, sweeps, times
from kbtool.checks.tree import Rule

_SUBJECTS = (names, links, times, runs, sweeps, commits, kernels, costs, figures)

TREE_RULES: tuple[Rule, ...] = tuple(rule for subject in _SUBJECTS for rule in subject.RULES)
"""The rules between records."""

FACTS: tuple[Fact, ...] = tuple(
    {
        value.name: value
        for subject in (*_SUBJECTS, excuses)
        for value in vars(subject).values()
        if isinstance(value, Fact)
    }.values()
)
"""What they need of a record."""
