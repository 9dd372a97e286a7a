"""The glossary's terms, and links to them from the prose of other pages.

The glossary is a hand-written page (``docs/guide/glossary.md``). Under a heading with an anchor a
comment names the spellings that are linked: ``<!-- linked as: Split-K; KV split -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kbtool.markdown.escape import attribute, inline
from kbtool.site import addresses as at

Linker = Callable[[str], str]
"""Prose as it goes into a page, escaped or rendered → the same with terms linked."""

_ENTRY = re.compile(
    r"^### (?P<title>.+?) \{#(?P<id>[a-z0-9-]+)\}\n(?P<body>.*?)(?=^##|\Z)", re.M | re.S
)
_SPELLINGS = re.compile(r"^<!-- linked as: (.+?) -->$", re.M)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")

_SHUT = (
    # Where no link goes: inside these elements, in tags, in links and headings of Markdown. None of
    # it looks past the next of its kind, or the time would grow with the square of the length.
    r"<(?P<shut>a|code|pre|h[1-6]|span|math|svg|figure|script)\b[^<>]*>|<[^<>]*>"
    r"|\[[^\[\]\n]*\]\((?:[^()\n]|\([^()\n]*\))*\)|^#{1,6} [^\n]*"
)
_SPACE = r"(?:\s|&#10;)+"


class Term(NamedTuple):
    """An entry of the glossary."""

    id: str
    """Its anchor."""
    title: str
    spellings: tuple[str, ...]
    """What is linked to it."""
    gist: str
    """Its first sentence, without markup."""


class Terms:
    """All entries, and one expression that finds any of their spellings."""

    def __init__(self, glossary: str) -> None:
        self.entries = [_term(found) for found in _ENTRY.finditer(glossary)]
        self._of = {_key(spelling): term for term in self.entries for spelling in term.spellings}
        self._finder = _finder(name for term in self.entries for name in term.spellings)

    def linker(self, page: str) -> Linker:
        """What links the first use of each term on ``page``; one a page, used in reading order."""
        seen: set[str] = set()

        def put(prose: str) -> str:
            parts, position = [], 0
            for found in self._uses(prose):
                term = self._named(found[0])
                if term.id in seen:
                    continue
                seen.add(term.id)
                target = at.published(at.relative(f"{at.GLOSSARY}#{term.id}", page))
                parts += [
                    prose[position : found.start()],
                    f'<a class="kb-term" href="{target}" title="{attribute(term.gist)}">',
                    f"{found[0]}</a>",
                ]
                position = found.end()
            return "".join([*parts, prose[position:]])

        return put

    def named_in(self, text: str) -> set[str]:
        """The ids of the terms that ``text``, as it stands in a record, uses."""
        return {self._named(found[0]).id for found in self._uses(text)}

    def _uses(self, text: str) -> Iterator[re.Match[str]]:
        """Where ``text`` uses a term and a link may go."""
        if not self.entries:
            return
        place = 0
        last: dict[str, int] = {}
        while found := self._finder.search(text, place):
            place = found.end()
            if found["term"]:
                yield found
            elif found["shut"]:
                closing = f"</{found['shut']}>"
                if closing not in last:
                    last[closing] = text.rfind(closing)
                if last[closing] >= place:
                    place = text.index(closing, place) + len(closing)

    def _named(self, words: str) -> Term:
        key = _key(re.sub(_SPACE, " ", words))
        return self._of.get(key) or self._of[key.removesuffix("s")]


def _term(found: re.Match[str]) -> Term:
    spellings = _SPELLINGS.search(found["body"])
    text = _LINK.sub(r"\1", _SPELLINGS.sub("", found["body"]))
    words = " ".join(re.sub(r"[`*]", "", text).split())
    return Term(
        found["id"],
        found["title"],
        tuple(name.strip() for name in spellings[1].split(";")) if spellings else (),
        re.split(r"(?<=\.) ", words, maxsplit=1)[0],
    )


def _key(spelling: str) -> str:
    """A spelling of small letters may have a capital at its beginning; others are exact."""
    lowered = spelling[:1].lower() + spelling[1:]
    return lowered if lowered == lowered.lower() else spelling


def _finder(spellings: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(set(spellings), key=lambda name: (-len(name), name))
    names = "|".join(map(_either_case, longest_first))
    # Not within a word, a path, a character reference or a name with a hyphen or a dot.
    term = rf"(?<![\w&#/.-])(?P<term>(?:{names})s?)(?![\w/-]|\.\w)"
    return re.compile(f"{_SHUT}|{term}", re.M | re.S)


def _either_case(spelling: str) -> str:
    words = re.escape(inline(spelling)).replace(r"\ ", _SPACE)
    first = spelling[0]
    if first.islower() and spelling == spelling.lower():
        return f"[{first}{first.upper()}]{words[1:]}"
    return words
