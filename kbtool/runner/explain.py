"""From the symptom to the remedy: what is known of a text that a tool printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import BinaryIO, NamedTuple

from kbtool.model.cards import CARD_NAMES, capability_of, card_of
from kbtool.model.expression import Finder, Line, demanded, found_in, shaped
from kbtool.model.pattern import Pattern, Symptom
from kbtool.model.profile import Profile, shown
from kbtool.model.symptom import Cause, KnownSymptom, Symptoms, filled
from kbtool.runner.field import ELSEWHERE, is_about_cards
from kbtool.runner.resemble import STOP

_PIECE = 4096
_OVERLAP = 512
"""A longer line is searched in pieces, which overlap so that no message is cut in two."""
_BLOCK = 1 << 20
_SHOWN = 240
_OPENING = 12
"""What the first lines are about, people's words in any other line are too."""
_ERRORS = 40
"""So many lines that report an error are kept, for the search of what resembles them."""
_FIRST = 200
"""So many lines at the beginning are kept, for the signs of causes."""
_CAUSES = 3
"""So many causes of one message are told."""


class Told(NamedTuple):
    """A cause, and the line that gives it away."""

    cause: Cause
    line: str

    @property
    def part(self) -> str:
        """The line, or so much of a long one that the sign is in the middle."""
        return _part(self.line, self.cause.sign)


class Match(NamedTuple):
    """A symptom that a text shows, the line that it found, and the numbers in it."""

    symptom: Symptom | KnownSymptom
    pattern: Pattern | None
    """The pattern that the symptom is written in, if it is not of the catalogue."""
    tool: str | None
    """The tool that prints it, if it is of the catalogue."""
    line: str
    number: int
    values: Mapping[str, str]
    causes: tuple[Told, ...] = ()
    """Which causes of it the text gives away."""

    @property
    def name(self) -> str:
        """What the symptom is called: tool and id, or pattern and id."""
        return f"{self.tool or (self.pattern.id if self.pattern else '')}/{self.symptom.id}"

    @property
    def title(self) -> str:
        """What is wrong, in a few words."""
        if isinstance(self.symptom, KnownSymptom):
            return self.symptom.title
        return self.pattern.title if self.pattern else self.symptom.id

    @property
    def part(self) -> str:
        """The line, or so much of a long one that the symptom is in the middle."""
        return _part(self.line, self.symptom.match)

    @property
    def advice(self) -> str | None:
        """What to do."""
        return self.symptom.advice and filled(self.symptom.advice, self.values)

    @property
    def command(self) -> str | None:
        """The command that does it."""
        if isinstance(self.symptom, KnownSymptom) and self.symptom.command:
            return filled(self.symptom.command, self.values)
        return None

    @property
    def patterns(self) -> list[str]:
        """The patterns that the symptom belongs to."""
        if isinstance(self.symptom, KnownSymptom):
            return self.symptom.patterns
        return [self.pattern.id] if self.pattern else []


def _part(line: str, expression: str) -> str:
    if len(line) <= _SHOWN:
        return shown(line)
    small = line.lower()
    places = [small.find(text) for text in demanded(expression)]
    middle = min((place for place in places if place >= 0), default=0)
    start = max(0, min(middle - _SHOWN // 3, len(line) - _SHOWN))
    end = start + _SHOWN
    return "…" * (start > 0) + line[start:end] + "…" * (end < len(line))


@dataclass
class Seen:
    """What a text shows."""

    matches: list[Match] = field(default_factory=list)
    """The symptoms in it, the best first."""
    architectures: set[str] = field(default_factory=set)
    """The GPU architectures that it names, as digits: 90."""
    errors: list[str] = field(default_factory=list)
    """The first lines that report an error."""
    first: list[str] = field(default_factory=list)
    """The first lines of all."""
    lines: int = 0

    def causes(self, symptom: Symptom | KnownSymptom, line: str = "") -> tuple[Told, ...]:
        """The causes of a symptom that the text gives away, in their order.

        Args:
            symptom: the symptom.
            line: the one that it matched.
        """
        told = []
        for cause in symptom.causes if isinstance(symptom, KnownSymptom) else []:
            lines = (line, *self.errors, *self.first)
            sign = next((one.strip() for one in lines if found_in(cause.sign, one)), None)
            if sign is not None:
                told.append(Told(cause, sign))
        return tuple(told[:_CAUSES])


class _Known(NamedTuple):
    symptom: Symptom | KnownSymptom
    pattern: Pattern | None
    tool: str | None


def matching(
    patterns: Iterable[Pattern], output: str, catalogue: Iterable[Symptoms] = ()
) -> list[Match]:
    """The symptoms in ``output``, the best first; each pattern with its best one."""
    return seen(patterns, catalogue, [output.encode("utf-8", "replace")]).matches


def seen(
    patterns: Iterable[Pattern],
    catalogue: Iterable[Symptoms],
    text: Iterable[bytes],
    architectures: Iterable[str] = (),
    demands: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Seen:
    """What a text shows, in time linear in its length and in memory that does not grow with it.

    Args:
        patterns: whose symptoms are looked for.
        catalogue: of symptoms.
        text: in blocks.
        architectures: what it is known to be about, beside what it says itself.
        demands: expression → the texts that it demands, as far as that is known.
    """
    tools = list(catalogue)
    in_words = {tool.id for tool in tools if tool.in_words}
    known = [
        *(_Known(one, None, tool.id) for tool in tools for one in tool.symptoms),
        *(_Known(one, pattern, None) for pattern in patterns for one in pattern.symptoms),
    ]

    def accepts(place: int, line: str) -> bool:
        symptom = known[place].symptom
        return not isinstance(symptom, KnownSymptom) or symptom.read(line) is not None

    finder = Finder([one.symptom.match for one in known], accepts, demands)
    result = Seen(architectures={found for one in architectures if (found := capability_of(one))})
    looks = _Looks(result)
    profile = Profile()
    for lines in _blocks(profile.without(text)):
        result.first += (line for _, line, _ in lines[: _FIRST - len(result.first)])
        finder.feed(lines)
        looks.feed(lines)
        result.lines = next((n for n, text, _ in reversed(lines) if text.strip()), result.lines)
    measured = profile.lines
    finder.feed(shaped(measured))
    result.architectures |= profile.capabilities
    result.lines = max(result.lines, *(number for number, _ in measured), 0)
    about = "\n".join(result.first[:_OPENING])
    elsewhere = ELSEWHERE.search(about) is not None

    def is_asked(line: str) -> bool:
        """Whether a line in people's words is about a card for CUDA."""
        return bool(result.architectures) or (
            not elsewhere and (is_about_cards(about) or is_about_cards(line))
        )

    matches = []
    for place, (number, line) in finder.found.items():
        symptom = known[place].symptom
        values = symptom.read(line) if isinstance(symptom, KnownSymptom) else {}
        matches.append(Match(*known[place], line.strip(), number, values or {}))
    fitting = [
        match
        for match in matches
        if _fits_card(match, result.architectures)
        and _fits_tool(match, tools)
        and not _is_said_better(match, matches, tools)
        and not ELSEWHERE.search(match.line)
        and (match.tool not in in_words or is_asked(match.line))
    ]
    result.matches = [
        match._replace(causes=result.causes(match.symptom, match.line))
        for match in _each_pattern_once(sorted(fitting, key=_rank))
    ]
    return result


_ROLES = {"cause": 0, "warning": 1, "consequence": 2}


def _rank(match: Match) -> tuple[int, bool, int, int, str]:
    """Causes first, those that hold for many messages behind the others; then what stands first; on
    one line what says more of it."""
    symptom = match.symptom
    role, general = "cause", False
    if isinstance(symptom, KnownSymptom):
        role, general = symptom.role, symptom.general
    return (_ROLES[role], general, match.number, -_literal(symptom.match), match.name)


def _literal(expression: str) -> int:
    """How many characters of a line an expression demands, at most."""
    return max(len(_SIGNS.sub("", part)) for part in expression.split("|"))


_SIGNS = re.compile(r"\\[a-zA-Z]|\[[^\]]*\]|\{\d+,?\d*\}|[.*+?()^$\\]")


def _each_pattern_once(matches: Sequence[Match]) -> list[Match]:
    known = set()
    found = []
    for match in matches:
        key = match.pattern.id if match.pattern else match.name
        if key not in known:
            known.add(key)
            found.append(match)
    return found


def _fits_tool(match: Match, catalogue: Sequence[Symptoms]) -> bool:
    """Whether a line may be the message that a symptom describes: what another tool printed is no
    message that only sounds like one of this tool."""
    if not (isinstance(match.symptom, KnownSymptom) and match.symptom.general):
        return True
    tools = printed_by(catalogue, match.line)
    return not tools or match.tool in tools


def _is_said_better(match: Match, matches: Iterable[Match], catalogue: Sequence[Symptoms]) -> bool:
    """Whether a general warning is on a line that its tool does not show as its own, and of which
    another tool's symptom tells the cause."""
    symptom = match.symptom
    if not (isinstance(symptom, KnownSymptom) and symptom.general and symptom.role == "warning"):
        return False
    return match.tool not in printed_by(catalogue, match.line) and any(
        other.number == match.number and other.tool != match.tool and says_just_this(other)
        for other in matches
    )


def says_just_this(match: Match) -> bool:
    """Whether a match names the cause, and not only its kind."""
    symptom = match.symptom
    return not isinstance(symptom, KnownSymptom) or (
        symptom.role == "cause" and not symptom.general
    )


def printed_by(catalogue: Iterable[Symptoms], text: str) -> set[str]:
    """The tools that printed a text, as far as its lines show it."""
    lines = text.splitlines()
    return {
        tool.id
        for tool in catalogue
        if tool.prints and any(found_in(tool.prints, line) for line in lines)
    }


def _fits_card(match: Match, architectures: set[str]) -> bool:
    if not isinstance(match.symptom, KnownSymptom):
        return True
    return fits_cards(match.symptom.architectures, architectures_in(match.line) or architectures)


def fits_cards(meant: Iterable[str], named: set[str]) -> bool:
    """Whether advice for the architectures ``meant`` (for all, if there are none) may be shown for
    a text that names those in ``named``."""
    capabilities = {capability_of(one) for one in meant}
    return not capabilities or not named or bool(capabilities & named)


_ARCHITECTURE = (
    r"(?i:\b(?:sm|compute)_?\d{2,3}[af]?\b|capability:? *\(?\d{1,2}[.,] ?\d)"
    rf"|\b(?:{'|'.join(re.sub('[0-9]', '[0-9]', name) for name in CARD_NAMES)})\b"
)
"""What a line may name an architecture by; it tells no digits apart, so few lines are compared."""
_CODES = re.compile(r"(?i)\b(?:sm|compute)_?(\d{2,3})[af]?\b|capability:? *\(?(\d{1,2})[.,] ?(\d)")
_CARDS = re.compile(rf"\b(?:{'|'.join(CARD_NAMES)})\b")
_REPORTS = (
    r"(?i)error|fail|fatal|exception|cannot|can't|could ?n[o']t|unable|not found|no such|invalid"
    r"|warn|abort|unsupported|not supported|undefined|unresolved|missing|incompatible|mismatch"
    r"|conflict|denied|refused|timed out|timeout|unknown|illegal|must be|expected"
    r"|not (?:available|allowed|set)|\bhangs?\b|stuck|crash|freez|\boom\b|exhaust|killed|leak"
    r"|deadlock|never ends|takes (?:very |too )?long|takes (?:>|over|more than)? ?\d+ (?:min|hour)"
)


def reports_error(text: str) -> bool:
    """Whether a text has a word by which tools report that something is wrong, and is no prose."""
    if not found_in(_REPORTS, text) or not _OF_A_TOOL.search(text):
        return False
    said = re.findall(r"[a-z']+", text.lower())
    return sum(word in STOP for word in said) < _PROSE * len(said)


_OF_A_TOOL = re.compile(r"[:_(\[=`\"/<>#]|'[^' ]+'|\w\.\w|[a-z][A-Z]|[A-Z]{4}")
"""What lines of tools have, and sentences seldom."""
_PROSE = 0.4
"""Of the words of prose so many say nothing by themselves."""


def architectures_in(line: str) -> set[str]:
    """The GPU architectures that a line names, by number or by a card: as digits."""
    found = {code or major + minor for code, major, minor in _CODES.findall(line)}
    cards = (card_of(name) for name in _CARDS.findall(line))
    return found | {card.capability for card in cards if card}


class _Looks:
    """Notes architectures and lines that report errors, in the first lines that have them."""

    def __init__(self, result: Seen) -> None:
        self._result = result
        self._naming = Finder([_ARCHITECTURE], self._note)
        self._reporting = Finder([_REPORTS], self._keep)
        self._named: set[str] = set()

    def feed(self, lines: Sequence[Line]) -> None:
        self._naming.feed(lines)
        self._reporting.feed(lines)

    def _note(self, place: int, line: str) -> bool:
        if named := architectures_in(line):
            self._result.architectures |= named
            self._named.add(line)
        return len(self._named) >= _NAMING  # found: no more lines are looked at

    def _keep(self, place: int, line: str) -> bool:
        if (said := line.strip()) not in self._result.errors:
            self._result.errors.append(said)
        return len(self._result.errors) >= _ERRORS


_NAMING = 200


def blocks_of(file: BinaryIO) -> Iterator[bytes]:
    """A file in blocks."""
    while block := file.read(_BLOCK):
        yield block


def _blocks(text: Iterable[bytes]) -> Iterator[list[Line]]:
    """The lines of a text with their numbers; long ones in pieces."""
    number = 1
    rest = b""
    for block in text:
        whole, end, rest_of = (rest + block).rpartition(b"\n")
        if not end and len(rest_of) < 2 * _BLOCK:
            rest = rest_of
            continue
        if not end:  # one line that is longer than a block
            whole, rest_of = rest_of[:-_OVERLAP], rest_of[-_OVERLAP:]
        yield _numbered(whole, number)
        number += whole.count(b"\n") + bool(end)
        rest = rest_of
    if rest:
        yield _numbered(rest, number)


def _numbered(raw: bytes, first: int) -> list[Line]:
    text = raw.decode("utf-8", "replace")
    if "\u2018" in text or "\u201c" in text:
        text = text.translate(_QUOTES)  # GCC quotes so where the locale is UTF-8
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    lines = text.replace("\r\n", "\n").split("\n")
    numbered: Iterable[tuple[int, str]] = enumerate(lines, first)
    if "\r" in text or max(map(len, lines)) > _PIECE:
        numbered = (
            (number, piece)
            for number, line in enumerate(lines, first)
            for part in line.split("\r")
            for piece in _pieces(part)
        )
    return shaped(numbered)


_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""Colours and links that a tool writes for a terminal."""


def _pieces(line: str) -> Iterator[str]:
    if len(line) <= _PIECE:
        yield line
        return
    for start in range(0, len(line) - _OVERLAP, _PIECE - _OVERLAP):
        yield line[start : start + _PIECE]
