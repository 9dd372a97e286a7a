"""The glossary: a hand-written page, with the patterns and kernels that use each term."""

from __future__ import annotations

import re
from collections import defaultdict

from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.store.prose import design, readme

_HEADING = re.compile(r"^### .*\{#(?P<id>[a-z0-9-]+)\}$")


def page(index: Index, written: str) -> str:
    """``written``, the glossary as it was written by hand, with links back from each term."""
    uses = _uses(index)
    blocks: list[str] = []
    pending = ""
    for line in written.splitlines():
        if line.startswith("##"):
            blocks += [pending, ""] if pending else []
            heading = _HEADING.match(line)
            pending = _used_in(index, uses[heading["id"]]) if heading else ""
        blocks.append(line)
    return "\n".join([*blocks, "", pending]).rstrip("\n") + "\n"


def _used_in(index: Index, pages: list[str]) -> str:
    if not pages:
        return ""
    return f"<small>Used in: {', '.join(index.link(one, at.GLOSSARY) for one in pages)}</small>"


def _uses(index: Index) -> defaultdict[str, list[str]]:
    """Term → the pages of the patterns and kernels whose own text uses it."""
    texts = {
        at.pattern_page(one.id): "\n".join(
            filter(None, [one.title, one.summary, one.problem, one.solution])
        )
        for one in index.patterns.values()
    }
    texts |= {
        at.kernel_page(name): "\n".join(
            filter(None, [readme(index.base, name), design(index.base, name)])
        )
        for name in index.kernels
    }
    found: defaultdict[str, list[str]] = defaultdict(list)
    for where, text in texts.items():
        for term in sorted(index.terms.named_in(text)):
            found[term].append(where)
    return found
