"""Org, reStructuredText and drawn tables, as the Markdown that says the same on the same lines."""

from __future__ import annotations

import re

_ORG = re.compile(r"#\+[A-Za-z_]+:")
_FIELD = re.compile(r":([A-Za-z][\w -]{0,40}):(\s+\S.*)")
_ADORNED = re.compile(r"([=\-~^\"'*+#`_:.])\1{2,}\s*")
_BORDER = re.compile(r"\s*[+|┌├└┏┡┣┗╔╠╚╭╰╞╟]?(?:[-─━═=]+[+┬┼┴┳╇╋┻╪╤╧╦╬╩])+[-─━═=]+\S?\s*")
_BAR = re.compile("[|│┃║]")


def as_markdown(source: list[str]) -> list[str]:
    """Lines of Org, reStructuredText and drawn tables as Markdown; others stay as they are."""
    is_org = any(_ORG.match(line) for line in source[:20])
    source = _drawn(source)
    made = []
    for at, line in enumerate(source):
        if is_org:
            made.append(_org(line))
            continue
        field = _FIELD.fullmatch(line)
        if field:
            line = f"{field[1]}:{field[2]}"
        elif _is_overline(source, at):
            line = ""
        elif re.match(r"\s*#\.\s", line):
            line = line.replace("#.", "1.", 1)
        made.append(line)
    return made


def _drawn(source: list[str]) -> list[str]:
    """Tables as Org, psql and MySQL draw them: with ``+`` or lines where columns cross."""
    made = list(source)
    at = 0
    while at < len(source):
        end = at
        while end < len(source) and (_BORDER.fullmatch(source[end]) or _BAR.search(source[end])):
            end += 1
        borders = {n: source[n] for n in range(at, end) if _BORDER.fullmatch(source[n])}
        header = next((n for n in range(at, end) if n not in borders), end)
        if header + 1 in borders:
            # A border that begins with a column: psql writes no bar before the first.
            is_open = re.match(r"\s*[-─━═=]", source[header + 1])
            for n in range(at, end):
                if n not in borders:
                    made[n] = _BAR.sub("|", f"|{source[n]}" if is_open else source[n].strip())
                elif n == header + 1:
                    made[n] = "|---" * (len(_BAR.findall(made[header].rstrip().rstrip("|")))) + "|"
                else:
                    made[n] = "| |" if header < n < end - 1 else ""
        at = max(end, at + 1)
    return made


def _org(line: str) -> str:
    heading = re.match(r"(\*+) (.*)", line)
    if heading:
        return f"#{'#' * len(heading[1])} {heading[2]}"  # the title is the first level
    keyword = re.match(r"#\+(TITLE|DATE|AUTHOR):\s*(.*)", line, re.IGNORECASE)
    if keyword:
        name = keyword[1].lower()
        return f"# {keyword[2]}" if name == "title" else f"{name.capitalize()}: {keyword[2]}"
    return line


def _is_overline(source: list[str], at: int) -> bool:
    """Whether a row of signs stands above a title that has the same below it."""
    return (
        _ADORNED.fullmatch(source[at]) is not None
        and at + 2 < len(source)
        and source[at].rstrip() == source[at + 2].rstrip()
        and 0 < len(source[at + 1].strip()) <= len(source[at].rstrip())
        and not (at and source[at - 1].strip())
    )
