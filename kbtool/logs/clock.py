"""Dates and times of day in a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

_NAMES = (
    "jan january januar jänner janvier enero gennaio januari января",
    "feb february februar février fevrier febrero febbraio februari февраля",
    "mar march märz mars marzo maart марта", "apr april avril abril aprile апреля",
    "may mai mayo maggio mei мая", "jun june juni juin junio giugno июня",
    "jul july juli juillet julio luglio июля", "aug august août aout agosto augustus августа",
    "sep sept september septembre septiembre settembre сентября",
    "oct october oktober octobre octubre ottobre октября",
    "nov november novembre noviembre ноября",
    "dec december dezember décembre decembre diciembre dicembre декабря",
)  # fmt: skip
_MONTHS = {name: at for at, names in enumerate(_NAMES, 1) for name in names.split()}
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})(?!\w)\.?"
_DATES = (
    re.compile(r"(?<![\d-])(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?![\d-])"),
    re.compile(rf"(?i)\b{_MONTH}\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<year>\d{{4}})\b"),
    re.compile(
        rf"(?i)\b(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.)?\s+(?:de\s+)?{_MONTH},?\s+(?:de\s+)?"
        r"(?P<year>\d{4})\b"
    ),
    re.compile(r"(?<!\d)(?P<year>\d{4})年\s?(?P<month>\d{1,2})月\s?(?P<day>\d{1,2})日"),
    re.compile(r"(?<![\d.])(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})(?![\d.])"),
    re.compile(r"(?<![\d/])(?P<one>\d{1,2})/(?P<two>\d{1,2})/(?P<year>\d{4})(?![\d/])"),
)
_ZONES = {
    "UTC": "Z", "GMT": "Z", "Z": "Z", "PST": "-08:00", "PDT": "-07:00",
    "MDT": "-06:00", "CDT": "-05:00", "EST": "-05:00", "EDT": "-04:00", "CET": "+01:00",
    "CEST": "+02:00", "EET": "+02:00", "EEST": "+03:00", "WEST": "+01:00", "MEZ": "+01:00",
    "MESZ": "+02:00", "JST": "+09:00", "KST": "+09:00", "AEST": "+10:00", "AEDT": "+11:00",
}  # fmt: skip
"""Zones whose name means one offset."""
_SEVERAL = frozenset(("IST", "CST", "BST", "AST", "MST", "SST", "ECT", "GST", "PT", "ET"))
"""Names that mean several: India, Israel, Ireland; the US, China, Cuba."""
_TIME = re.compile(
    r"(?P<iso>\0)?(?<![\d:.])(?P<hour>\d{1,2})"
    r"(?::(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?(?![\d:])"
    r"|(?:\.(?P<minute2>[0-5]\d))?(?=\s?[AaPp]\.?[Mm]\b))"  # 9.15 am, 2pm
    r"\s*(?P<half>[AaPp]\.?[Mm]\b\.?)?"
    # 09:00-11:30 is from when until when, and 2026-01-02T09:00-11:30 a zone.
    r"\s*\(?(?P<zone>(?:UTC|GMT)[+-]\d{1,2}(?::?\d{2})?"
    r"|(?(iso)[+-]|(?:\+|(?<=\s)-|(?<=\()-))\d{2}:?\d{2}(?!\d)"
    r"|[A-Z]{3,4}(?![\w/])|Z(?!\w))?"
)


_WITH_HOURS = re.compile(r"(?<![\d:])(\d{1,2})\s?(?:h\s?|時)(\d{2})(?:分)?(?![\d:h])")


def with_colons(text: str) -> str:
    """``9h30`` and ``9時30分`` as ``9:30``: in a field for a time of day they are no duration."""
    return _WITH_HOURS.sub(r"\1:\2", text)


@dataclass(frozen=True)
class Clock:
    """A time of day as a line states it."""

    start: int
    end: int
    time: str
    """``19:42`` or ``19:42:10``."""
    zone: str | None
    """``Z``, ``-08:00``; empty where none is named, ``None`` where the name means several."""
    day: date | None
    """The date that stands right before it, or after."""


def days(text: str) -> list[tuple[int, int, date]]:
    """The dates in ``text``. ``10/12/2025`` may be two days, and is none."""
    found = []
    for expression in _DATES:
        for match in expression.finditer(text):
            parts = match.groupdict()
            if "one" in parts:
                one, two = int(parts["one"]), int(parts["two"])
                if one != two and one <= 12 and two <= 12:
                    continue
                month, day = (one, two) if one <= 12 else (two, one)
            else:
                name = parts["month"]
                month = int(name) if name.isdecimal() else _MONTHS[name.lower()]
                day = int(parts["day"])
            try:
                found.append((match.start(), match.end(), date(int(parts["year"]), month, day)))
            except ValueError:
                continue
    return sorted(found)


def clocks(text: str, *, halves: bool) -> list[Clock]:
    """The times of day in ``text``.

    Args:
        text: a line.
        halves: whether the report writes AM and PM: a time without them may then be either.
    """
    dates = days(text)
    found: list[Clock] = []
    for match in _TIME.finditer(re.sub(r"(?<=\d)T(?=\d\d:)", "\0", text)):
        hour, minute = int(match["hour"]), int(match["minute"] or match["minute2"] or 0)
        begins = match.start("hour")
        half = (match["half"] or "").lower()[:1]
        if half:
            if not 1 <= hour <= 12:
                continue
            hour = hour % 12 + (12 if half == "p" else 0)
        elif halves and hour <= 12:
            continue
        if hour > 23 or minute > 59 or int(match["second"] or 0) > 59:
            continue
        near = [day for start, end, day in dates
                if 0 <= begins - end <= 6 or 0 <= start - match.end() <= 4]  # fmt: skip
        time = f"{hour:02}:{minute:02}{':' + match['second'] if match['second'] else ''}"
        found.append(Clock(begins, match.end(), time, _zone(match["zone"]),
                           near[0] if near else None))  # fmt: skip
    # In "03:13 - 05:03 PST" the zone is that of both.
    if len(found) == 2 and found[0].zone == "" and found[1].zone != "":
        first, second = found
        if re.fullmatch(r"\s*(?:[-–—→]|->|to|until)?\s*", text[first.end : second.start]):
            found[0] = Clock(first.start, first.end, first.time, second.zone, first.day)
    return found


def _zone(text: str | None) -> str | None:
    if not text:
        return ""
    offset = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", text)
    if offset:
        return f"{offset[1]}{int(offset[2]):02}:{offset[3] or '00'}"
    return None if text in _SEVERAL else _ZONES.get(text, "")
