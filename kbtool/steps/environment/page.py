"""A probe of the machine, on the page of its run."""

from __future__ import annotations

from kbtool.markdown.escape import inline
from kbtool.markdown.markup import bullets
from kbtool.model.kinds.environment import EnvironmentResult
from kbtool.steps.base import Links


def page(result: EnvironmentResult, links: Links) -> str:
    """A list of what is missing or too old."""
    return bullets(inline(item) for item in result.missing)
