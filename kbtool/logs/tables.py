"""Tables of a report: steps, costs, and measurements with columns and units."""

from __future__ import annotations

import re
from typing import Any

from kbtool.logs import words
from kbtool.logs.blocks import Cell, Line, Table
from kbtool.logs.draft import Names, slug
from kbtool.logs.figures import DEVIATION, Stated, unit_of
from kbtool.logs.grammar import METRIC, NOUNS
from kbtool.logs.numerals import whole
from kbtool.logs.reader import Reader, plain_title

_LABEL = re.compile(
    r"(?i)(?:#|step|task|phase|activity|what|item|category|resource|name|kind|service)s?\b"
)
_TARGET = re.compile(r"(?i)\b(?:target|plan(?:ned)?|budget(?:ed)?|estimated?|expected)\b")
_ACTUAL = re.compile(r"(?i)\b(?:actual(?:ly)?|took|taken|real)\b")
_MONEY = re.compile(r"(?i)\b(?:costs?|amount|price|total|spend|spent|paid)\b")
_RATE = re.compile(r"(?i)\b(?:rate|per hour|hourly)\b|/h\b|/hr\b")
_TIME = re.compile(r"(?i)\b(?:duration|time|hours)\b")
_SESSION = re.compile(r"(?i)(?:session|sitting|run)s?\b")
_STATUS = re.compile(r"(?i)\b(?:status|result|verdict|pass|ok|correct\w*)\b")
_UNITLESS = re.compile(rf"(?i)\b{METRIC}\b|{DEVIATION}")


def read_tables(reader: Reader) -> None:
    """Place the rows of each table of which the columns say what they are."""
    for part in reader.blocks.parts:
        if not isinstance(part, Table) or len(part.header) < 2:
            continue
        role = words.role_of(part.headings)
        if role == "compare" or any(_SESSION.match(title) for title in part.header[:1]):
            continue  # of other sessions: their figures are claims
        if _steps(reader, part):
            continue
        if role in {"plan", "expected", "decision", "lessons"}:
            continue
        if _costs(reader, part):
            continue
        _measurement(reader, part)


def _column(table: Table, words_: re.Pattern[str]) -> int | None:
    found = [at for at, title in enumerate(table.header) if words_.search(title)]
    return found[0] if len(found) == 1 else None


def _whole_rows(table: Table) -> list[tuple[Cell, ...]]:
    """The rows with a cell for each column; a row that has fewer says not of which they are."""
    return [row for row in table.rows if len(row) == len(table.header)]


def _leading(reader: Reader, cell: Cell) -> Stated | None:
    """The figure that a cell begins with."""
    found = reader.free(cell)
    if found and not re.search(r"\w", cell.text[: found[0].start]):
        return found[0]
    return None


def _steps(reader: Reader, table: Table) -> bool:
    target, actual = _column(table, _TARGET), _column(table, _ACTUAL)
    if target is None or actual is None or target == actual:
        return False
    names = [at for at, title in enumerate(table.header) if _LABEL.match(title)]
    rows = []
    for row in _whole_rows(table):
        took, planned = _leading(reader, row[actual]), _leading(reader, row[target])
        title = ": ".join(row[at].text for at in names if row[at].text)
        if took is None or not took.is_time or not title or words.TOTAL.search(title):
            continue
        rows.append((row, took, planned if planned and planned.is_time else None, title))
    if not names or not rows:
        return False
    for row, took, planned, title in rows:
        sign = next((cell.sign for cell in reversed(row) if cell.sign), "")
        if any(re.search(r"(?i)\bskipped\b", cell.text) for cell in row):
            status = "skipped"
        else:
            status = {"yes": "done", "no": "failed"}.get(sign, "unknown")
        data: dict[str, Any] = {"id": slug(title, "step"), "title": title[:1000]}
        if planned is not None:
            data["target"] = planned.quantity
            reader.place(row[target], planned)
        data |= {"actual": took.quantity, "status": status}
        reader.place(row[actual], took)
        reader.whole |= {id(row[at]) for at in names}
        reader.draft.add("steps", data, {row[0].line})
    return True


def _costs(reader: Reader, table: Table) -> bool:
    money = _column(table, _MONEY)
    if money is None or money == 0:
        return False
    rate, time = _column(table, _RATE), _column(table, _TIME)
    rows = []
    for row in _whole_rows(table):
        label = row[0].text
        kind = words.kind_of(label)
        if kind is None or words.TOTAL.search(label) or reader.of_another(label):
            continue
        amount = _leading(reader, row[money])
        if amount is not None and not (amount.is_money and amount.number):
            continue
        if amount is None and not words.MISSING.match(row[money].text):
            continue
        rows.append((row, kind, amount))
    if not any(amount is not None for _, _, amount in rows):
        return False
    if words.HYPOTHETICAL.search(" ".join([*table.headings[1:], table.lead, *table.header])):
        return False
    known = {item.data["kind"]: item for item in reader.draft.lists["costs"]}
    for row, kind, amount in rows:
        same = known.get(kind)
        if (
            same is not None
            and amount is not None
            and (same.data["amount"] == amount.number and same.data["currency"] == amount.unit)
        ):
            item = same  # stated before the table too
            item.lines.add(row[0].line)
            reader.costs[id(item)].append((row[money], amount))
        elif same is not None:
            _contradicted(reader, same, row, amount)
            continue
        else:
            data: dict[str, Any] = {"kind": kind, "id": slug(row[0].text, kind)}
            data["amount"] = amount.number if amount else None
            data |= {"currency": amount.unit if amount else "USD", "basis": "claimed"}
            paid = [one for one in reader.free(row[0]) if one.is_time]
            if len(paid) == 1 and time is None:
                data["duration"] = paid[0].quantity
                reader.place(row[0], paid[0])
            if row[0].text.lower() != kind:
                data["note"] = row[0].text
            item = reader.draft.add("costs", data, {row[0].line})
            reader.costs[id(item)] = [(row[money], amount)] if amount else []
            if amount is None:
                item.unknown["amount"] = f"the log says {row[money].text or 'nothing'!r}"
        if amount is not None:
            reader.place(row[money], amount)
        for at, name in ((rate, "rate"), (time, "duration")):
            one = _leading(reader, row[at]) if at is not None and at != money else None
            if one is not None and (one.is_rate if name == "rate" else one.is_time):
                item.data[name] = one.quantity
                reader.place(row[at], one)  # type: ignore[index]
    return True


def _contradicted(reader: Reader, item: Any, row: tuple[Cell, ...], amount: Stated | None) -> None:
    if amount is None:
        return
    said = item.unknown.get("amount") or (
        f"the log states {item.data['amount']} {item.data['currency']} (line {min(item.lines)})"
    )
    item.lines.add(row[0].line)
    item.unknown["amount"] = f"{said}, {amount.quantity} (line {row[0].line})"
    item.data["amount"] = None
    for part, stated in reader.costs.pop(id(item), []):
        reader.placed.discard((id(part), stated.start))  # it becomes a claim, as the other one


_LAST_WORD = re.compile(
    r"[\s_](ns|us|µs|μs|ms|%|[kKMGT](?:i?B|o)(?:/s)?|[GT]FLOPS?(?:/s)?|[MG]Hz)\Z"
)
"""A unit that no other word is: "before us", "gain %"."""
_FIRST_WORD = re.compile(
    r"(ns|us|µs|μs|ms|%|[kKMGT]i?B(?:/s)?|[GT]FLOPS?(?:/s)?)(?=\s*(?:\(|,|\Z))"
)
"""The same before what is said of it: "ms (median)"."""


_FACTOR = re.compile(
    r"(?i)(?:speed[\s_-]?up|fa[ck]tor|ratio|beschleunigung|facteur|accélération|aceleración|fattore"
    r"|versnelling|ускорение"
    r"|加速比|倍率)(?:[\s_-]*[(\[]?\s?[x×]\s?[)\]]?)?"
)
"""A title of numbers that compare two figures."""


_PLAIN_UNIT = re.compile(
    r"ns|us|ms|s|min|h|[kKMGT]?i?B(?:/s)?|%|×|[kMGTP]?FLOPS?(?:/s)?|\w+/s|[kMG]?Hz|W|[km]?J"
)
_TALLY = re.compile(
    r"(?i)(?:# ?(?:of )?|no\. (?:of )?|number of |total )?(iterations|iters|samples|runs"
    r"|rounds|calls|launches|failures|errors|mismatches|registers|spills|cycles|instructions|passed|failed|skipped"
    r"|warnings)"
)
"""A title of whole numbers: what was counted, and not what was set."""
_COUNTED = re.compile(
    rf"(?i)(?:# ?|no\. (?:of )?|number of |total )?({'|'.join(NOUNS)})(?: (?:per|a) \w+)?"
)


def _unit_of_title(title: str) -> str | None:
    """The unit that a column names in its title: ``Latency (ms)``, ``time [us]``."""
    found = re.search(r"(?:[(\[,]|^)\s*(?:in )?([^\s()\[\],]+)\s*[)\]]?$", title)
    last = _LAST_WORD.search(title) or _FIRST_WORD.match(title)
    if _FACTOR.fullmatch(title):
        return "×"
    if last:
        return unit_of(last[1])
    if found:
        unit = unit_of(found[1])
        if _PLAIN_UNIT.fullmatch(unit):
            return unit
    return None


def _measurement(reader: Reader, table: Table) -> None:
    rows = [row for row in _whole_rows(table) if not words.TOTAL.search(row[0].text)
            and not reader.of_another(row[0].text)]  # fmt: skip
    if not rows:
        return
    columns: dict[int, str] = {}
    shared = _shared_unit(table)
    for at, title in enumerate(table.header):
        if at == 0 or _TARGET.search(title):
            continue
        unit = _unit_of_column(reader, title, [row[at] for row in rows], shared)
        if unit is not None:
            columns[at] = unit
    if not columns:
        return
    names: dict[int, str] = {}
    fresh = Names()
    for at in columns:
        names[at] = fresh.fresh(slug(re.sub(r"\s*[(\[].*$", "", table.header[at]), "figure"))
    made, seen = [], Names()
    for row in rows:
        values = {}
        for at, unit in columns.items():
            number = _number(reader, row[at], unit)
            if number is not None:
                values[names[at]] = number
        if not values:
            continue
        case = {}
        for at, title in enumerate(table.header):
            text = row[at].text
            if (
                at not in columns
                and text
                and not _STATUS.search(title)
                and not reader.free(row[at])
            ):
                case[title or f"column {at + 1}"] = text
                reader.whole.add(id(row[at]))
        name = seen.fresh(slug(" ".join(case.values()) or "row", "row"))
        entry: dict[str, Any] = {"id": name, "case": case, "values": values}
        sign = next((cell.sign for at, cell in enumerate(row) if cell.sign
                     and _STATUS.search(table.header[at])), "")  # fmt: skip
        if sign:
            entry["verdict"] = {"yes": "pass", "no": "fail"}[sign]
        made.append(entry)
    if not made:
        return
    heading = plain_title(table.headings[-1]) if table.headings else "Table"
    data = {
        "id": slug(heading, "table"),
        "title": heading[:1000],
        "kind": _kind(table, columns),
        "columns": {names[at]: {"title": table.header[at] or "Figure", "unit": unit}
                    for at, unit in columns.items()},
        "rows": made,
    }  # fmt: skip
    reader.draft.add("measurements", data, {table.number, *(row[0].line for row in rows)})


_UNITS = re.compile(r"(?i)(?:metric )?units?")
_VALUE = re.compile(r"(?i)(?:metric )?(?:value|result|avg|average|mean|median)")
_IN_FULL = {"usecond": "us", "msecond": "ms", "nsecond": "ns", "second": "s", "ghz": "GHz",
            "mhz": "MHz", "kbyte": "KB", "mbyte": "MB", "gbyte": "GB", "byte": "B",
            "gbyte/second": "GB/s", "gbyte/s": "GB/s", "tbyte/second": "TB/s",
            "tbyte/s": "TB/s", "cycle": "cycles", "register/thread": "registers"}  # fmt: skip
"""Units as Nsight Compute writes them."""


def units_beside(table: Table) -> tuple[int, int] | None:
    """The columns of a table that holds values and, in a column of their own, their units."""
    units = [at for at, title in enumerate(table.header) if _UNITS.fullmatch(title)]
    values = [at for at, title in enumerate(table.header) if _VALUE.fullmatch(title)]
    return (units[0], values[0]) if len(units) == len(values) == 1 else None


def unit_beside(text: str) -> str | None:
    """The unit that a cell names."""
    unit = _IN_FULL.get(text.lower()) or unit_of(text)
    return unit if _PLAIN_UNIT.fullmatch(unit) or unit in NOUNS else None


def unit_of_row(label: str) -> str | None:
    """The unit of the numbers of a row that its label names: ``Latency (ms)``, ``Tests``."""
    counted = _COUNTED.fullmatch(label)
    return unit_of(counted[1]) if counted else _unit_of_title(label)


_SHARED = re.compile(
    r"(?i)(?:\bin|\()\s?(ns|us|µs|ms|s|nanoseconds|microseconds|milliseconds|seconds)\b\)?[.:]?"
    r"(?: unless .*)?\Z"
)
_OF_TIMES = re.compile(
    r"(?i)(?:min|max|mean|avg|average|median|std ?dev|iqr|p\d\d|best|worst|time|latency|before"
    r"|after|old|new|baseline|ours|reference)\b"
)


def _shared_unit(table: Table) -> str | None:
    """The unit of times that stands in the first title, "Name (time in us)", or above the table."""
    found = _SHARED.search(table.header[0]) or _SHARED.search(table.lead)
    return unit_of(found[1].lower()) if found else None


def _unit_of_column(
    reader: Reader, title: str, cells: list[Cell], shared: str | None
) -> str | None:
    """The unit of all figures of a column; ``None`` if it holds none, or several."""
    units, numbers = set(), 0
    for cell in cells:
        if words.MISSING.match(cell.text):
            continue
        first = _leading(reader, cell)
        if first is not None and first.number and not first.is_money and not first.is_rate:
            units.add(first.unit)
        elif bare(reader, cell) is not None:
            numbers += 1
        elif first is None:
            return None
    named = _unit_of_title(title)
    if not units and numbers:
        if named is not None:
            return named
        counted = _TALLY.fullmatch(title)
        if counted and all((bare(reader, cell) or "0").isdecimal() for cell in cells):
            return unit_of(counted[1])
        if shared and _OF_TIMES.match(title) and not _UNITLESS.search(title):
            return shared
        return "" if _UNITLESS.search(title) else None
    if units == {"×"} and (counted := _TALLY.fullmatch(title)):
        return unit_of(counted[1])  # 4096x below "Samples"
    if len(units) == 1 and not numbers:
        return units.pop()
    return None


_ASIDE = re.compile(r"\s?(?:±|\+/?-)\s?[\d.,]+(?=\Z|\s\()|\s?[*†‡]+\Z|\s\([^()]*\)\Z")
"""After a number: its spread, a mark, what is in brackets."""


def bare(reader: Reader, cell: Cell) -> str | None:
    """The number that is all that a cell holds."""
    if reader.style.comma is None:
        return None
    number = _ASIDE.sub("", cell.text)
    return whole(number, comma=bool(reader.style.comma))


def _number(reader: Reader, cell: Cell, unit: str) -> str | None:
    first = _leading(reader, cell)
    as_times = first is not None and first.unit == "×" and unit in NOUNS  # 4096x
    if first and first.number and (first.unit == unit or as_times):
        reader.place(cell, first)
        return first.number
    number = bare(reader, cell)
    if number is not None and "(" not in cell.text:
        reader.whole.add(id(cell))
    return number


def _kind(table: Table, columns: dict[int, str]) -> str:
    said = " ".join([*table.headings[1:], *(table.header[at] for at in columns)])
    if re.search(rf"(?i){METRIC}", re.sub(r"(?i)speed-?up", "", said)):
        return "correctness"
    if set(columns.values()) & {"ns", "us", "ms", "×", "GB/s", "TB/s", "TFLOPS", "TFLOP/s"}:
        return "benchmark"
    if any(re.fullmatch(r"[kKMGT]i?B", unit) for unit in columns.values()):
        return "memory"
    return "build" if re.search(r"(?i)\bbuild|compil", said) else "other"


def block_measurements(reader: Reader) -> None:
    """Keys and figures below a heading of measurements: a table of one row."""
    for headings, parts in reader.sections:
        if words.role_of(headings) != "measurement" or len(headings) < 2:
            continue
        groups: dict[int, list[Line]] = {}
        for part in parts:
            if isinstance(part, Line) and part.kind == "output":
                groups.setdefault(part.block, []).append(part)
        for lines in groups.values():
            _block(reader, headings, lines)


def _block(reader: Reader, headings: tuple[str, ...], lines: list[Line]) -> None:
    columns: dict[str, dict[str, str]] = {}
    values, cited, case = {}, set(), {}
    taken = []
    for line in lines:
        if not line.key:
            continue
        found = reader.value_figures(line)
        first = found[0] if found else None
        begins = len(line.text) - len(line.value)
        if (
            first
            and first.number
            and not re.search(r"\w", line.text[begins : first.start])
            and not first.is_money
        ):
            if slug(line.key) in columns:
                return  # a second case: nothing says which of the figures belong together
            columns[slug(line.key)] = {"title": line.key, "unit": first.unit}
            values[slug(line.key)] = first.number
            cited.add(line.number)
            taken.append((line, first))
        elif re.match(r"(?i)(?:config|shape|case|setting|problem|input)", line.key):
            for name, value in re.findall(r"\b([A-Za-z]\w*)\s?=\s?([\w.]+)", line.value):
                case[name] = value
            cited.add(line.number)
            reader.used.add(id(line))
    if len(columns) < 2:
        return
    for line, one in taken:
        reader.place(line, one)
    row: dict[str, Any] = {
        "id": slug(" ".join(case.values()) or "stated", "stated"),
        "values": values,
    }
    if case:
        row["case"] = case
    title = plain_title(headings[-1])
    signs = {line.sign for line in lines if line.sign}
    if len(signs) == 1:
        row["verdict"] = {"yes": "pass", "no": "fail"}[signs.pop()]
    units = {column["unit"] for column in columns.values()}
    kind = "benchmark" if units & {"ns", "us", "ms", "iter/s", "it/s"} else "other"
    data = {"id": slug(title, "table"), "title": title[:1000], "kind": kind, "columns": columns,
            "rows": [row]}  # fmt: skip
    reader.draft.add("measurements", data, cited)
