"""The tools that write into a session. They call what ``kbtool session`` calls."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kbtool.model.base import Output
from kbtool.store.dump import Data
from kbtool.store.tree import KnowledgeBase

Session = Annotated[str | None, Field(description="Its id or label. Default: the running session.")]
Text = Annotated[str, Field(min_length=1, max_length=20_000)]


class Written(Output):
    """What was written."""

    session: str
    """The id of the session."""
    path: str
    """The file that was written."""
    reference: str
    """What get_record takes."""
    written: dict[str, object]
    """What stands in the record now."""


def add_note(base: KnowledgeBase, text: Text, session: Session = None) -> Written:
    """Add a note, with the time, to the notes of the running session: what was tried, what was
    seen, what is believed."""
    from kbtool.cli.session.lines import noted

    record, line = noted(base, session, text)
    return Written(
        session=record.id, path=f"sessions/{record.id}/notes.md", reference=f"{record.id}#notes",
        written={"note": line},
    )  # fmt: skip


def add_bug(
    base: KnowledgeBase,
    title: Annotated[str, Field(description="The fault in a few words.", max_length=1000)],
    symptom: Annotated[str | None, Field(description="What was seen.")] = None,
    cause: Annotated[str | None, Field(description="Why, if it is known.")] = None,
    component: Annotated[str | None, Field(description="The part at fault.")] = None,
    lost: Annotated[str | None, Field(description="Time spent on it: '40 min'.")] = None,
    again: Annotated[
        str | None, Field(description="The earlier bug that recurs: SESSION#bugs.ID.")
    ] = None,
    output: Annotated[
        str | None,
        Field(
            description="What the tool printed; the lines that say what is wrong are kept.",
            max_length=2_000_000,
        ),
    ] = None,
    id: Annotated[str | None, Field(description="Default: made of the title.")] = None,
    session: Session = None,
) -> Written:
    """Add a bug to the running session: a fault that was found in it. It stays open until add_fix
    records its fix. Search first: a fault that was met before is given as `again`."""
    from kbtool.cli.session.faults import NoErrorLines, bug_added
    from kbtool.model.errors import UsageError

    given = {
        "title": title, "symptom": symptom, "cause": cause, "component": component,
        "minutes_lost": lost, "recurrence_of": again, "id": id,
    }  # fmt: skip
    blocks = None if output is None else [output.encode("utf-8", "replace")]
    try:
        record, item = bug_added(base, session, given, blocks)
    except NoErrorLines:
        raise UsageError("output: no line of it reports an error; leave it out") from None
    return _written(record.id, f"bugs.{item['id']}", item)


def add_fix(
    base: KnowledgeBase,
    bug: Annotated[str, Field(description="The id of a bug, or SESSION#bugs.ID.")],
    change: Annotated[
        str | None, Field(description="What was changed. Default: the subject of the commit.")
    ] = None,
    commit: Annotated[
        str | None, Field(description="Default: HEAD, if made in this session. 'none' for none.")
    ] = None,
    confirmed: Annotated[
        bool | None,
        Field(description="Whether a test showed that the bug is gone. Never guess it."),
    ] = None,
    shown_by: Annotated[
        list[str] | None, Field(description="The steps that showed it: RUN#steps.validate.")
    ] = None,
    note: Annotated[str | None, Field(description="How it was shown, or what remained.")] = None,
    session: Session = None,
) -> Written:
    """Add the fix of a bug to the running session. `confirmed` is refused if the newest validation
    of the session found a kernel wrong."""
    from kbtool.cli.session.faults import fix_added

    record, item = fix_added(
        base, session, bug, change, commit, confirmed, tuple(shown_by or ()), note
    )
    return _written(record.id, str(item["bug"]).removeprefix("#"), item)


class ColumnGiven(Output):
    """A column of figures."""

    title: str
    """What is measured, for which implementation."""
    unit: str
    """The unit of every figure in it; empty for a pure number."""


class RowGiven(Output):
    """A case."""

    case: dict[str, str]
    """The shape and the settings: {"B": "1", "S": "128"}."""
    values: dict[str, str | int | float]
    """Column → figure. Leave out what was not measured."""
    id: str | None = None
    """A name for references. Default: case1, case2, …"""
    verdict: Literal["pass", "fail"] | None = None
    note: str | None = None


def add_measurement(
    base: KnowledgeBase,
    title: Annotated[str, Field(description="What the table shows.", max_length=1000)],
    kind: Literal["benchmark", "correctness", "memory", "build", "other"],
    columns: Annotated[dict[str, ColumnGiven], Field(description="Name → column.", min_length=1)],
    rows: Annotated[list[RowGiven], Field(min_length=1, max_length=500)],
    about: Annotated[
        str | None, Field(description="Element type, statistic, baseline, card, tool.")
    ] = None,
    artifact: Annotated[str | None, Field(description="What was measured: a commit.")] = None,
    validated: Annotated[
        bool | None, Field(description="Whether it had passed validation before.")
    ] = None,
    subject: Annotated[
        str | None, Field(description="The column with the times of what was worked on.")
    ] = None,
    id: Annotated[str | None, Field(description="Default: made of the title.")] = None,
    session: Session = None,
) -> Written:
    """Add a table of figures that another tool measured to the running session. What kbtool can
    measure itself is not typed: run_recipe writes a run. Give figures as they were printed."""
    from kbtool.cli.session.common import OPTION, item_of, path_of, refuse_secrets
    from kbtool.model.measurement import Measurement
    from kbtool.store.edit import add_item
    from kbtool.store.sessions import slug

    path, record = path_of(base, session, "running", OPTION)
    lines: list[Data] = [
        _known({
            "id": row.id or f"case{number}",
            "case": row.case or None,
            "values": {name: str(value) for name, value in row.values.items()} or None,
            "verdict": row.verdict,
            "note": row.note,
        })
        for number, row in enumerate(rows, 1)
    ]  # fmt: skip
    given: dict[str, Data] = {
        "id": id or slug(title, "measurement"),
        "title": title.strip(),
        "kind": kind,
        "about": about,
        "artifact": artifact,
        "validated": None if validated is None else str(validated).lower(),
        "subject": subject,
        "columns": {
            name: {"title": column.title, "unit": column.unit} for name, column in columns.items()
        },
        "rows": lines,
    }
    refuse_secrets(*_texts(given))
    item = item_of(Measurement, given)
    add_item(path, "measurements", item)
    return _written(record.id, f"measurements.{item['id']}", item)


def _known(fields: dict[str, Data]) -> dict[str, Data]:
    return {name: value for name, value in fields.items() if value is not None}


def _texts(data: Data) -> list[str]:
    if isinstance(data, str):
        return [data]
    if isinstance(data, dict):
        return [text for key, one in data.items() for text in (key, *_texts(one))]
    return [text for one in data or () for text in _texts(one)]


def _written(session: str, place: str, item: object) -> Written:
    reference = place if "#" in place else f"{session}#{place}"
    return Written(
        session=session, path=f"sessions/{session}/session.yaml", reference=reference,
        written=dict(item),  # type: ignore[call-overload]
    )  # fmt: skip
