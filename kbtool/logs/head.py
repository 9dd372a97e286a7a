"""What a report says of the session itself: its times, its costs, its machine, its aim."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

from kbtool.logs import words
from kbtool.logs.blocks import Line
from kbtool.logs.clock import Clock, days, with_colons
from kbtool.logs.draft import Left
from kbtool.logs.figures import Stated
from kbtool.logs.reader import Reader
from kbtool.model.base import Quantity

_TEXTS = {"objective": 2_000, "outcome": 2_000, "grade": 200, "engineer": 200}
Said = tuple[str, set[int], str]
"""A value, the lines that state it, and how they do."""


def read_head(reader: Reader) -> str:
    """Place the session's own fields in the draft. Returns its status."""
    said: dict[str, list[Said]] = {}
    stated: dict[str, list[tuple[Line, Stated]]] = {}
    instants: dict[str, list[tuple[Line, Clock]]] = {}
    statuses: list[str] = []
    for line in reader.blocks.lines:
        if line.kind == "heading" or not line.value:
            continue
        key, value = _key_of(reader, line)
        field = key and _field_of(reader, line, key)
        if not field:
            continue
        if field in {"duration", "budget_time", "budget_money", "budget_both"}:
            _quantities(reader, line, field, stated)
        times = reader.clocks(with_colons(value) if field in {"started", "ended"} else value)
        begins = len(line.text) - len(value)
        times = [replace(one, start=begins + one.start) for one in times]
        if field in {"duration", "times"} and len(times) == 2:
            instants.setdefault("started", []).append((line, times[0]))
            instants.setdefault("ended", []).append((line, times[1]))
        elif field in {"started", "ended", "updated"} and len(times) == 1:
            instants.setdefault(field, []).append((line, times[0]))
            if with_colons(value) != value:  # 9h30: no duration
                reader.place(line, *(one for one in reader.value_figures(line) if one.is_time))
        elif field in _TEXTS and field not in said:
            said[field] = [(value[: _TEXTS[field]], {line.number}, value)]
            reader.used.add(id(line))
        elif field == "status" and reader.is_header(line):
            status = words.status_of(value)
            if status:
                statuses.append(status)
                reader.used.add(id(line))
        elif field == "branch" and re.fullmatch(r"[\w./-]+", value):
            reader.draft.repository.setdefault("branch", value)
            reader.draft.repository_lines.add(line.number)
            reader.used.add(id(line))
    if not instants.keys() & {"started", "ended"}:
        _from_to(reader, instants)
    _sections(reader, said)
    for name, values in said.items():
        reader.draft.fields[name] = values[0][0]
        reader.draft.cites[name] = set(values[0][1])
    for name, quantities in stated.items():
        _settle_quantity(reader, name, quantities)
    _settle_instants(reader, instants)
    title = next((line.text for line in reader.blocks.lines if line.kind == "heading"), "")
    return words.status_of(title) or (statuses[0] if len(set(statuses)) == 1 else "unknown")


def _from_to(reader: Reader, instants: dict[str, list[tuple[Line, Clock]]]) -> None:
    """A line before the first section that says from when until when, if only one does."""
    found = []
    for line in reader.blocks.lines:
        if line.kind == "text" and reader.is_header(line) and not reader.of_another(line.text):
            times = reader.clocks(line.text)
            if not times and re.search(r"\b(?:de|from|von)\s\d", line.text):
                times = reader.clocks(with_colons(line.text))  # de 14h00 à 17h30
            if len(times) != 2:
                continue
            between = line.text[times[0].end : times[1].start]
            for first, last, _ in reversed(days(between)):
                between = between[:first] + between[last:]
            if _UNTIL.fullmatch(between):
                found.append((line, times))
    if len(found) == 1:
        [(line, (start, end))] = found
        instants["started"], instants["ended"] = [(line, start)], [(line, end)]


_UNTIL = re.compile(
    r"\s*(?:(?:to|until|till|bis|à|a|alle|tot|до|–|—|-|→|->)"
    r"|[,;]?\s*(?:and )?(?:stopped|ended|finished|done|closed|shut down)(?: at)?:?)\s*"
)


def _key_of(reader: Reader, line: Line) -> tuple[str, str]:
    """The key of a line and what it is of; of "until 15:50 GMT" too, which has no colon."""
    if line.key:
        return line.key, line.value
    times = reader.clocks(line.text)
    if len(times) != 1 or re.search(r"[^\W\d_]{5,}", line.text[times[0].end :]):
        return "", ""
    return line.text[: times[0].start].strip(), line.text[times[0].start :]


def _field_of(reader: Reader, line: Line, key: str) -> str | None:
    """The field that the key of a line names, where the line speaks of this session."""
    # "Session N+7A Paused": the session's own name in the key says nothing more.
    if reader.label:
        key = re.sub(rf"(?i)\bsession {re.escape(reader.label)}\b\s*", "", key).strip() or key
    field = next((name for name, expression in words.FIELDS if expression.match(key)), None)
    if field is None:
        return None
    if field == "updated":
        return field
    role = words.role_of(line.headings)
    whole = reader.is_header(line) or role == "session" or line.headings == reader.own
    if reader.label and line.headings[1:] and not whole:
        # A section of the session's own name, such as "Session N+7A: Solid Progress Made".
        named = [found[1] for h in line.headings[1:] for found in words.SESSION.finditer(h)]
        whole = named == [reader.label] and role in {"", "session"} and len(line.headings) == 2
    if not whole or reader.of_another(
        f"{line.lead} {line.text}" if line.kind == "item" else line.text
    ):
        return None
    if line.kind == "item" and line.depth > 1 and not words.TIMES.match(line.lead.rstrip(": ")):
        return None
    return field


def _quantities(
    reader: Reader, line: Line, field: str, stated: dict[str, list[tuple[Line, Stated]]]
) -> None:
    found = reader.value_figures(line)
    if field in {"budget_time", "budget_money"}:
        for one in found:
            name = "budget_time" if one.is_time else "budget_money" if one.is_money else None
            if name and not any(line is other for other, _ in stated.get(name, [])):
                stated.setdefault(name, []).append((line, one))
        return
    if not found or not found[0].is_time or _is_of_a_command(found[0]):
        return
    if not line.value[: found[0].start - len(line.text)].strip(" ~"):
        stated.setdefault(field, []).append((line, found[0]))


def _is_of_a_command(one: Stated) -> bool:
    """Whether a time is too short for a session: "Wall time: 44.1 s"."""
    return one.unit in {"ns", "us", "ms"} or (one.unit == "s" and Decimal(one.number or 60) < 60)


def _settle_quantity(reader: Reader, name: str, found: list[tuple[Line, Stated]]) -> None:
    """Place a figure that all lines agree on; where they do not, it is null and both are claims."""
    draft = reader.draft

    def worth(one: Stated) -> object:
        quantity = Quantity(one.quantity)
        if quantity.is_time:
            scale = quantity.MINUTES[quantity.unit]
            return quantity.relation, quantity.low * scale, quantity.high and quantity.high * scale
        return one.quantity

    # The lines before the first section are the session's own; those below only repeat them.
    if len({worth(one) for _, one in found}) == 1:
        draft.fields[name] = found[0][1].quantity
        draft.cites[name] = {line.line_of(one.start) for line, one in found}
        for line, one in found:
            reader.place(line, one)
        return
    draft.fields[name] = None
    draft.unknown[name] = _contradiction([(one.quantity, line.number) for line, one in found])


def _contradiction(said: list[tuple[str, int]]) -> str:
    return f"the log states {', '.join(f'{text} (line {line})' for text, line in said)}"


def _settle_instants(reader: Reader, found: dict[str, list[tuple[Line, Clock]]]) -> None:
    draft = reader.draft
    made: dict[str, tuple[str, bool, list[Line]]] = {}
    numbers: dict[str, set[int]] = {}
    for name, said in found.items():
        values: dict[str, list[tuple[Line, Clock]]] = {}
        for line, clock in said:
            day = clock.day or reader.day
            if clock.zone is None or day is None:
                why = "the name of its zone means several" if day else "the log gives no day for it"
                draft.left.append(Left(line.number, line.text, f"a time that is not placed: {why}"))
                continue
            values.setdefault(f"{day}T{clock.time}{clock.zone}", []).append((line, clock))
        if len(values) == 1:
            [(text, both)] = values.items()
            numbers[name] = {line.line_of(clock.start) for line, clock in both}
            made[name] = (
                text,
                all(clock.day is None for _, clock in both),
                [line for line, _ in both],
            )
        elif values:
            draft.fields[name] = None
            draft.unknown[name] = _contradiction(
                [(text, both[0][0].number) for text, both in values.items()]
            )
            for text, both in values.items():
                draft.left.append(Left(both[0][0].number, text, f"one of several values of {name}"))
    if "started" in made and "ended" in made:
        _order(reader, made)
    for name, (text, _, lines) in made.items():
        draft.fields[name] = text
        draft.cites[name] = numbers[name]
        reader.used |= {id(line) for line in lines}
        reader.whole |= {id(line) for line in lines}


def _order(reader: Reader, made: dict[str, tuple[str, bool, list[Line]]]) -> None:
    """An end before the start is of the next day if the duration says so, else it is not placed."""
    from kbtool.model.base import Instant

    elapsed = Instant(made["ended"][0]).since(Instant(made["started"][0]))
    if elapsed is None or elapsed >= timedelta(0):
        return
    text, bare, lines = made.pop("ended")
    duration = reader.draft.fields.get("duration")
    minutes = Decimal(str((elapsed + timedelta(days=1)).total_seconds())) / 60
    if bare and duration and (q := Quantity(duration)).is_single and q.minutes == minutes:
        later = date.fromisoformat(text[:10]) + timedelta(days=1)
        made["ended"] = f"{later}{text[10:]}", bare, lines
        return
    reader.draft.left.append(Left(lines[0].number, lines[0].text, "an end before the start"))


def _sections(reader: Reader, said: dict[str, list[Said]]) -> None:
    """The objective and the outcome, where they are sections of their own."""
    for headings, parts in reader.sections:
        if len(headings) < 2:
            continue
        title = plain_title_words(headings[-1])
        name = {"objective": "objective", "goal": "objective", "aim": "objective",
                "outcome": "outcome", "result": "outcome"}.get(title)  # fmt: skip
        first = next((part for part in parts if isinstance(part, Line)), None)
        if name and name not in said and first is not None and first.kind == "text":
            said[name] = [(first.text[:2_000], {first.number}, first.text)]
            reader.used.add(id(first))


def plain_title_words(heading: str) -> str:
    """A heading in small letters, without anything but its words."""
    return re.sub(r"[\W_]+", " ", heading).strip().lower()


_HOLDS_VERSIONS = re.compile(
    r"(?i)(?:gpu|card|instance|machine|environment|software|stack|versions)\Z"
)
_VERSIONS = re.compile(
    r"(?i)\b(CUDA|driver|py ?torch|torch|python|numpy|nvcc)\s+v?(\d+(?:\.\d+)+[\w.+-]*)"
)
_NAMES = {"cuda": "cuda", "driver": "driver", "pytorch": "torch", "py torch": "torch",
          "torch": "torch", "python": "python", "numpy": "numpy", "nvcc": "nvcc"}  # fmt: skip
_CAPABILITY = re.compile(r"\b[Ss][Mm]_?\s?(\d{2,3}a?)\b")
_CARD = re.compile(r"\b(?:NVIDIA |Tesla |GeForce |AMD )*(?:RTX (?:A?\d{4})(?: Ti| Ada)?"
                   r"|[ABHLTV]\d{1,3}[GS]?"
                   r"|GH200|GB200|MI\d{3}X?)(?:[ -](?:SXM\d?|PCIe|NVL))?\b")  # fmt: skip


def read_environment(reader: Reader) -> None:
    """Place card, versions and the like, where a key names them."""
    found: dict[str, list[tuple[str, Line]]] = {}
    for line in reader.blocks.lines:
        role = words.role_of(line.headings)
        if line.kind == "heading" or not line.key:
            continue
        if not (reader.is_header(line) or role in {"environment", "session"}):
            continue
        for name, version in (
            _VERSIONS.findall(line.value) if _HOLDS_VERSIONS.match(line.key) else ()
        ):
            found.setdefault(_NAMES[name.lower()], []).append((version, line))
        key = re.sub(r"^(?:environment|machine|hardware|versions?) ", "", line.key)
        name = next((name for name, e in words.ENVIRONMENT if e.match(key)), None)
        if name is None:
            _no_field(reader, line, found)
            continue
        _environment(reader, line, name, found)
    environment = reader.draft.environment
    for name, values in found.items():
        if len({text.removeprefix("NVIDIA ") for text, _ in values}) == 1:
            environment[name] = values[0][0]
            reader.draft.environment_lines |= {line.number for _, line in values}
            reader.used |= {id(line) for _, line in values}
            reader.whole |= {id(line) for _, line in values}
        else:
            environment[name] = None
            reader.draft.environment_lines |= {line.number for _, line in values}
            reader.draft.unknown[f"environment.{name}"] = _contradiction(
                [(text, line.number) for text, line in values]
            )
            for text, line in values:
                reader.draft.left.append(
                    Left(line.number, text, f"one of several values of {name}")
                )


def _no_field(reader: Reader, line: Line, found: dict[str, list[tuple[str, Line]]]) -> None:
    """A line such as "Type: L4 (24GB VRAM)" or "Torch 2.2 detected" names none of the fields."""
    if re.fullmatch(r"(?i)type|model", line.key) and (card := _CARD.search(line.value)):
        found.setdefault("card", []).append((card[0], line))
        _memory(reader, line, found)


def _environment(
    reader: Reader, line: Line, name: str, found: dict[str, list[tuple[str, Line]]]
) -> None:
    value = line.value
    if name in {"driver", "cuda", "torch", "numpy", "python", "nvcc"}:
        version = re.fullmatch(r"(?:nvcc |CUDA |PyTorch |torch |Python |NumPy )?(?:V|v|release )?"
                               r"(\d+(?:\.\d+)+[\w.+-]*)(?:[ ,(].*)?", value)  # fmt: skip
        if version:
            found.setdefault(name, []).append((version[1], line))
    elif name in {"card_memory", "shared_memory"}:
        first = next(iter(reader.value_figures(line)), None)
        if name == "shared_memory" and re.search(r"(?i)per (?:block|CTA|kernel)|used", value):
            return  # what the kernel takes, not what the card has
        if first is not None and first.number and re.fullmatch(r"[kKMGT]i?B", first.unit):
            found.setdefault(name, []).append((first.quantity, line))
            reader.place(line, first)
    elif name == "compute_capability":
        capability = _CAPABILITY.search(value) or re.search(r"\b(\d{1,2}\.\d)\b", value)
        if capability:
            text = capability[1] if "." in capability[1] else f"sm_{capability[1]}"
            found.setdefault(name, []).append((text, line))
    elif name == "card":
        card = _CARD.search(value)
        if card is None:
            return
        found.setdefault("card", []).append((card[0], line))
        capability = _CAPABILITY.search(value)
        if capability:
            found.setdefault("compute_capability", []).append((f"sm_{capability[1]}", line))
        _memory(reader, line, found)
    elif name in {"instance", "zone", "cpu"}:
        words_ = re.match(r"[^,(]+", value)
        if words_ and words_[0].strip():
            found.setdefault(name, []).append((words_[0].strip()[:200], line))
        card = _CARD.search(value) if name == "instance" else None
        if card:
            found.setdefault("card", []).append((card[0], line))


def _memory(reader: Reader, line: Line, found: dict[str, list[tuple[str, Line]]]) -> None:
    for one in reader.value_figures(line):
        if re.fullmatch(r"[MG]i?B", one.unit) and one.number:
            found.setdefault("card_memory", []).append((one.quantity, line))
            reader.place(line, one)
        elif re.fullmatch(r"Ki?B", one.unit) and "shared" in line.text[one.end : one.end + 20]:
            found.setdefault("shared_memory", []).append((one.quantity, line))
            reader.place(line, one)


def read_costs(reader: Reader) -> None:
    """Place what was paid for, where a line says of which kind it is."""
    found: dict[str, list[tuple[Stated, Line]]] = {}
    for line in reader.blocks.lines:
        if line.kind == "heading" or not _states_own_costs(reader, line):
            continue
        for kind, one in _by_kind(reader, line):
            found.setdefault(kind, []).append((one, line))
    for kind, amounts in found.items():
        if len({one.quantity for one, _ in amounts}) > 1:
            said = [(one.quantity, line.number) for one, line in amounts]
            lines = {line.number for _, line in amounts}
            reader.draft.add("costs", {"kind": kind, "id": kind, "amount": None, "basis": "claimed",
                             "currency": amounts[0][0].unit}, lines,
                             amount=_contradiction(said))  # fmt: skip
            continue
        one = amounts[0][0]
        texts = " ".join(line.text for _, line in amounts)
        billed = re.search(r"(?i)\b(?:billed|invoiced?|invoice no)\b", texts)
        data = {"kind": kind, "id": kind, "amount": one.number, "currency": one.unit,
                "basis": "billed" if billed else "claimed"}  # fmt: skip
        item = reader.draft.add("costs", data, (line.line_of(f.start) for f, line in amounts))
        reader.costs[id(item)] = [(line, f) for f, line in amounts]
        for stated, line in amounts:
            reader.place(line, stated)


def _states_own_costs(reader: Reader, line: Line) -> bool:
    if reader.of_another(line.text) or words.HYPOTHETICAL.search(line.text):
        return False
    cost_key = re.match(r"(?i)(?:total |session |actual )*(?:costs?|spend|spent|bill)\b", line.key)
    role = words.role_of(line.headings)
    if reader.is_header(line) or role == "session":
        return bool(cost_key) or (
            words.kind_of(line.key) is not None and "cost" in line.key.lower()
        )
    headings = " ".join(line.headings[1:])
    return (
        role == "cost"
        and bool(cost_key or words.kind_of(line.key or line.text))
        and not words.HYPOTHETICAL.search(f"{headings} {line.lead}")
    )


def _by_kind(reader: Reader, line: Line) -> list[tuple[str, Stated]]:
    """The amounts of a line of which it says what they pay for."""
    amounts = [one for one in reader.free(line) if one.is_money]
    own = words.kind_of(line.key) if line.key else None
    if own and len(amounts) >= 1:
        first = amounts[0]
        begins = len(line.text) - len(line.value)
        direct = first.number and not line.text[begins : first.start].strip()
        return [(own, first)] if direct else []
    found, last = [], 0
    for at, one in enumerate(amounts):
        until = amounts[at + 1].start if at + 1 < len(amounts) else len(line.text)
        before = re.search(
            r"([A-Za-z0-9]+(?: cost| time)?)\s*[:(=]?\s*$", line.text[last : one.start]
        )
        after = re.match(r"\s*\(?(?:for |of |on )?(?:the )?([A-Za-z]+)", line.text[one.end : until])
        kind = words.kind_of(before[1]) if before else None
        last = one.end
        if kind is None and after and at + 1 < len(amounts):
            # In "$1.35 (GPU $0.35 + AI $1.00)" the word is that of the next amount.
            between = line.text[one.end + after.end() : until]
            is_next = after[0].lstrip().startswith("(") or not between.strip(" :")
            after = None if is_next else after
        if kind is None and after:
            kind = words.kind_of(after[1])
            last += after.end()
        if kind and one.number:
            found.append((kind, one))
    kinds = [kind for kind, _ in found]
    return [(kind, one) for kind, one in found if kinds.count(kind) == 1]
