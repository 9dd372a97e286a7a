"""``kbtool session measurement``: figures that were measured by hand, a row a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base
from kbtool.cli.session.common import (
    ModelCommand,
    current,
    in_order,
    item_of,
    keep,
    refuse_prose,
    session_option,
    tell,
)

if TYPE_CHECKING:
    from kbtool.model.measurement import Measurement

KINDS = ("benchmark", "correctness", "memory", "build", "other")


class MeasurementCommand(ModelCommand):
    """The command that adds a row of a measurement."""

    model = "kbtool.model.measurement:Measurement"
    in_the_file = ModelCommand.in_the_file | {"validated"}


@click.command(
    cls=MeasurementCommand,
    epilog="""\b
Examples:
  kbtool session measurement "Latency of one call" ours=12.5us theirs='14 us' --case S=4096
  kbtool session measurement latency-of-one-call ours=25us theirs=27us --case S=8192
  kbtool session measurement "Errors" max_error=0.018 --kind correctness --verdict pass

\b
Each NAME=FIGURE is a column; the figures of one column have one unit. With the id of a measurement
of the session as TITLE, the row is added to it. kbtool measures what it can itself: run-recipe.""",
)
@click.argument("title", metavar="TITLE|ID")
@click.argument("figures", metavar="NAME=FIGURE...", nargs=-1, required=True)
@click.option("--case", "cases", metavar="FIELD=VALUE", multiple=True,
              help="A field of the case that was measured; repeatable.")  # fmt: skip
@click.option("--kind", type=click.Choice(KINDS), help="What was measured. Default: benchmark.")
@click.option("--verdict", type=click.Choice(["pass", "fail"]), help="The verdict on this case.")
@click.option("--note", metavar="TEXT", help="A remark on this case.")
@click.option("--row", metavar="ID", help="The name of the row. Default: made of the case.")
@click.option("--validated/--not-validated", default=None,
              help="Whether what was measured had passed validation before.")  # fmt: skip
@click.option("--id", metavar="ID", help="Its name for references; made of TITLE if not given.")
@session_option
@json_option
@click.pass_context
def measurement(
    ctx: click.Context, /, name: str | None, title: str, figures: tuple[str, ...],
    cases: tuple[str, ...], verdict: str | None, note: str | None, row: str | None,
    validated: bool | None, as_json: bool, **given: str | None,
) -> None:  # fmt: skip
    """Add figures that another tool measured: a row of a table, a column for each NAME."""
    from kbtool.model.measurement import Measurement, Row
    from kbtool.store.edit import add_inside, add_item
    from kbtool.store.sessions import slug

    base = knowledge_base(ctx)
    path, record = current(base, name)
    numbers = _figures(figures)
    case = _pairs("--case", cases)
    for text in (*case, *case.values(), title):
        refuse_prose("case", text)
    own = given["id"] or (title if _known(record.measurements, title) else slug(title, "measured"))
    known = _known(record.measurements, own)
    rows = [one.id for one in known.rows] if known else []
    line = item_of(Row, {
        "id": row or slug("-".join(f"{key}{value}" for key, value in case.items()),
                          f"row-{len(rows) + 1}"),
        "case": case or None,
        "values": {key: number for key, (number, _) in numbers.items()},
        "verdict": verdict,
        "note": note,
    })  # fmt: skip
    if known is not None:
        _refuse_other(known, numbers, {**given, "validated": validated, "id": None})
        after = add_inside(path, "measurements", known.id, "rows", line)
    else:
        fields = in_order(
            Measurement,
            given,
            id=own,
            title=title.strip(),
            kind=given["kind"] or "benchmark",
            validated=None if validated is None else str(validated).lower(),
            columns={key: {"title": key, "unit": unit} for key, (_, unit) in numbers.items()},
            rows=[line],
        )
        after = add_item(path, "measurements", item_of(Measurement, fields))
    keep(base, after)
    shown = ", ".join(f"{key} {number} {unit}".strip() for key, (number, unit) in numbers.items())
    said = f"measurement {own}, {line['id']}: {shown}"
    tell(after, f"measurements.{own}", line, as_json, said)


def _known(measurements: list[Measurement], id_: str) -> Measurement | None:
    return next((one for one in measurements if one.id == id_), None)


def _pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    from kbtool.model.errors import UsageError

    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {text}: write NAME=VALUE")
        if key.strip() in pairs:
            raise UsageError(f"{option} {key.strip()} is given twice; give each once")
        pairs[key.strip()] = value.strip()
    return pairs


def _figures(given: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Column → the number as written, and its unit."""
    from kbtool.model.base import Quantity
    from kbtool.model.errors import UsageError

    found = {}
    for name, text in _pairs("NAME=FIGURE", given).items():
        try:
            stated = Quantity(text)
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from None
        number = text.strip().removesuffix(stated.unit).strip()
        if not stated.is_single or stated.relation != "=":
            raise UsageError(f"{name}: {text!r} is no single figure, as 12.5us is")
        found[name] = (number, stated.unit)
    return found


def _refuse_other(
    known: Measurement, numbers: dict[str, tuple[str, str]], settings: dict[str, object]
) -> None:
    """Raise if the row does not fit the table that is there."""
    from kbtool.model.errors import UsageError

    said = [key for key, value in settings.items() if value is not None and key != "title"]
    if said:
        raise UsageError(
            f"measurement {known.id!r} is there: leave out --{said[0]}, or correct it in the file"
        )
    for key, (_, unit) in numbers.items():
        column = known.columns.get(key)
        if column is None:
            raise UsageError(
                f"measurement {known.id!r} has no column {key!r}; it has"
                f" {', '.join(known.columns)}. For another table choose another --id"
            )
        if column.unit != unit:
            raise UsageError(
                f"{key} of measurement {known.id!r} is in {column.unit or 'no unit'}, not in"
                f" {unit or 'none'}"
            )
