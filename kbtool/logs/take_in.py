"""Read a report, draft its session, check the draft, and create it in one step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kbtool.checks.examine import examine
from kbtool.checks.text_rules import TEXT_RULES
from kbtool.logs.draft import Draft, Left, Span, not_placed, slug, write
from kbtool.logs.read import Drafted, draft_of
from kbtool.model.errors import RecordError, UsageError
from kbtool.model.finding import Finding
from kbtool.store.document import DocumentError, read_bytes
from kbtool.store.read import MAX_BYTES as MAX_RECORD_BYTES
from kbtool.store.tree import KnowledgeBase
from kbtool.store.write import new_folder

MAX_BYTES = 1 << 20
"""Size limit of a report; what a session prints is no report."""
MAX_ENTRIES = 5_000
"""So many entries a draft has at most: nobody would read more beside the log."""
_ROUNDS = 8
"""How often entries that `check` refuses are taken out of a draft."""


@dataclass(frozen=True)
class TakenIn:
    """A drafted session."""

    id: str
    path: str | None
    """Its record, from the root of the knowledge base if it is in it; ``None`` of a dry run."""
    text: str
    """The record."""
    counts: dict[str, int]
    """List of the record → how many entries it has."""
    left: list[Left]
    """What was not placed."""
    uncited: list[int]
    """Lines of text that nothing in the record cites."""
    label: str


def take_in(
    base: KnowledgeBase,
    log: Path,
    *,
    name: str | None = None,
    label: str | None = None,
    into: Path | None = None,
    dry_run: bool = False,
) -> TakenIn:
    """Draft a session from a report.

    Args:
        base: the knowledge base.
        log: the report.
        name: the session's id, or the part of it after the date. Default: made of the label.
        label: its short name. Default: as the report states it, else the name in its id.
        into: the folder that the session's folder is made in. Default: the sessions of the
            knowledge base.
        dry_run: write nothing.

    Raises:
        UsageError: the report cannot be read, or the name or the label cannot be used.
        RecordError: the report holds what no file of a knowledge base may hold.
        OSError: a file cannot be written; nothing is left behind.
    """
    raw = _read(log)
    text = raw.decode("utf-8")
    _refuse_private(log.name, text)
    file = _file_name(log)
    drafted = draft_of(text, _key(name, label, log))
    id_ = _id(base, drafted, name, label, log)
    entries = sum(map(len, drafted.draft.lists.values()))
    if entries > MAX_ENTRIES:
        raise UsageError(
            f"the draft would have {entries:,} entries, more than {MAX_ENTRIES:,}: this is no "
            f"report"
            " that a person reads beside it; import it in parts"
        )
    given = label or drafted.label or re.sub(r"^(\d{4}-\d{2}-\d{2}|undated)-", "", id_)
    _refuse_label(base, given, stated=label is None)
    head = {"id": id_, "label": given, "title": drafted.title or given, "origin": "log",
            "status": drafted.status}  # fmt: skip
    source = {"file": file, "lines": str(drafted.lines), "about": f"The log, in files/{file}"}
    record = _checked(drafted.draft, head, source)
    counts = {key: len(items) for key, items in drafted.draft.lists.items() if items}
    left = sorted(drafted.draft.left)
    if dry_run:
        return TakenIn(id_, None, record, counts, left, sorted(drafted.uncited), given)

    def files(folder: str) -> dict[str, bytes]:
        own = _checked(drafted.draft, head | {"id": folder}, source) if folder != id_ else record
        made = {"session.yaml": own.encode(), f"files/{file}": raw}
        listed = not_placed(drafted.draft, file, drafted.uncited, drafted.code_lines)
        made["files/not-placed.md"] = listed.encode()
        return made

    folder = new_folder(into or base.root / "sessions", id_, files)
    record_path = folder / "session.yaml"
    inside = record_path.is_relative_to(base.root)
    path = base.shown(record_path) if inside else str(record_path)
    return TakenIn(folder.name, path, record, counts, left, sorted(drafted.uncited), given)


def _read(log: Path) -> bytes:
    try:
        raw = read_bytes(log, str(log), MAX_BYTES)
        text = raw.decode("utf-8")
    except DocumentError as error:
        problem = error.finding.message
        if "has at most" in problem:
            problem = (
                f"has more than {MAX_BYTES:,} bytes: a log is a report, not all that was printed"
            )
        raise UsageError(f"{log} {problem}") from None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(f"{log} is not UTF-8 text (line {line}); save it as UTF-8") from None
    if not re.search(r"\w", text):
        raise UsageError(f"{log} is empty; there is nothing to draft from")
    return raw


def _refuse_private(name: str, text: str) -> None:
    """A knowledge base holds no addresses, paths or secrets: the report is kept in it."""
    found = [finding for rule in TEXT_RULES for finding in rule(name, text)]
    if found:
        more = f"\nand {len(found) - 10} more" if len(found) > 10 else ""
        said = "\n".join(f"{one.path}:{one.line}: {_said(one)}" for one in sorted(found)[:10])
        raise RecordError(
            f"the log is kept beside the session, and it holds what no record may hold; take it out"
            f" and import it again\n{said}{more}"
        )


def _said(finding: Finding) -> str:
    return finding.message.replace("write it relative to the knowledge base, or with",
                                   "write it relative, or with")  # fmt: skip


def _file_name(log: Path) -> str:
    """The name under which the report is kept."""
    stem = re.sub(r"[^\w.-]+", "-", log.stem).strip("-.") or "log"
    suffix = log.suffix if re.fullmatch(r"\.\w{1,10}", log.suffix) else ".md"
    if f"{stem}{suffix}" == "not-placed.md":
        stem = "log"
    return f"{stem[:100]}{suffix}"


def _key(name: str | None, label: str | None, log: Path) -> str:
    """The report's name among the sources: that of a citation, so short."""
    return f"{slug(label or name or log.stem, 'the')[:30].strip('-') or 'the'}-log"


def _id(
    base: KnowledgeBase, drafted: Drafted, name: str | None, label: str | None, log: Path
) -> str:
    day = str(drafted.day) if drafted.day else "undated"
    if name is not None:
        whole = re.match(r"(\d{4}-\d{2}-\d{2}|undated)-", name)
        id_ = name if whole else f"{day}-{name}"
    else:
        id_ = f"{day}-{slug(label or drafted.label or drafted.title, slug(log.stem, 'log'))}"
    if drafted.day is None and id_.startswith("undated-"):
        drafted.draft.left.append(
            Left(1, id_, "the day of the session: the log names none, or several")
        )
    from kbtool.model.session import Session

    try:
        Session.model_validate({"id": id_, "label": "x", "title": "x", "origin": "log",
                                "status": "unknown"})  # fmt: skip
    except ValueError:
        raise UsageError(
            f"{id_!r} is no id of a session; give a name of small letters, digits and hyphens with"
            " --id, or a whole id: 2025-01-31-first-build"
        ) from None
    return id_


def _refuse_label(base: KnowledgeBase, label: str, *, stated: bool) -> None:
    from kbtool.model.session import Session

    try:
        Session.model_validate({"id": "undated-x", "label": label, "title": "x", "origin": "log",
                                "status": "unknown"})  # fmt: skip
    except ValueError as error:
        said = str(error).splitlines()[2].strip().removeprefix("Value error, ")
        problem = said.partition(" [type=")[0]
        raise UsageError(f"{problem}; give another one with --label") from None
    for entry in base.sessions.values():
        if entry.record.label == label:
            where = "the log names its session" if stated else "--label gives"
            raise UsageError(
                f"{where} {label}, and {entry.record.id} has that label already: is it in already?"
                " If not, give another one with --label"
            )


def _checked(draft: Draft, head: dict[str, str], source: dict[str, str]) -> str:
    """The record, without the entries that `check` would refuse: these are listed as not placed."""
    for _ in range(_ROUNDS):
        text, spans = write(draft, head, source)
        if len(text.encode()) > MAX_RECORD_BYTES:
            raise UsageError(
                f"the draft would have more than {MAX_RECORD_BYTES:,} bytes, which no record may"
                " have; import the log in parts"
            )
        findings = examine(f"sessions/{head['id']}/session.yaml", "session", text.encode()).findings
        if not findings:
            return text
        _take_out(draft, findings, spans)
    raise RecordError(f"no sound record can be drafted from this log: {findings[0]}")


def _take_out(draft: Draft, findings: list[Finding], spans: list[Span]) -> None:
    """Remove what the findings are about."""
    out: dict[str, set[int]] = {}
    for finding in findings:
        place = next((span for span in spans if span[0] <= finding.line <= span[1]), None)
        if place is None or place[2] in {"id", "label", "title", "origin", "sources", "status"}:
            raise RecordError(f"no sound record can be drafted from this log: {finding}")
        _, _, key, entry = place
        if entry is not None:
            out.setdefault(key, set()).add(entry)
        elif key in draft.fields:
            why = f"`kbtool check` refuses it as {key}: {finding.message}"
            lines = draft.cites.get(key) or {1}
            draft.left.append(Left(min(lines), draft.fields[key] or key, why))
            del draft.fields[key]
            draft.unknown.pop(key, None)
        elif key == "environment":
            draft.environment.clear()
            draft.unknown = {
                k: v for k, v in draft.unknown.items() if not k.startswith("environment")
            }
        elif key == "repository":
            draft.repository.clear()
        else:
            raise RecordError(f"no sound record can be drafted from this log: {finding}")
    for key, places in out.items():
        for entry in sorted(places, reverse=True):
            item = draft.lists[key].pop(entry)
            why = next((f.message for f in findings if f.message), "")
            named = ("says", "title", "text", "question", "change", "kind")
            said = next((str(item.data[name]) for name in named if name in item.data), key)
            draft.left.append(
                Left(min(item.lines), said, f"`kbtool check` refuses it in {key}: {why}")
            )
    # A fix whose bug is gone goes too: its reference leads nowhere, and the next round says so.
