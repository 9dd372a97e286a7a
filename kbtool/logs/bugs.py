"""Bugs of a report, with their fields, their suspected causes and their fixes."""

from __future__ import annotations

import re
from typing import Any

from kbtool.logs.blocks import Line
from kbtool.logs.commits import SHA
from kbtool.logs.draft import slug
from kbtool.logs.reader import Reader, plain_title

_BUG = re.compile(
    r"(?i)(?:(?:current |critical |known |open )?(?:bug|issue|blocker|problem|defect|fault)\s*"
    r"(?:#?\d+)?\s*(?:[:.–—-]\s*(?P<title>.+))?)\Z"
)
_FIELD_OF_BUG = (
    ("symptom", re.compile(r"(?i)(?:symptoms?|observed|seen|impact)\Z")),
    (
        "error_text",
        re.compile(r"(?i)(?:error(?: message| text)?|message|(?:\w+ )?(?:issue|error))\Z"),
    ),
    ("cause", re.compile(r"(?i)(?:root )?cause\Z")),
    (
        "change",
        re.compile(r"(?i)(?:fix(?:ed)?(?: applied)?|solution|resolution|fixed by|workaround)\Z"),
    ),
    ("commit", re.compile(r"(?i)(?:fix )?commit\Z|fixed in\Z")),
    ("status", re.compile(r"(?i)status\Z")),
    ("minutes_lost", re.compile(r"(?i)(?:time (?:lost|wasted|spent)|cost us|lost)\Z")),
    ("component", re.compile(r"(?i)(?:component|file|location|where|place)\Z")),
)
_CAUSES = re.compile(r"(?i)(?:likely |possible |potential )?(?:causes?|hypothes[ei]s|suspects?)\b")
_FIXED = re.compile(r"(?i)\b(?:fixed|resolved|solved|closed)\b")
_NOT_FIXED = re.compile(
    r"(?i)\b(?:not|un|partially|needs?|to be|must|open|blocker|blocking|required)\b"
)
_ERROR = re.compile(r"(?i)\berror\b|undefined symbol|exception|traceback|segfault|fault|failed")


def read_bugs(reader: Reader) -> None:
    """A bug for each heading that is one, and for each item of a list of bugs."""
    for headings, parts in reader.sections:
        if len(headings) < 2:
            continue
        heading = reader.heading_line(headings)
        found = _BUG.match(plain_title(headings[-1]))
        lines = [part for part in parts if isinstance(part, Line)]
        if found is None or heading is None or not lines:
            continue
        _bug(reader, heading, found["title"], lines)
    _bug_lines(reader)


_BUG_LINE = re.compile(
    r"(?i)(?:bug|issue)\s*#?\w{1,4}\b\s*(?:\((?P<more>[^()]*)\))?\s*:\s*(?P<title>.*)\Z"
)


def _bug_lines(reader: Reader) -> None:
    """A bug for each line such as "Bug #4: it overflows" with a list below it that describes it."""
    lines = reader.blocks.lines
    for at, line in enumerate(lines):
        found = _BUG_LINE.match(line.text) if line.kind == "text" else None
        if found is None or reader.of_another(line.text):
            continue
        below = []
        for other in lines[at + 1 :]:
            if other.kind != "item" or other.headings != line.headings:
                break
            below.append(other)
        title = found["title"] or found["more"]
        if below and title and below[0].lead == line.text:
            _bug(reader, line, title, below)


def _bug(reader: Reader, heading: Line, title: str | None, lines: list[Line]) -> None:
    data: dict[str, Any] = {}
    cited = {heading.number}
    fix: tuple[str, Line] | None = None
    commit: str | None = None
    hypotheses: list[dict[str, Any]] = []
    known: set[str] = set()
    status = "fixed" if _FIXED.search(heading.text) and not _NOT_FIXED.search(heading.text) else ""
    if title is None:
        # "Current Blocker": the first line says which.
        first = lines[0]
        title = (
            first.key
            if first.key and re.search(r"(?i)issue|error|problem|bug|block", first.key)
            else None
        )
        title = title and f"{title}: {first.value}"
    for line in lines:
        name = (
            next((name for name, e in _FIELD_OF_BUG if e.match(line.key)), None)
            if line.key
            else None
        )
        if line.kind == "item" and _CAUSES.match(line.lead):
            entry = _hypothesis(reader, line)
            if entry["id"] not in known:
                known.add(entry["id"])
                hypotheses.append(entry)
                reader.used.add(id(line))
        elif name == "status":
            status = _status(line.value) or status
        elif name == "change" and line.value:
            fix = line.value, line
            if line.key.lower() == "fixed":
                status = "fixed"
        elif name == "commit" and (sha := SHA.search(line.value)):
            commit = sha[0]
            cited.add(line.number)
        elif name == "minutes_lost":
            one = next((f for f in reader.value_figures(line) if f.is_time), None)
            if one is not None and "minutes_lost" not in data:
                data["minutes_lost"] = one.quantity
                reader.place(line, one)
                cited.add(line.number)
        elif name and line.value and name not in data:
            if name == "error_text" and not _ERROR.search(line.value):
                continue
            data[name] = line.value
            cited.add(line.number)
            reader.used.add(id(line))
    if not title or not (data or hypotheses or fix):
        return
    record = {
        "id": slug(title, "bug"),
        "title": title[:1000],
        **data,
        "status": status or "unknown",
    }
    if hypotheses:
        record["hypotheses"] = hypotheses
    item = reader.draft.add("bugs", record, cited | ({fix[1].number} if fix else set()))
    if fix and status == "fixed":
        change: dict[str, Any] = {"id": slug(f"{item.data['id']}-fix"),
                                  "bug": f"#bugs.{item.data['id']}", "change": fix[0]}  # fmt: skip
        if commit:
            change["commit"] = commit
        reader.draft.add("fixes", change, {fix[1].number})
        reader.used.add(id(fix[1]))


def _hypothesis(reader: Reader, line: Line) -> dict[str, Any]:
    """A suspected cause, with how likely it is and what came of it."""
    entry: dict[str, Any] = {"id": slug(line.text, "cause"), "statement": line.text}
    chance = next((one for one in reader.free(line) if one.unit == "%"), None)
    if chance is not None:
        entry["likelihood"] = chance.quantity
        reader.place(line, chance)
    if re.search(r"(?i)\b(?:confirmed|this was it)\b", line.text):
        entry["verdict"] = "confirmed"
    elif re.search(r"(?i)\b(?:ruled out|rejected|excluded)\b", line.text):
        entry["verdict"] = "rejected"
    entry["source"] = reader.draft.cite({line.number})
    return entry


def _status(text: str) -> str:
    if _FIXED.search(text) and not _NOT_FIXED.search(text):
        return "fixed"
    if re.search(r"(?i)\bwork(?:ed)?[ -]?around\b", text):
        return "worked-around"
    return "open" if re.search(r"(?i)\b(?:open|unresolved|not fixed)\b", text) else ""
