"""Regular expressions that people write into records, matched in time linear in the text.

Pydantic's engine, Rust's regex crate, cannot backtrack: ``(a+)+$`` takes no longer than ``a+$``.
It has no look-around and no backreferences, and refuses an expression that compiles to more than
10 MB.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from re import _parser as re_parser  # type: ignore[attr-defined]
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema

_KEPT = 4096
"""How many expressions are kept compiled; the catalogue has about a thousand."""


def found_in(expression: str, text: str) -> bool:
    """Whether a regular expression matches anywhere in ``text``.

    Raises:
        ValueError: it is no regular expression; the message says why.
    """
    return _compiled(expression).isinstance_python(text)


@lru_cache(maxsize=_KEPT)
def _compiled(expression: str) -> SchemaValidator:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=expression))
    except SchemaError as error:
        # The last line has the reason; those before it show the whole expression.
        reason = str(error).strip().splitlines()[-1].strip().removeprefix("error: ")
        raise ValueError(f"{expression[:80]!r} is no regular expression: {reason}") from None


class Finder:
    """Looks for many expressions at once and keeps the first line that each one finds.

    Most lines hold no text that any of the expressions demands. One search for all these texts
    together shows that, in time linear in the line. What is found is not looked for again, so a log
    that repeats a message costs no more than any other.
    """

    def __init__(
        self,
        expressions: Sequence[str],
        accepts: Callable[[int, str], bool] = lambda place, line: True,
    ) -> None:
        """Args:
        expressions: what to look for. One that is not valid finds nothing.
        accepts: whether a line that an expression matches counts: its place, and the line.
        """
        self.found: dict[int, tuple[int, str]] = {}
        """Place of an expression → number and text of the first line that it finds."""
        self._expressions = expressions
        self._accepts = accepts
        self._demands = [demanded(expression) for expression in expressions]
        places = range(len(expressions))
        self._always = [place for place in places if not self._demands[place]]
        """Those that demand no text: each line is compared with them."""
        rest = [place for place in places if self._demands[place]]
        self._texts = [
            [(text, place) for text in self._demands[place] if not _DIGIT.search(text)]
            for place in places
        ]
        self._numbers = [
            (text, place) for place in rest for text in self._demands[place] if _DIGIT.search(text)
        ]
        self._any_number = _any_text(frozenset(text for text, _ in self._numbers))
        self._near: dict[str, list[int]] = {}
        """Line without its numbers → the expressions of whose texts without a digit it has one.
        Logs repeat a line with other numbers."""
        self._groups = [rest[start : start + _GROUP] for start in range(0, len(rest), _GROUP)]
        self._of_groups = [self._any_of(group) for group in self._groups]
        self._any = self._any_of(rest)
        self._in_vain = 0

    def feed(self, lines: Iterable[tuple[int, str]]) -> None:
        """Look in more lines, each with its number."""
        for number, line in lines:
            small = line.lower()
            if self._any.isinstance_python(small):
                self._look(number, line, small)
            if self._always:
                self._try(self._always, number, line)

    def _look(self, number: int, line: str, small: str) -> None:
        key = _NUMBER.sub("0", small)
        near = self._near.get(key)
        if near is None:
            near = self._near_of(small)
            if len(key) <= _KEPT_LENGTH and len(self._near) < _KEPT_LINES:
                self._near[key] = near
        if self._any_number.isinstance_python(small):
            near = [*near, *(place for text, place in self._numbers if text in small)]
            near = list(dict.fromkeys(near))
        hits = self._try([place for place in near if place not in self.found], number, line)
        if not hits:
            return
        for nth, group in enumerate(self._groups):
            if not hits.isdisjoint(group):
                self._groups[nth] = [place for place in group if place not in hits]
                self._of_groups[nth] = self._any_of(self._groups[nth])
        self._any = self._any_of([place for group in self._groups for place in group])

    def _near_of(self, small: str) -> list[int]:
        """The expressions that demand a text without a digit that a line has."""
        return list(
            dict.fromkeys(
                place
                for nth, group in enumerate(self._groups)
                if self._of_groups[nth].isinstance_python(small)
                for of_group in group
                for text, place in self._texts[of_group]
                if text in small
            )
        )

    def _try(self, places: list[int], number: int, line: str) -> set[int]:
        """Compare a line with expressions; those that find it."""
        hits = set()
        for place in places:
            try:
                fits = found_in(self._expressions[place], line)
            except ValueError:
                fits = False  # `kbtool check` names it
            if fits and self._accepts(place, line):
                self.found[place] = number, line
                hits.add(place)
        if places is self._always:
            self._always = [place for place in places if place not in hits]
        return hits

    def _any_of(self, places: Sequence[int]) -> SchemaValidator:
        """Whether a line, in small letters, has a text that one of the expressions demands."""
        return _any_text(frozenset(text for place in places for text in self._demands[place]))


@lru_cache(maxsize=512)
def _any_text(texts: frozenset[str]) -> SchemaValidator:
    """Whether a line has one of these texts. Kept, since many texts are searched for the same."""
    either = "|".join(sorted(map(_escaped, texts))) or "[^\\s\\S]"
    return SchemaValidator(core_schema.str_schema(pattern=either))


_GROUP = 16
_KEPT_LINES, _KEPT_LENGTH = 4096, 512
_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"\d+")
_LEAST = 3
_COMMON = frozenset(("nvcc", "cicc", "ptxas", "cc1plus", "cudafe++", "cuda", "build", "compil"))
"""Texts that any line of a log of a build may hold."""


def _escaped(text: str) -> str:
    return re.sub(r"[^\w\s]", lambda sign: f"\\x{{{ord(sign[0]):x}}}", text)


@lru_cache(maxsize=_KEPT)
def demanded(expression: str) -> tuple[str, ...]:
    """Texts in small letters, one of which stands in every line that an expression finds.

    Empty if there are none, or only such of one or two letters.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parsed = list(re_parser.parse(expression.replace("(?i)", "").replace("\\z", "$")))
        except (re.error, RecursionError, OverflowError):
            return ()
    texts = _texts_of(parsed)
    return tuple(texts) if texts and min(map(len, texts)) >= _LEAST else ()


def _worth(text: str) -> int:
    return 1 if text.strip() in _COMMON else len(text)


def _texts_of(parts: Iterable[tuple[Any, Any]]) -> list[str]:
    """The best texts that a sequence demands: those whose shortest is longest, and seldom."""
    candidates: list[list[str]] = []
    text = ""
    for kind, value in [*parts, (None, None)]:
        name = str(kind)
        if name == "LITERAL":
            text += chr(value).lower()
            continue
        if text:
            candidates.append([text])
            text = ""
        if name == "SUBPATTERN":
            inner = list(value[-1])
            candidates.append(_texts_of(inner))
        elif name == "BRANCH":
            found = [_texts_of(list(branch)) for branch in value[1]]
            if all(found):
                candidates.append([one for branch in found for one in branch])
        elif name in {"MAX_REPEAT", "MIN_REPEAT"} and value[0] > 0:
            candidates.append(_texts_of(list(value[2])))
    return max(
        (found for found in candidates if found),
        key=lambda found: (min(map(_worth, found)), -len(found)),
        default=[],
    )
