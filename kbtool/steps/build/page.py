"""A build on the page of its run."""

from __future__ import annotations

from kbtool.markdown.escape import code, inline
from kbtool.markdown.markup import facts, join
from kbtool.model.kinds.build import BuildResult
from kbtool.steps.base import Links


def page(result: BuildResult, links: Links) -> str:
    """What was built, and how."""
    return join(
        [
            facts(
                [
                    ("Target", code(result.target)),
                    ("Specialisation", result.specialisation and code(result.specialisation)),
                    ("Artifact", code(result.artifact)),
                    ("Hash", code(result.sha256[:12])),
                    ("Size", f"{result.bytes:,} bytes"),
                    ("Compiler", inline(result.compiler)),
                    ("Packages", _packages(result)),
                    ("Cache", _cache(result)),
                ]
            ),
            _flags(result) if result.flags else None,
        ]
    )


def _flags(result: BuildResult) -> str:
    """Each flag once, however many compilers got it."""
    flags = " ".join(map(code, dict.fromkeys(result.flags)))
    return f'Flags: <span class="kb-flags">{flags}</span>'


def _packages(result: BuildResult) -> str:
    return inline(", ".join(f"{name} {of}" for name, of in result.packages.items()))


def _cache(result: BuildResult) -> str:
    if result.warm:
        return "was already built"
    return f"built now, {result.reused} objects from before" if result.reused else "built now"
