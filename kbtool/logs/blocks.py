"""A report as lines, each with its number, its headings and what it belongs to."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

from kbtool.logs.markup import as_markdown

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Kind = Literal["heading", "item", "text", "meta", "output"]
"""``meta``: front matter; ``output``: what a fenced block without a language of code holds."""


@dataclass(frozen=True)
class Line:
    """One line of the report, or one paragraph that was wrapped."""

    number: int
    """From 1."""
    text: str
    """Without marks of Markdown."""
    kind: Kind
    headings: tuple[str, ...] = ()
    """The headings that it is under, the outermost first."""
    lead: str = ""
    """Of an item: the line that the list follows, or the item around it."""
    depth: int = 0
    """Of an item: how many lists it is in; of a heading its level."""
    ordinal: str = ""
    """Of an item of a numbered list: its number."""
    breaks: tuple[tuple[int, int], ...] = ()
    """Where in ``text`` each further line of a wrapped paragraph begins, and its number."""
    block: int = 0
    """Lines of one block have one number."""
    sign: str = ""
    """``yes`` or ``no``, where the line has a sign such as ✅ or ❌."""

    @property
    def key(self) -> str:
        """What stands before the first colon, if it is a name for the rest."""
        found = _KEY.match(self.text)
        return found[1].strip() if found else ""

    @property
    def value(self) -> str:
        """What stands after the key; the whole line if there is none."""
        found = _KEY.match(self.text)
        return self.text[found.end() :].strip() if found else self.text

    def line_of(self, position: int) -> int:
        """The line that a character of ``text`` stands on."""
        number = self.number
        for start, line in self.breaks:
            if position >= start:
                number = line
        return number


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    line: int
    sign: str = ""


@dataclass(frozen=True)
class Table:
    """A table: its header and its rows as they are written, a short row stays short."""

    number: int
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    headings: tuple[str, ...]
    lead: str = ""


@dataclass
class Blocks:
    """The report, read."""

    parts: list[Line | Table] = field(default_factory=list)
    count: int = 0
    """How many lines the report has."""
    code: set[int] = field(default_factory=set)
    """Lines of code: they are not read."""
    last: str = ""
    long: list[int] = field(default_factory=list)
    """Lines that are longer than anybody reads: they are not read."""

    @property
    def lines(self) -> list[Line]:
        """The lines that are in no table."""
        return [part for part in self.parts if isinstance(part, Line)]


MAX_LINE = 4_000
"""Characters of a line, or of a paragraph."""

_KEY = re.compile(r"([^\W\d][^:：=|.!?`]{0,48}?)\s*(?::(?=\s|$)|：|\s=(?=\s)|\s\.{4,}(?=\s))\s*")
_MARK = re.compile(r"[^\w\s\"'`(\[<>~≈≤≥$€£¥₹+\-−.…&/*_#%°]+(?=\s|$)|[\ufe0e\ufe0f]")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+\"[^\"]*\")?\)")
_PLAIN_CODE = frozenset(
    (
        "",
        "text",
        "txt",
        "console",
        "output",
        "log",
        "md",
        "shell-session",
        "markdown",
        "plain",
        "plaintext",
        "none",
        "csv",
        "tsv",
        "yaml",
        "json",
        "jsonl",
        "toml",
        "ini",
        "sh-session",
    )
)
_SHELL = frozenset(("bash", "sh", "zsh", "shell", "fish", "console", "shell-session", "sh-session"))
_PROMPT = re.compile(r"\s*(?:\([\w.-]+\)\s*)?(?:[\w.-]+@[\w.-]+[:~\w/. -]*)?[$#❯%]\s+\S")
_COMMAND = re.compile(r"\s*(?:\([\w.-]+\)\s*)?(?:[\w.-]+@[\w.-]+[:~\w/. -]*)?[$❯]\s+[A-Za-z./]")


def plain(text: str) -> str:
    """``text`` without the marks of Markdown and without leading signs such as ✅."""
    text = html.unescape(_LINK.sub(r"\1", text))
    text = re.sub(r"\*\*|__|~~|(?<![\w*])\*(?=\S)|(?<=\S)\*(?![\w*])|`", "", text)
    text = text.replace("\ufe0f", "").replace("\ufe0e", "").strip().removesuffix("\\").strip()
    while (found := _MARK.match(text)) is not None and found.end():
        text = text[found.end() :].lstrip()
    return text


def sign_of(raw: str) -> str:
    """``yes`` or ``no``, where a text has a sign or a word for it; empty where it has both."""
    yes = re.search(r"[✅✓✔☑]|\[x\]|\b(?:PASS(?:ED)?|pass(?:ed)?|OK|done|fixed)\b", raw)
    no = re.search(r"[❌✗✘]|\b(?:FAIL(?:ED|S)?|fail(?:ed|s)?|broken)\b", raw)
    return "" if bool(yes) == bool(no) else "yes" if yes else "no"


def read(text: str) -> Blocks:
    """The lines and tables of a report, in their order."""
    source = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    if source and source[-1] == "":
        source.pop()
    source = as_markdown(source)
    blocks = Blocks(count=len(source))
    first = _front_matter(source, blocks)
    rules = [_rule_of_table(source, at) for at in range(len(source))]
    body = "\n".join([*[""] * first, *_outer_fences(rules[first:])])
    headings: list[tuple[int, str]] = []
    items: list[tuple[str, str]] = []  # of each list around: the lead, the ordinal of the item
    number = 0
    tokens = _parser().parse(body)
    for at, token in enumerate(tokens):
        above = tuple(title for _, title in headings)
        if token.type in {"bullet_list_open", "ordered_list_open"}:
            items.append((blocks.last, ""))
        elif token.type in {"bullet_list_close", "ordered_list_close"}:
            items.pop()
        elif token.type == "list_item_open":
            items[-1] = (items[-1][0], token.info)
        elif token.type == "table_open":
            _table(token, source, above, blocks)
        elif token.type in {"fence", "code_block"}:
            number += 1
            _fence(token, source, above, blocks, number)
        elif token.type == "inline" and len(token.content) > MAX_LINE and _is_long(token, source):
            blocks.long.append(_start(token))
        elif token.type == "inline" and tokens[at - 1].type == "heading_open":
            level = int(tokens[at - 1].tag[1:])
            headings = [(of, title) for of, title in headings if of < level]
            line = Line(_start(token), plain(token.content), "heading",
                        tuple(title for _, title in headings),
                        depth=level, sign=sign_of(token.content))  # fmt: skip
            blocks.parts.append(line)
            headings.append((level, line.text))
            blocks.last = line.text
        elif token.type == "inline" and tokens[at - 1].type == "paragraph_open":
            number += 1
            _paragraph(token, source, above, items, blocks, number)
    return blocks


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable(["table"])
    parser.core.ruler.enableOnly(["normalize", "block"])
    # `===` and `---` under a line of a report are rules more often than headings.
    return parser.disable(["reference", "html_block"])


def _is_long(token: Token, source: list[str]) -> bool:
    """Whether one of its lines is too long, or the lines of a paragraph that was wrapped."""
    first, end = token.map or (0, 0)
    lines = token.content.split("\n")
    return any(len(line) > MAX_LINE for line in lines) or _is_wrapped(lines, source[first:end])


def _start(token: Token) -> int:
    return (token.map[0] if token.map else 0) + 1


def _rule_of_table(source: list[str], at: int) -> str:
    """A rule of dashes with gaps, or below three columns, is one of a table; to Markdown it is a
    line across the page, or makes a heading."""
    line = source[at]
    if _DASHES.fullmatch(line):
        return line.replace("-", "=")
    if at and _LONG_DASHES.fullmatch(line) and len(_spans(source[at - 1])) > 2:
        return "== =="
    return line


_LONG_DASHES = re.compile(r"\s*-{8,}\s*")
_DASHES = re.compile(r"\s*-{2,}(?:\s+-{2,})+\s*")
_FENCE = re.compile(r"\s{0,3}(`{3,})\s*([\w+.-]*)\s*$")


def _outer_fences(source: list[str]) -> list[str]:
    """``source`` with long marks around a fenced block that holds others.

    By the rules the first bare mark ends the outer block, and what follows is read inside out.
    Where the marks with a language open a block and the bare ones close one, that is what is meant.
    """
    made = list(source)
    around: list[int] = []
    for at, line in enumerate(source):
        found = _FENCE.match(line)
        if found is None:
            continue
        if found[2] or not around:
            around.append(at)
            continue
        first = around.pop()
        if not around and any(_FENCE.match(inner) for inner in source[first + 1 : at]):
            made[first] = made[first].replace("```", "`" * 30, 1)
            made[at] = line.replace("```", "`" * 30, 1)
    return source if around else made


def _front_matter(source: list[str], blocks: Blocks) -> int:
    """Read YAML front matter as keys and values; the number of lines that it takes."""
    if not source or source[0].strip() != "---":
        return 0
    end = next(
        (at for at, line in enumerate(source[1:200], 1) if line.strip() in {"---", "..."}), 0
    )
    inside = source[1:end]
    if not inside or not any(_YAML.match(line) for line in inside):
        return 0
    around: list[tuple[int, str]] = []
    for at, raw in enumerate(inside, 2):
        found = _YAML.match(raw)
        if found is None or not raw.strip() or raw.strip().startswith("#"):
            continue
        indent = len(found[1])
        around = [(of, key) for of, key in around if of < indent]
        key, value = found[2] or "", re.sub(r"\s#\s.*$", "", found[3]).strip().strip("'\"")
        names = [*(name for _, name in around), *([key] if key else [])]
        if value in {"", "|", ">", ">-", "|-"} and key:
            around.append((indent, key))
        elif value:
            # The unit at the end of a key stays apart: latency_us.
            name = re.sub(r"_(?![A-Za-z]+\Z|(?:[gt]i?b_s)\Z)", " ", " ".join(names))
            if not re.fullmatch(r"-?\d[\d.,e+-]*", value):
                name = name.replace("_", " ")
            text = f"{name}: {value}"
            blocks.parts.append(Line(at, plain(text), "meta"))
    return end + 1


_YAML = re.compile(r"(\s*(?:-\s+)?)(?:([A-Za-z_][\w -]*):(?:\s+|$))?(.*)$")


def _table(token: Token, source: list[str], headings: tuple[str, ...], blocks: Blocks) -> None:
    if not token.map:
        return
    first, end = token.map
    blocks.long += [at + 1 for at in range(first, end) if len(source[at]) > MAX_LINE]
    if len(source[first]) <= MAX_LINE:
        _rows(range(first, min(end, len(source))), source, headings, blocks)


def _rows(lines: range, source: list[str], headings: tuple[str, ...], blocks: Blocks) -> None:
    first = lines.start
    rows = [
        tuple(Cell(plain(cell), at + 1, sign_of(cell)) for cell in _cells(source[at]))
        for at in lines[2:]
        if len(source[at]) <= MAX_LINE
    ]
    header = tuple(plain(cell) for cell in _cells(source[first]))
    units = [cell.text for cell in rows[0]] if rows else []
    if any(units) and len(units) == len(header) and all(map(_UNIT_CELL.fullmatch, units)):
        header = tuple(f"{title} ({unit.strip('()[]')})" if unit else title
                       for title, unit in zip(header, units, strict=True))  # fmt: skip
        del rows[0]
    if len(header) == 2 and _KEYS.fullmatch(header[0]) and _VALUES.fullmatch(header[1]):
        # Each row says what a line with a colon would.
        for row in rows:
            text = ": ".join(cell.text for cell in row if cell.text)
            sign = next((cell.sign for cell in row if cell.sign), "")
            blocks.parts.append(Line(row[0].line, text, "text", headings, sign=sign))
        return
    blocks.parts.append(Table(first + 1, header, tuple(rows), headings, blocks.last))


_UNIT_CELL = re.compile(
    r"|[\[(]?(?:[num]?s|µs|min|h|%|[kKMGT]i?B(?:/s)?|[GT]?FLOPS?(?:/s)?|[MG]Hz|W|J|x|×)[\])]?"
)
"""What each cell of a row of units holds, or nothing."""
_KEYS = re.compile(
    r"(?i:|keys?|fields?|items?|what|property|parameter|setting|attribute|feld|champ|campo|voce|項目|项目)"
)
_VALUES = re.compile(r"(?i:|values?|settings?|details?|wert|valeur|valor|valore|waarde|値|值|内容)")


def _cells(raw: str) -> list[str]:
    raw = re.sub(r"^[\s>]*\|?", "", raw)
    parts = re.split(r"(?<!\\)\|", raw.strip().removesuffix("|"))
    return [part.strip() for part in parts]


def _fence(
    token: Token, source: list[str], headings: tuple[str, ...], blocks: Blocks, block: int
) -> None:
    if not token.map:
        return
    language = token.info.strip().split(" ")[0].lower() if token.type == "fence" else ""
    first, end = token.map
    inside = range(first + 1, end - 1) if token.type == "fence" else range(first, end)
    if token.type == "fence" and end == len(source) and not re.match(r"\s*(```|~~~)", source[-1]):
        inside = range(first + 1, end)
    has_prompt = any(_PROMPT.match(source[at]) for at in inside)
    if language not in _PLAIN_CODE and not (language in _SHELL and has_prompt):
        blocks.code |= {at + 1 for at in inside}
        return
    table = (
        _aligned(source, inside, headings, blocks)
        or _separated(source, inside, headings, blocks)
        or _piped(source, inside, headings, blocks)
    )
    is_code = False
    for at in inside:
        raw = source[at]
        if at in table:
            continue
        if _FENCE.match(raw):
            is_code = not is_code
        if is_code:
            blocks.code.add(at + 1)
            continue
        if len(raw) > MAX_LINE:
            blocks.long.append(at + 1)
        elif has_prompt and _PROMPT.match(raw):
            blocks.code.add(at + 1)
        elif raw.strip():
            text = plain(re.sub(r"^[\s>]*(?:[-*+]\s+|#+\s+|\d+[.)]\s+)?", "", raw))
            line = Line(
                at + 1, text, "output", headings, blocks.last, block=block, sign=sign_of(raw)
            )
            blocks.parts.append(line)


_RULE = re.compile(r"\s*[─━═=-]{2,}(?:\s+[─━═=-]{2,})*\s*\Z")
_RULES = re.compile(r"\s*[─━=-]{2,}(?:\s+[─━=-]{2,})+\s*")
"""One for each column."""


def _aligned(
    source: list[str], inside: range, headings: tuple[str, ...], blocks: Blocks
) -> frozenset[int]:
    """Read a table set with spaces, with a rule below its header; the lines that it takes."""
    rule, titles = next(((at, titles) for at in inside if at - 1 in inside
                         and _RULE.match(source[at]) and len(source[at - 1]) <= MAX_LINE
                         and len(titles := _titles(source[at - 1], source[at])) > 1),
                        (None, []))  # fmt: skip
    if rule is None:
        return frozenset()
    rows = []
    for at in range(rule + 1, inside.stop):
        raw = source[at]
        if not raw.strip() or _RULE.match(raw) or len(raw) > MAX_LINE:
            break
        texts = [""] * len(titles)
        for start, end, text in _spans(raw):
            # The column whose title it stands under, else the one that begins before it.
            under = [n for n, (first, last, _) in enumerate(titles) if first < end and start < last]
            before = [n for n, (first, _, _) in enumerate(titles) if first <= start] or [0]
            place = (under or before[-1:])[-1]
            texts[place] = f"{texts[place]} {text}".strip()
        rows.append(tuple(Cell(plain(text), at + 1, sign_of(text)) for text in texts))
    if not rows:
        return frozenset()
    named = tuple(plain(text) for _, _, text in titles)
    blocks.parts.append(Table(rule, named, tuple(rows), headings, blocks.last))
    return frozenset(range(rule - 1, rule + 1 + len(rows)))


def _titles(header: str, rule: str) -> list[tuple[int, int, str]]:
    """The titles above a rule: where each column begins and ends, and its title."""
    if _RULE.match(header):
        return []
    titles = _spans(header)
    columns = [(m.start(), m.end()) for m in re.finditer(r"[─━═=-]+", rule)]
    outside = header
    for first, last in columns:
        outside = outside[:first] + " " * len(header[first:last]) + outside[last:]
    if len(columns) > len(titles) and not outside.strip():
        return [(first, last, header[first:last].strip()) for first, last in columns]
    if len(columns) == len(titles):
        return [(min(a, c), max(b, d), text)
                for (a, b, text), (c, d) in zip(titles, columns, strict=True)]  # fmt: skip
    return titles


_TITLE = re.compile(r"\s*\"?[^\W\d][\w ./()\[\]%#-]{0,40}\"?\s*")
_NUMBER = re.compile(r"\s*\"?[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?\s?[^\W\d]{0,8}%?\"?\s*")


def _separated(
    source: list[str], inside: range, headings: tuple[str, ...], blocks: Blocks
) -> frozenset[int]:
    """Read comma-separated values, which are all of a block: a line of titles, then rows of as many
    cells with a number; the lines that it takes."""
    for sign in (";", "\t", ","):
        rows = [source[at].split(sign) for at in inside if source[at].strip()]
        if len(rows) < 3 or len(rows) < len(inside) or len(rows[0]) < 3:
            continue
        if {len(row) for row in rows} != {len(rows[0])} or not all(map(_TITLE.fullmatch, rows[0])):
            continue
        if not all(any(map(_NUMBER.fullmatch, row)) for row in rows[1:]):
            continue
        if max(len(source[at]) for at in inside) > MAX_LINE:
            continue
        header, *cells = [[plain(text.strip().strip('"')) for text in row] for row in rows]
        table = tuple(
            tuple(Cell(text, at + 1) for text in row)
            for at, row in zip(inside[1:], cells, strict=True)
        )
        blocks.parts.append(Table(inside.start + 1, tuple(header), table, headings, blocks.last))
        return frozenset(inside)
    return frozenset()


_PIPED_RULE = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+\s*(?::?-+:?\s*)?")


def _piped(
    source: list[str], inside: range, headings: tuple[str, ...], blocks: Blocks
) -> frozenset[int]:
    """Read the first table of Markdown in a block; the lines that it takes."""
    rule = next((at for at in inside if _PIPED_RULE.fullmatch(source[at]) and at - 1 in inside
                 and "|" in source[at - 1]), None)  # fmt: skip
    if rule is None:
        return frozenset()
    end = next((at for at in range(rule + 1, inside.stop) if "|" not in source[at]), inside.stop)
    if max(len(source[at]) for at in range(rule - 1, end)) > MAX_LINE:
        return frozenset()
    _rows(range(rule - 1, end), source, headings, blocks)
    return frozenset(range(rule - 1, end))


def _spans(raw: str) -> list[tuple[int, int, str]]:
    """The parts of a line between two spaces or more: where they begin and end, and the text."""
    return [(m.start(), m.end(), m[0]) for m in re.finditer(r"\S+(?: \S+)*", raw)]


def _paragraph(
    token: Token,
    source: list[str],
    headings: tuple[str, ...],
    items: list[tuple[str, str]],
    blocks: Blocks,
    block: int,
) -> None:
    raw = token.content.split("\n")
    first = _start(token)
    if any(map(_RULES.fullmatch, raw)):
        inside = range(first - 1, first - 1 + len(raw))
        table = _aligned(source, inside, headings, blocks)
        for at in inside if table else ():
            if at not in table and not _RULE.match(source[at]):
                blocks.parts.append(Line(at + 1, plain(source[at]), "text", headings, block=block))
        if table:
            return
    if not items and _separated(source, range(first - 1, first - 1 + len(raw)), headings, blocks):
        return
    texts = [plain(line) for line in raw]
    lead, ordinal = items[-1] if items else ("", "")
    kind: Kind = "item" if items else "text"
    given = (kind, headings, lead, len(items), ordinal)
    if any(_COMMAND.match(line) for line in raw):
        # What a shell printed, without marks around it.
        for offset, printed in enumerate(raw):
            if _COMMAND.match(printed):
                blocks.code.add(first + offset)
            else:
                blocks.parts.append(Line(first + offset, plain(printed), "output", headings, lead,
                                         block=block, sign=sign_of(printed)))  # fmt: skip
    elif _is_wrapped(raw, source[first - 1 :]):
        joined, breaks = texts[0], []
        for offset, text in enumerate(texts[1:], 1):
            breaks.append((len(joined) + 1, first + offset))
            joined += f" {text}"
        blocks.parts.append(Line(first, joined, *given, tuple(breaks), block, sign_of(joined)))
    else:
        for offset, text in enumerate(texts):
            number = re.match(r"(\d+)[.)]\s+", text)
            if number and kind == "text" and offset:
                # A list that does not begin with 1 cannot interrupt a paragraph by the rules.
                line = Line(first + offset, text[number.end() :], "item", headings, texts[0], 1,
                            number[1], (), block, sign_of(raw[offset]))  # fmt: skip
            else:
                line = Line(first + offset, text, *given, (), block, sign_of(raw[offset]))
            blocks.parts.append(line)
    blocks.last = texts[-1]
    if items:
        # What a nested list follows is the item.
        blocks.last = texts[0]


def _is_wrapped(raw: list[str], source: list[str]) -> bool:
    """Whether a paragraph is prose that was wrapped, and not a line for each thing."""
    if len(raw) == 1:
        return False
    for at, line in enumerate(raw[:-1]):
        if (source[at] if at < len(source) else "").endswith(("  ", "\\")):
            return False
        following = raw[at + 1]
        if re.match(r"\d+[.)]\s|\*\*|[^\w\s\"'(`~<>$€£*_\[+.-]", following) or _KEY.match(
            plain(following)
        ):
            return False
        if len(line) < 40 and at == 0 and len(raw) > 2:
            return False
    return True


def sentences(line: Line) -> Iterator[tuple[int, int]]:
    """Where each sentence of a line begins and ends."""
    start = 0
    for found in re.finditer(r"(?<=[.!?])\s+(?=[A-Z\"'(])", line.text):
        yield start, found.start()
        start = found.end()
    yield start, len(line.text)
