"""What stands under headings: bugs, decisions, plans, deliverables, lessons, commits, claims."""

from __future__ import annotations

import re
from typing import Any

from kbtool.logs import words
from kbtool.logs.blocks import Cell, Line, Table, sentences
from kbtool.logs.clock import days
from kbtool.logs.draft import Left, Names, slug
from kbtool.logs.figures import Stated, is_name
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
_SHA = re.compile(r"(?<![\w/.#-])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}(?![\w/.-])")
_ERROR = re.compile(r"(?i)\berror\b|undefined symbol|exception|traceback|segfault|fault|failed")


def claim(reader: Reader, part: Line | Cell, one: Stated, says: str, line: int) -> None:
    """Keep a figure as a claim: as stated, in the words of the log."""
    says = says.strip() or one.quantity
    reader.place(part, one)
    if (line, says, one.quantity) in reader.claimed:
        return
    reader.claimed.add((line, says, one.quantity))
    data = {"id": slug(says, "claim"), "says": says, "stated": one.quantity}
    reader.draft.add("claims", data, {line})


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
            entry: dict[str, Any] = {"id": slug(line.text, "cause"), "statement": line.text}
            chance = next((one for one in reader.free(line) if one.unit == "%"), None)
            if chance is not None:
                entry["likelihood"] = chance.quantity
                reader.place(line, chance)
            if re.search(r"(?i)\b(?:confirmed|this was it)\b", line.text):
                entry["verdict"] = "confirmed"
            elif re.search(r"(?i)\b(?:ruled out|rejected|excluded)\b", line.text):
                entry["verdict"] = "rejected"
            if entry["id"] not in known:
                known.add(entry["id"])
                entry["source"] = reader.draft.cite({line.number})
                hypotheses.append(entry)
                reader.used.add(id(line))
        elif name == "status":
            if _FIXED.search(line.value) and not _NOT_FIXED.search(line.value):
                status = "fixed"
            elif re.search(r"(?i)\bwork(?:ed)?[ -]?around\b", line.value):
                status = "worked-around"
            elif re.search(r"(?i)\b(?:open|unresolved|not fixed)\b", line.value):
                status = "open"
        elif name == "change" and line.value:
            fix = line.value, line
            if line.key.lower() == "fixed":
                status = "fixed"
        elif name == "commit" and (sha := _SHA.search(line.value)):
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


def read_commits(reader: Reader) -> None:
    """Commits: an id with its subject, or a subject alone."""
    last: Any = None
    for line in reader.blocks.lines:
        text = line.text
        about = re.search(
            r"(?i)\bcommit(?:s|ted)?\b|\bpushed\b|\bsha\b", f"{line.key} {text} {line.lead}"
        )
        role = words.role_of(line.headings)
        sha = _SHA.search(text) if about or role == "commit" or line.kind == "output" else None
        subject = None
        if line.kind == "output":
            made = re.match(
                r"\[(?P<branch>[\w./-]+)(?: \(root-commit\))? (?P<sha>[0-9a-f]{7,40})\] "
                r"(?P<subject>.+)",
                text,
            )
            if made is None:
                made = re.match(
                    r"(?P<sha>[0-9a-f]{7,40})(?P<branch>)\s+(?:\([^)]*\)\s+)?(?P<subject>\S.+)",
                    text,
                )
                made = made if made and _SHA.fullmatch(made["sha"]) else None
            sha = None
            if made:
                last = _commit(reader, line, made["sha"], made["subject"], made["branch"] or None)
        elif sha:
            rest = re.match(r"\s*(?:[:–—-]|\()\s*(.+?)\)?\Z", text[sha.end() :])
            alone = line.kind == "item" and not text[: sha.start()].strip()
            subject = rest[1] if rest else text[sha.end() :].strip() if alone else None
            last = _commit(reader, line, sha[0], subject, None)
        elif re.fullmatch(r"(?i)commit(?:ted)?(?: message)?", line.key) and line.value:
            last = _commit(reader, line, None, line.value, None)
        elif last is not None:
            pushed = re.match(r"(?i)pushed to (?:branch )?([\w./-]+)", text)
            if pushed and "branch" not in last.data:
                last.data["branch"] = pushed[1]
                last.lines.add(line.number)
                reader.used.add(id(line))
        _counts(reader, line, last)


def _commit(
    reader: Reader, line: Line, sha: str | None, title: str | None, branch: str | None
) -> Any:
    item = reader.commits.get(sha or "")
    if item is not None:
        item.lines.add(line.number)
        if title:
            item.data.setdefault("title", title[:1000])
        return item
    data: dict[str, Any] = {"id": slug(title or sha or "commit", "commit"), "sha": sha}
    if title:
        data["title"] = title[:1000]
    said = re.search(r"(?i)\b(?:committed|pushed|commits? made)\b", line.text)
    data["role"] = "made" if said or (line.kind == "output" and branch) else "mentioned"
    if branch:
        data["branch"] = branch
    reader.used.add(id(line))
    unknown = {} if sha else {"sha": "the log gives the subject line, not the id"}
    made = reader.draft.add("commits", data, {line.number}, **unknown)
    if sha:
        reader.commits[sha] = made
    return made


_COUNTS = {"insertions": re.compile(r"(\d+) insertions?"),
           "deletions": re.compile(r"(\d+) deletions?"),
           "files": re.compile(r"(\d+) files?\b")}  # fmt: skip


def _counts(reader: Reader, line: Line, commit: Any) -> None:
    """``868 insertions, 21 deletions (5 files)`` below a commit."""
    if commit is None or not re.search(r"\d insertions?\b|\d deletions?\b", line.text):
        return
    if line.number - max(commit.lines) > 4 or commit.data.keys() & _COUNTS.keys():
        return
    for name, expression in _COUNTS.items():
        found = expression.search(line.text)
        if found:
            commit.data[name] = found[1]
            commit.lines.add(line.number)
            for one in reader.free(line):
                if found.start() <= one.end - 1 and one.start < found.end():
                    reader.place(line, one)


def read_decisions(reader: Reader) -> None:
    """Options of a decision, with their figures, and which was chosen where one is named."""
    for headings, parts in reader.sections:
        heading = reader.heading_line(headings)
        lines = [part for part in parts if isinstance(part, Line)]
        options = []
        for line in lines:
            named = re.match(
                r"(?i)option\s+(\w{1,3})\b\s*(?:\([^)]*\))?\s*[:.–—-]\s*(.+)", line.text
            )
            if named:
                options.append((named[1].lower(), named[2], line))
        if (
            len(options) < 2
            or heading is None
            or len({name for name, *_ in options}) != len(options)
        ):
            continue
        made = []
        for name, title, line in options:
            entry: dict[str, Any] = {"id": name, "title": title[:1000]}
            figures: dict[str, str] = {}
            for one in reader.free(line):
                if not one.unit:
                    continue
                figures[_name(figures, one)] = one.quantity
                reader.place(line, one)
            if figures:
                entry["figures"] = figures
            entry["source"] = reader.draft.cite({line.number})
            reader.used.add(id(line))
            made.append(entry)
        cited = {heading.number, *(line.number for *_, line in options)}
        chosen, reason = None, None
        for line in lines:
            if re.match(
                r"(?i)(?:chosen|choice|decision|decided|user choice|selected|we chose)\b", line.text
            ):
                named_ = {
                    found.lower() for found in re.findall(r"(?i)\boption\s+(\w{1,3})\b", line.text)
                }
                if len(named_) == 1 and named_ <= {name for name, *_ in options}:
                    [chosen] = named_
                reason = line.value
                cited.add(line.number)
                reader.used.add(id(line))
        data: dict[str, Any] = {"id": slug(plain_title(headings[-1]), "decision"),
                                "question": plain_title(headings[-1]), "options": made,
                                "chosen": chosen}  # fmt: skip
        if reason:
            data["reason"] = reason
        unknown = {} if chosen else {"chosen": "the log names none of its options as the one taken"}
        reader.draft.add("decisions", data, cited, **unknown)


def _name(taken: dict[str, str], one: Stated) -> str:
    base = ("time" if one.is_time else "money" if one.is_money else "rate" if one.is_rate
            else "share" if one.unit == "%" else "factor" if one.unit == "×"
            else slug(one.name or one.unit, "figure"))  # fmt: skip
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name


def read_plans(reader: Reader) -> None:
    """What a later session is to do: steps with their times, what is expected, figures aimed at."""
    plans: dict[tuple[str, ...], list[tuple[tuple[str, ...], list[Line]]]] = {}
    for headings, parts in reader.sections:
        top = next(
            (at for at, h in enumerate(headings[1:], 2) if words.role_of_heading(h) == "plan"), 0
        )
        if top:
            lines = [part for part in parts if isinstance(part, Line)]
            plans.setdefault(headings[:top], []).append((headings, lines))
    for headings, sections in plans.items():
        heading = reader.heading_line(headings)
        if heading is not None and any(lines for _, lines in sections):
            _plan(reader, heading, headings, sections)


def _plan(
    reader: Reader,
    heading: Line,
    headings: tuple[str, ...],
    sections: list[tuple[tuple[str, ...], list[Line]]],
) -> None:
    title = plain_title(heading.text)
    data: dict[str, Any] = {"id": slug(title, "plan"), "title": title[:1000]}
    cited = {heading.number}
    named = re.search(r"\bN\+\d+[A-Za-z]?\b", heading.text) or words.SESSION.search(heading.text)
    if named:
        data["for_session"] = named[1] if named.re.groups else named[0]
    times = [one for one in reader.free(heading) if one.is_time]
    if len(times) == 1:
        data["target"] = times[0].quantity
        reader.place(heading, times[0])
    steps: list[dict[str, Any]] = []
    expected: list[str] = []
    figures: dict[str, str] = {}
    names, ids = Names(), Names()

    def keep(line: Line, one: Stated) -> None:
        figures[names.fresh(slug(line.text, "figure"))] = one.quantity
        cited.add(line.line_of(one.start))
        reader.place(line, one)

    def step(line: Line, text: str) -> None:
        title = plain_title(text)
        entry: dict[str, Any] = {"id": ids.fresh(slug(title, "step")), "title": title[:1000]}
        own = [one for one in reader.free(line) if one.is_time]
        in_brackets = [one for one in own if re.match(r"[^()]*\)", line.text[one.end :])]
        if len(in_brackets) == 1 or (len(own) == 1 and line.kind == "heading"):
            one = (in_brackets or own)[0]
            entry["target"] = one.quantity
            reader.place(line, one)
        steps.append(entry)
        cited.add(line.number)
        reader.used.add(id(line))

    for under, lines in sections:
        below = reader.heading_line(under)
        if (
            under != headings
            and below is not None
            and re.match(r"(?i)(?:phase|step|part|stage)\b", below.text)
        ):
            step(
                below, re.sub(r"(?i)^(?:phase|step|part|stage)\s*\w+\s*[:.–—-]\s*", "", below.text)
            )
        for line in lines:
            if re.match(r"(?i)expected|success", line.lead) and line.kind == "item":
                expected.append(line.text)
                cited.add(line.number)
                reader.used.add(id(line))
            elif (
                line.kind == "item"
                and line.depth == 1
                and line.ordinal
                and not re.search(r"(?i)prereq", under[-1])
            ) or re.match(r"(?i)(?:phase|step)\s*\d", line.text):
                step(line, re.sub(r"(?i)^(?:phase|step)\s*\w+\s*[:.–—-]\s*", "", line.text))
            elif re.match(r"(?i)expected", line.key) and line.value:
                expected.append(line.value)
                cited.add(line.number)
                reader.used.add(id(line))
            elif re.match(r"(?i)(?:time|duration|time estimate|estimated time|total)\Z", line.key):
                own = [one for one in reader.value_figures(line) if one.is_time]
                if len(own) == 1 and "target" not in data:
                    data["target"] = own[0].quantity
                    reader.place(line, own[0])
                    cited.add(line.number)
            elif re.match(r"(?i)(?:budget|cost|estimated cost|cost estimate)\Z", line.key):
                paid = [one for one in reader.value_figures(line) if one.is_money]
                if len(paid) == 1 and "budget" not in data:
                    data["budget"] = paid[0].quantity
                    reader.place(line, paid[0])
                    cited.add(line.number)
            for one in reader.free(line):
                keep(line, one)
    if not (steps or expected or figures or "target" in data):
        return
    if steps:
        data["steps"] = steps
    if expected:
        data["expected"] = expected
    if figures:
        data["figures"] = figures
    reader.draft.add("plans", data, cited)


def read_deliverables(reader: Reader) -> None:
    """What was made: each item of a list of deliverables, with its size."""
    for headings, parts in reader.sections:
        if words.role_of(headings) != "deliverable":
            continue
        for line in parts:
            if not isinstance(line, Line) or line.kind != "item" or line.depth != 1:
                continue
            name = re.match(r"[\w./+-]+\.\w{1,6}\b", line.text)
            title = name[0] if name else plain_title(line.text)
            data: dict[str, Any] = {"id": slug(title, "deliverable"), "title": title[:1000]}
            rest = line.text[name.end() :].strip(" :–—-") if name else ""
            if rest:
                data["about"] = rest
            sizes: dict[str, str] = {}
            for one in reader.free(line):
                if re.fullmatch(r"lines?", one.unit) or re.fullmatch(r"[kKMGT]?i?B", one.unit):
                    text = one.quantity if one.unit != "line" else f"{one.quantity}s"
                    sizes.setdefault("lines" if one.unit.startswith("line") else "bytes", text)
                    reader.place(line, one)
            if sizes:
                data["sizes"] = sizes
            if line.sign == "no":
                data["state"] = "unknown"
            reader.draft.add("deliverables", data, {line.number})
            reader.used.add(id(line))


def read_lessons(reader: Reader) -> None:
    """What was learned: each item of such a list, in its own words."""
    for headings, parts in reader.sections:
        if words.role_of(headings) != "lessons":
            continue
        for line in parts:
            if (
                isinstance(line, Line)
                and line.kind in {"item", "text"}
                and line.text
                and line.depth <= 1
            ):
                if line.text.endswith(":"):
                    continue
                reader.draft.add("lessons", {"text": line.text}, {line.number})
                reader.used.add(id(line))


def read_claims(reader: Reader) -> None:
    """Every figure that has no place yet is a claim; every number without a unit is listed."""
    from kbtool.logs.tables import claims_of

    told = {left.line for left in reader.draft.left}
    for part in reader.blocks.parts:
        if isinstance(part, Table):
            claims_of(reader, part)
            for row in part.rows:
                for cell in row:
                    _bare_numbers(reader, cell, cell.line, told)
            continue
        spans = list(sentences(part))
        for one in reader.free(part):
            start, end = next((s for s in spans if s[0] <= one.start < s[1]), (0, len(part.text)))
            says = part.text[start:end]
            if part.kind == "item" and part.lead and len(part.lead) < 80:
                says = f"{part.lead.rstrip(': ')}: {says}"
            claim(reader, part, one, says, part.line_of(one.start))
        _bare_numbers(reader, part, part.number, told)


_UNPLACED_TIME = re.compile(
    r"(?<![\w:.])(?:\d{1,2}:\d{2}(?::\d{2})?(?:\s?[AaPp]\.?[Mm]\b)?|\d{1,2}/\d{1,2}/\d{4})(?![\w:])"
)
_NUMBER = re.compile(r"(?<![\w.,:/^#@+=-])\d[\d.,]*(?![\w:/-])")


def _bare_numbers(reader: Reader, part: Line | Cell, line: int, told: set[int]) -> None:
    if id(part) in reader.whole:
        return
    found = reader.figures(part)
    numbers = []
    dates = days(part.text)
    for number in _NUMBER.finditer(part.text):
        start = number.start()
        if any(one.start <= start < one.end for one in found):
            continue
        if any(first <= start < last for first, last, _ in dates) or is_name(part.text, start):
            continue
        numbers.append(number[0].rstrip(".,"))
    if isinstance(part, Line):
        for time in _UNPLACED_TIME.finditer(part.text):
            if part.number in told:
                break
            reader.draft.left.append(
                Left(
                    part.line_of(time.start()),
                    part.text[:500],
                    f"{time[0].strip()}: a date or time",
                )
            )
    if numbers:
        what = "a number without a unit" if len(numbers) == 1 else "numbers without a unit"
        where = part.line_of(0) if isinstance(part, Line) else line
        reader.draft.left.append(Left(where, part.text[:500], f"{', '.join(numbers)}: {what}"))
