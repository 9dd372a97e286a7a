"""Reports in Org and reStructuredText, as the Markdown that says the same on the same lines."""

from __future__ import annotations

import re

_ORG = re.compile(r"#\+[A-Za-z_]+:")
_ORG_TABLE_RULE = re.compile(r"(\s*)\|(?:-+\+)*-+\|\s*")
_FIELD = re.compile(r":([A-Za-z][\w -]{0,40}):(\s+\S.*)")
_ADORNED = re.compile(r"([=\-~^\"'*+#`_:.])\1{2,}\s*")


def as_markdown(source: list[str]) -> list[str]:
    """Lines of Org and of reStructuredText as Markdown; other lines stay as they are."""
    is_org = any(_ORG.match(line) for line in source[:20])
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


def _org(line: str) -> str:
    heading = re.match(r"(\*+) (.*)", line)
    if heading:
        return f"#{'#' * len(heading[1])} {heading[2]}"  # the title is the first level
    if _ORG_TABLE_RULE.fullmatch(line):
        return line.replace("+", "|")
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
