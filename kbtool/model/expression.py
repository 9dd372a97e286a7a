"""Regular expressions that people write into records, matched in time linear in the text.

Pydantic's engine, Rust's regex crate, cannot backtrack: ``(a+)+$`` takes no longer than ``a+$``.
It has no look-around and no backreferences, and refuses an expression that compiles to more than
10 MB.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from re import _parser as re_parser  # type: ignore[attr-defined]
from types import MappingProxyType
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
        return SchemaValidator(core_schema.str_schema(pattern=_of_ascii(expression)))
    except SchemaError as error:
        # The last line has the reason; those before it show the whole expression.
        reason = str(error).strip().splitlines()[-1].strip().removeprefix("error: ")
        raise ValueError(f"{expression[:80]!r} is no regular expression: {reason}") from None


_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_"}
_TOKEN = re.compile(r"\\.|\[\^?\]?|.", re.DOTALL)


def _of_ascii(expression: str) -> str:
    r"""The expression with ``\d``, ``\w`` and ``\b`` as ASCII has them.

    Tables of Unicode are most of what is compiled: the catalogue takes less than half the time
    without them, and tools print digits and names in ASCII.
    """
    parts, inside = [], False
    for token in _TOKEN.findall(expression):
        one = token[1:] if token[0] == "\\" else ""
        if one in ("d", "w"):
            parts.append(_CLASSES[one] if inside else f"[{_CLASSES[one]}]")
        elif one in ("D", "W") and not inside:
            parts.append(f"[^{_CLASSES[one.lower()]}]")
        elif one in ("b", "B") and not inside:
            parts.append(f"(?-u:{token})")
        elif token[0] == "[" and not inside:
            inside = True
            parts.append(token.replace("]", "\\]"))
        else:
            inside = inside and token != "]"
            # In a class, "[^" or "[]" are one token here and mean what they say.
            parts.append(token)
    return "".join(parts)


Line = tuple[int, str, str]
"""The number of a line, its text, and its shape: the text with 0 in place of each digit."""


def shaped(lines: Iterable[tuple[int, str]]) -> list[Line]:
    """Lines, each with its number, with their shapes; no text has a line break."""
    numbered = list(lines)
    shapes = "\n".join(text for _, text in numbered).encode().translate(_ZEROES).decode()
    return [(*line, shape) for line, shape in zip(numbered, shapes.split("\n"), strict=False)]


class Finder:
    """Looks for many expressions at once and keeps the first line that each one finds.

    Logs repeat a line with other numbers, so what a line may hold is found out once for its shape:
    the expressions of whose demanded texts it has one, and that find the shape, whichever digits
    they name. What is found is not looked for again. So most lines of a log cost one look into a
    dictionary.
    """

    def __init__(
        self,
        expressions: Sequence[str],
        accepts: Callable[[int, str], bool] = lambda place, line: True,
        known: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Args:
        expressions: what to look for. One that is not valid finds nothing.
        accepts: whether a line that an expression matches counts: its place, and the line.
        known: expression → the texts that it demands, as far as that is known.
        """
        self.found: dict[int, tuple[int, str]] = {}
        """Place of an expression → number and text of the first line that it finds."""
        self._expressions = expressions
        self._accepts = accepts
        self._always: list[int] = []
        """Those that demand no text."""
        self._of_text: dict[str, list[int]] = {}
        """Text, with 0 for each digit → the expressions that demand it."""
        for place, expression in enumerate(expressions):
            texts = known.get(expression)
            if texts is None:
                texts = demanded(expression)
            for text in texts:
                self._of_text.setdefault(_DIGIT.sub("0", text), []).append(place)
            if not texts:
                self._always.append(place)
        self._texts: dict[str, list[str]] = {}
        """Letters from the middle of a text → the texts; so a line is compared with few."""
        for text in self._of_text:
            self._texts.setdefault(_middle(text), []).append(text)
        self._open: dict[str, list[int]] = {}
        """Shape → the expressions that may yet find a line of it."""
        self._looked = 0

    def feed(self, lines: Iterable[Line]) -> None:
        """Look in more lines."""
        if len(self.found) == len(self._expressions):
            return
        for number, line, shape in lines:
            places = self._open.get(shape)
            if places is None:
                places = self._may_find(shape)
            elif not places:
                continue
            left = self._try(places, number, line)
            if len(shape) <= _KEPT_LENGTH:
                self._open[shape] = left
        if len(self._open) > _KEPT_SHAPES:
            self._open.clear()

    def _try(self, places: list[int], number: int, line: str) -> list[int]:
        """Compare a line with expressions; those that are still to be found."""
        left = []
        for place in places:
            if place in self.found:
                continue
            try:
                fits = found_in(self._expressions[place], line)
            except ValueError:
                continue  # `kbtool check` names it
            if fits and self._accepts(place, line):
                self.found[place] = number, line
            else:
                left.append(place)
        return left

    def _may_find(self, shape: str) -> list[int]:
        """The expressions that may find a line of this shape."""
        small = shape.lower()
        self._looked += 1
        places = set(self._always)
        # To build the search for all texts takes as long as to compare so many lines without it.
        if self._looked <= _WORTH_A_SEARCH or self._any_text.isinstance_python(small):
            parts = {small[start : start + _PART] for start in range(len(small) - _PART + 1)}
            places.update(
                place
                for part in (parts & self._texts.keys()) | {""}
                for text in self._texts.get(part, ())
                if text in small
                for place in self._of_text[text]
            )
        return [
            place
            for place in sorted(places.difference(self.found))
            if found_in(of_shapes(self._expressions[place]), shape)
        ]

    @cached_property
    def _any_text(self) -> SchemaValidator:
        """Whether a shape, in small letters, has a text that one of the expressions demands."""
        either = "|".join(map(_escaped, self._of_text)) or "[^\\s\\S]"
        return SchemaValidator(core_schema.str_schema(pattern=either))


@lru_cache(maxsize=_KEPT)
def of_shapes(expression: str) -> str:
    """What finds the shape of each line that an expression finds: the same with any digit in place
    of each digit; what finds everything, where that cannot be said."""
    loose = _PARTS.sub(_of_any_digit, expression)
    try:
        _compiled(loose)
    except ValueError:
        return ""
    return "" if _has_nested_class(expression) else loose


def _of_any_digit(found: re.Match[str]) -> str:
    """A part of an expression that finds a digit, so that it finds any."""
    part = found[0]
    if part[0] != "[":
        return "\\d" if part.isdigit() else part
    if not _DIGIT.search(_ESCAPE.sub("", part).replace("0-9", "")):
        return part
    if part.startswith(("[^", "[]")):
        return "[\\s\\S]"
    return f"[0-9\\{part[1:]}" if part[1] == "-" else f"[0-9{part[1:]}"


def _classes(expression: str) -> list[str]:
    """What stands in the classes of an expression, without escapes."""
    parts = (part for part in _PARTS.findall(expression) if part[0] == "[")
    return [_ESCAPE.sub("", part[1:-1]) for part in parts]


def _has_nested_class(expression: str) -> bool:
    """Whether a class holds another, which Python's parser reads otherwise: ``[^[:alpha:]5]``."""
    return any("[" in held for held in _classes(expression))


def _middle(text: str) -> str:
    """Letters from the middle of a text; none of a short one."""
    start = (len(text) - _PART) // 2
    return text[start : start + _PART] if start >= 0 else ""


_ZEROES = bytes.maketrans(b"123456789", b"000000000")
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|[0-9]")
"""Of an expression: an escape, a class, a count, a digit."""
_ESCAPE = re.compile(r"\\.")
_PART = 4
_WORTH_A_SEARCH = 2000
_KEPT_SHAPES, _KEPT_LENGTH = 16_384, 512
_DIGIT = re.compile(r"\d")
_LEAST = 3
_COMMON = frozenset(("nvcc", "cicc", "ptxas", "cc1plus", "cudafe++", "cuda", "build", "compil"))
"""Texts that any line of a log of a build may hold."""


def _escaped(text: str) -> str:
    return re.sub(r"[^\w\s]", lambda sign: f"\\x{{{ord(sign[0]):x}}}", text)


_NO_WORD = re.compile(r"\(\?[a-z]*[:)]|\\[a-zA-Z]|\[\^?\]?[^\]]*\]|\{\d+,?\d*\}|[^\w?-]")


def words_in(expression: str) -> str:
    """The words that an expression looks for, in all its alternatives."""
    return _NO_WORD.sub(" ", expression).replace("?", "")


@lru_cache(maxsize=_KEPT)
def demanded(expression: str) -> tuple[str, ...]:
    """Texts in small letters, one of which stands in every line that an expression finds.

    Empty if there are none, or only such of one or two letters.
    """
    if _has_nested_class(expression):
        return ()
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
        if name == "SUBPATTERN" and all(str(one) == "LITERAL" for one, _ in value[-1]):
            text += "".join(chr(letter) for _, letter in value[-1]).lower()
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
