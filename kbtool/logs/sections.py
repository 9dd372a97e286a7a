"""What stands under headings: decisions, deliverables, lessons."""

from __future__ import annotations

import re
from typing import Any

from kbtool.logs import words
from kbtool.logs.blocks import Line
from kbtool.logs.draft import slug
from kbtool.logs.figures import Stated
from kbtool.logs.reader import Reader, plain_title


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
