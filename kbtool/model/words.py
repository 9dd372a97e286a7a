"""Words that messages share."""

from __future__ import annotations


def many(count: int, noun: str) -> str:
    """``1 case``, ``2 cases``: a number of things whose plural ends in s."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
