"""Figures in a line of prose: a number with its unit, its currency, its bound or its range."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from kbtool.logs.grammar import (
    CODES,
    COUNTS,
    KEY_UNITS,
    NOUNS,
    OF_TIME,
    RELATION_OF,
    expressions,
)
from kbtool.logs.languages import (
    ALSO_TO,
    BYTES_ELSEWHERE,
    NOUNS_ELSEWHERE,
    TIMES_ELSEWHERE,
)
from kbtool.logs.numerals import COMMA, POINT, digits, is_cut, narrow


@dataclass(frozen=True)
class Stated:
    """A figure of a line."""

    start: int
    end: int
    quantity: str
    """As a record writes it: ``5..10 min``, ``~0.40 USD``."""
    unit: str
    name: str = ""
    """Of a number without a unit: what it is of (max_diff)."""

    @property
    def number(self) -> str | None:
        """The number, where it is one figure without a bound."""
        head = self.quantity.removesuffix(self.unit).strip()
        return head if re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", head) else None

    @property
    def is_time(self) -> bool:
        """Whether it is a time."""
        return self.unit in TIMES

    @property
    def is_money(self) -> bool:
        """Whether it is an amount of money."""
        return re.fullmatch("[A-Z]{3}", self.unit) is not None and self.unit not in _NOT_MONEY

    @property
    def is_rate(self) -> bool:
        """Whether it is money by the time."""
        return re.fullmatch("[A-Z]{3}/(s|min|h|day)", self.unit) is not None


class Habits(NamedTuple):
    """How a whole report writes its numbers."""

    comma: bool | None
    """Whether a comma stands before decimals; ``None`` where both are written."""
    dollar: str | None
    """The currency of a dollar sign; ``None`` where the report names dollars of several."""
    yen: str | None = None
    """The currency of ¥; ``None`` where the report does not say whether of Japan or China."""


TIMES = {"ns": "ns", "us": "us", "µs": "us", "μs": "us", "usec": "us", "microsecond": "us",
         "ms": "ms", "msec": "ms", "millisecond": "ms", "nanosecond": "ns",
         "s": "s", "sec": "s", "second": "s", "min": "min", "minute": "min", "h": "h",
         "hr": "h", "hour": "h"}  # fmt: skip

_NOUN_OF = {noun.lower(): noun for noun in NOUNS}

_SIGNS = {"≈": "~", "~=": "~", "≃": "~", "≤": "<=", "≥": ">=", "⩽": "<=", "⩾": ">="}

_FROM = re.compile(r"(?i)\b(?:from|von|de|desde|da|van|с|от)\s[\d.,]+\s?[^\s\d]{0,6}\s\Z")
"""Before words that mean "up to" and "to": from 180 GB/s to 246 GB/s."""

_AFTER = {"以内": "<=", "以下": "<=", "以上": ">=", "未満": "<"}
"""What Japanese says after a figure of it."""

_IN_WORDS = {"us dollar": "USD", "euro": "EUR", "swiss franc": "CHF", "pound": "GBP",
             "rupee": "INR", "yen": "JPY", "yuan": "CNY", "руб": "RUB", "рубль": "RUB",
             "рубля": "RUB", "рублей": "RUB", "руб.": "RUB", "₽": "RUB"}  # fmt: skip

_NOT_MONEY = frozenset(("CTA", "SMS"))

_DAYS = ("day", "Tag", "jour")

_SYMBOL_CODES = {"US$": "USD", "€": "EUR", "£": "GBP", "₹": "INR", "CA$": "CAD", "C$": "CAD",
                 "A$": "AUD", "NZ$": "NZD", "HK$": "HKD", "S$": "SGD",
                 "円": "JPY", "元": "CNY"}  # fmt: skip

_TAKES_TIME = re.compile(r"(?i)time|elapsed|duration|latency|wall|build|compil|took|total|wait")

_POWER = re.compile(r"(?i)power|watt|draw")

_BYTES_PER_SECOND = re.compile(r"(?i)bandwidth|throughput|\bbw\b")

DEVIATION = (
    r"\b(?:err|diff|dev|desv|tol|fehler|abweich|écart|scart|resid|afwijk|fout|ошибк|допуск|погрешн)"
    r"\w*"
)

_DEVIATION = re.compile(f"(?i){DEVIATION}")
"""What a number with a negative power and no unit is of."""

_NUMBERED = re.compile(
    r"(?:pattern|session|bug|step|phase|option|priority|pass|line|lines|section|stage|table|case"
    r"|checkpoint|figure|issue|version|python|cuda|pytorch|week|day|level|v|#|page|chapter|attempt)"
    r"\s*\Z",
    re.IGNORECASE,
)

_NAMED = re.compile(
    r"(?:\b(?i:no|nr|fig|eq|exp|sec|tab|ch|vol)\."
    r"|\b(?!(?i:all|only|both|total|these|the)\s)(?:[A-Z]{2,}|(?<=[a-z,;] )[A-Z][\w+-]*)"
    r"|\b(?i:kernel|variant|config(?:uration)?|thread|warp(?:group)?|block|tile|CTA|SM"
    r"|stage|split"
    r"|GPU|card|head|layer|row|column|batch|size|shape|width|depth|model|node|rank|worker|device))\s\Z"
)
"""Before a number that is part of a name: RTX 4090, kernel 2. What follows it is not counted."""

_OF_HOURS = re.compile(
    r"(?<![\w.,:])\d{1,3}\s?(?!(?:in|to|of|and|or|at|for|after|with|by|on|is|was|und|et|y|e|à|a)\s)"
    rf"(?!(?i:{'|'.join(f'{n[:-1]}s?' if n.endswith('s') else n for n in NOUNS)}|days?|weeks?)\b)"
    r"[^\W\d_]{1,9}\.?\s\Z"
)
"""Before "45 min": a number and a word that may mean hours in a language that is not known."""

_VERBS = frozenset(("spills", "runs", "passes", "launches", "builds", "samples", "calls", "splits"))

_EACH = re.compile(r"\b(?i:every|each|per)\s\Z")

_LONGER = re.compile(
    r"(?i)(?:took|takes?|taking|needs?|lasted|for|of|is|was|were|costs?|at|by|to|with|has"
    r"|have|had|just|well|slightly|still)\s*\Z"
)
"""Before "over 3 hours": it took more. "Averaged over 3 hours" is a stretch of time."""

_NOT = re.compile(
    r"(?i)(?:\b(?:not|never|no|nicht|nie|kein\w*|pas|non|niet)|n't)\b[^.,;:()]{0,25}\Z"
)

_ALONG = re.compile(
    r"(?i)(?:\b(?:mean|averaged?|median|geomean|sum|max(?:imum)?|min(?:imum)?)|\d\s?[a-zµ%×/]{0,6})\s\Z"
)
"""Before "over 64 cases": it is along how many, and no bound."""


def habits(text: str) -> Habits:
    """How a report writes decimals, and which currency its dollars and its ¥ are."""
    names = "|".join(
        ["ms|us|µs|s|min|h|GB|MB|€|EUR|%|×|x|USD|GB/s|[MG]o", *map(re.escape, TIMES_ELSEWHERE)]
    )
    unit = rf"\s?(?:{names})(?!\w)"
    comma = len(re.findall(rf"(?<![\d.,])\d+,\d{{1,2}}{unit}", text))
    comma += len(re.findall(rf"(?<![\d.,])\d{{1,3}}(?:\.\d{{3}})+,\d+{unit}", text))
    comma += len(
        re.findall(r"(?m)\|[ \t]*-?\d+,\d{1,2}(?=[ \t]*(?:\||$))|[$€£]\s?\d+,\d\d(?!\d)", text)
    )
    point = len(re.findall(rf"(?<![\d.,])\d+\.\d+{unit}|[$€£]\s?\d+\.\d\d(?!\d)", text))
    others = set(re.findall(r"\b(?:CAD|AUD|NZD|SGD|HKD|MXN|TWD)\b", text))
    stated = re.search(r"(?im)^\W*currency\W*:\W*([A-Z]{3})\b", text)
    dollar = "USD"
    if others:
        dollar = stated[1] if stated else ""
    japan = re.search(r"\bJPY\b|\bJST\b|円|(?i:\byen\b)", text)
    china = re.search(r"\bCNY\b|\bRMB\b|元|(?i:\byuan\b)", text)
    yen = None if bool(japan) == bool(china) else "JPY" if japan else "CNY"
    return Habits(None if comma and point else comma > 0, dollar or None, yen)


_MONEY = frozenset(("symbol", "amount", "code"))

_PRINTED = re.compile(
    r"\[\s*\d{1,3}\s?%\]"
    r"|\A\s*(?:[(\[]\d+ rows?(?: [x×] \d+ columns?)?[)\]]|\d+ rows? (?:in set|selected).*)\s*\Z"
)
"""What is of no work: how far pytest, CMake and ninja are, how many rows a client printed."""


def figures(text: str, style: Habits) -> list[Stated]:
    """The figures in ``text``, in their order. A number without a unit is none."""
    if not re.search(rf"[\d¼½¾]|(?i:{OF_TIME}|per\s?cent)", text):
        return []
    text = _PRINTED.sub(lambda found: " " * len(found[0]), narrow(text))
    taken: list[Stated] = []
    covered = bytearray(len(text))
    if style.comma is None and re.search(r"\d,\d", text):
        return []
    for form, expression in expressions(bool(style.comma)).items():
        for found in expression.finditer(text):
            for stated in _stated(form, found, text, style):
                if not any(covered[stated.start : stated.end]):
                    taken.append(stated)
                    covered[stated.start : stated.end] = b"x" * (stated.end - stated.start)
    return sorted(taken, key=lambda stated: stated.start)


def _stated(form: str, found: re.Match[str], text: str, style: Habits) -> Iterator[Stated]:
    groups = found.groupdict()
    unit: str | None
    start, end = found.span()
    start += len(found[0]) - len(found[0].lstrip())
    relation = _AFTER.get(groups.get("after") or "") or _relation(groups.get("rel"))
    if (
        relation in {"<", ">"}
        and re.match(r"\w", groups["rel"])
        and _NOT.search(_ahead(text, start))
    ):
        return  # it must not rise by more than 5 %
    if (groups.get("rel") or "").strip().lower() in ALSO_TO and _FROM.search(_ahead(text, start)):
        relation = ""
    if form == "compound":
        if groups["minutes3"] and (
            re.search(r"(?i)\b(?:à|at|um|dès|vers)\s\Z", _ahead(text, start))
            or re.match(r"\s?(?:à|a|bis|to|–|-)\s?\d{1,2}\s?h", text[end:])
        ):
            return  # "à 9h30" is a time of day
        yield from _compound(found, relation, start, end)
        return
    if form == "watch":
        minutes = 60 * Decimal(groups["hours"]) + Decimal(groups["minutes"])
        unit = "s" if groups["seconds"] else "min"
        length = 60 * minutes + Decimal(groups["seconds"]) if unit == "s" else minutes
        yield Stated(start, end, f"{length} {unit}", unit)
        return
    if form == "words":
        over = (groups["rel"] or "").strip().lower() == "over"
        if (over and _stretch("days", _ahead(text, start))) or _EACH.search(_ahead(text, start)):
            return
        yield from _worded(groups, relation, start, end)
        return
    if form == "list":
        yield from _listed(found, text, style)
        return
    if form == "fraction":
        unit = _plain_unit(found, text)
        many = Decimal(groups["low"] or 0) + _PARTS[groups["part"]]
        if unit:
            yield Stated(start, end, f"{relation}{many} {unit}", unit)
        return
    if form != "list" and is_cut(
        text, found.start("low" if "low" in groups else "first"), comma=bool(style.comma)
    ):
        return
    name = groups.get("name") or ""
    if form in _MONEY:
        unit = _currency(groups.get("symbol") or groups.get("code") or "", style)
        unit = unit and f"{unit}{_per(groups.get('per'))}"
    elif form in {"power", "bracket"}:
        of = _DEVIATION.search(text[:start])
        name, unit = (of[0], "") if of else ("", None)
    elif name:
        unit = ""
    elif form == "factor":
        unit = "×"
    elif form == "key":
        unit = _unit_of_key(groups["key"], groups["unit"])
    else:
        unit = _plain_unit(found, text)
    if unit is None:
        return
    if form == "arrow" and not _is_change(found, text):
        return
    if form == "share2" and not groups["noun"]:
        return
    if form == "scaled":
        yield from _scaled(groups, relation, unit, start, end, style)
        return
    if (
        form == "share"
        and unit in TIMES
        and "/" in found[0]
        and groups["second"] in {"2", "3", "4"}
    ):
        return  # 1/2 h
    if (groups.get("rel") or "").strip().lower() == "over" and _stretch(unit, _ahead(text, start)):
        if not _ALONG.search(_ahead(text, start)):
            return
        relation = ""
    if "first" in groups:
        half = found.start("second")
        yield from _quantity("", groups["first"], None, unit, "", start, half, style)
        yield from _quantity("", groups["second"], None, unit, "", half, end, style)
        return
    low = groups["low"] + (groups.get("times") or "")
    if groups.get("sign") in {"−", "-"}:
        low = f"-{low}"
    opened = bool(groups.get("open") or groups.get("open2") or groups.get("open3"))
    yield from _quantity(relation, low, groups.get("high"), unit, name, start, end, style, opened)


def _listed(found: re.Match[str], text: str, style: Habits) -> Iterator[Stated]:
    """Each of "12, 15 and 18 ms"; of "steps 2 and 3 ms" nothing says which."""
    unit = unit_of(found["unit"])
    before = _ahead(text, found.start()).rstrip().removesuffix("s")
    if _NAMED.search(f"{before} ") or _NUMBERED.search(before):
        return
    number = re.compile(COMMA if style.comma else POINT)
    for one in number.finditer(text, found.start(), found.end("last")):
        end = found.end() if one.end() == found.end("last") else one.end()
        yield from _quantity("", one[0], None, unit, "", one.start(), end, style)


def _scaled(
    groups: dict[str, str | None], relation: str, unit: str, start: int, end: int, style: Habits
) -> Iterator[Stated]:
    """A count of thousands or millions; 4k tokens may be 4096, and is none."""
    low, scale = groups["low"] or "", groups["scale"] or ""
    counted = groups["noun"] or "/" in unit
    as_power = len(scale) == 1 and low.isdecimal() and "/" not in unit
    if not counted or as_power or ("," in low and not style.comma):
        return
    power = {"k": 3, "t": 3, "m": 6, "g": 9, "b": 9}[scale[0].lower()]
    quantity = f"{relation}{digits(low, comma=bool(style.comma))}e{power} {unit}"
    yield Stated(start, end, quantity, unit)


_PARTS = {"¼": Decimal("0.25"), "½": Decimal("0.5"), "¾": Decimal("0.75")}


def _worded(groups: dict[str, str | None], relation: str, start: int, end: int) -> Iterator[Stated]:
    said = {name: (text or "").lower() for name, text in groups.items()}
    written = next(
        said[name] for name in ("unit", "unit2", "unit3", "unit4", "unit5") if said[name]
    )
    unit = TIMES.get(written) or ("%" if written.startswith("per") else f"{written}s")
    if said["many"]:
        many = f"{COUNTS.get(said['many'], 1)}.5"
    elif said["low"]:
        low, high = COUNTS.get(said["low"], 1), COUNTS[said["high"]]
        if low >= high:
            return
        many = f"{low}..{high}"
    elif said["two"]:
        many = "1..2"
    elif said["count"] in COUNTS:
        many = str(COUNTS[said["count"]])
    else:  # half an hour
        many, unit = {"h": ("30", "min"), "min": ("30", "s")}.get(unit, ("0.5", unit))
    yield Stated(start, end, f"{relation}{many} {unit}", unit)


def _ahead(text: str, position: int) -> str:
    """The last words before a position: all of them would take long, for each figure of a line."""
    return text[max(0, position - 40) : position]


def _currency(sign: str, style: Habits) -> str | None:
    word = sign.lower().removesuffix("s")
    if word in {"$", "dollar"}:
        return style.dollar
    if sign in {"¥", "￥"}:
        return style.yen
    if word in _IN_WORDS:
        return _IN_WORDS[word]
    return sign if re.fullmatch(CODES, sign) else _SYMBOL_CODES.get(sign)


def _unit_of_key(key: str, unit: str) -> str | None:
    unit = unit.lower()
    if unit in {"gbs", "gbps"}:  # gbps may be bits
        return "GB/s" if unit == "gbs" and _BYTES_PER_SECOND.search(key) else None
    if len(unit) == 1 and not (_POWER if unit == "w" else _TAKES_TIME).search(key):
        return None  # n_h: 8 heads
    return KEY_UNITS[unit]


def _plain_unit(found: re.Match[str], text: str) -> str | None:
    groups = found.groupdict()
    written = groups["unit"] or groups["octets"]
    unit = unit_of(written)
    first = found.start("low" if "low" in groups else "first")
    if groups.get("noun"):
        low = groups.get("low") or "0"
        if _NUMBERED.search(_ahead(text, found.start())):
            return None
        if not (groups.get("scale") or re.fullmatch(r"[\d,'’]+|\d(?:\.\d+)?[eE]\+?\d+", low)) or (
            text[first - 1 :][:1] == "=" and "first" not in groups and found.start("unit") > first
        ):
            return None  # S=64 tests, an error of 0.2
        if _NAMED.search(_ahead(text, first)):
            return None  # RTX 4090 cards, kernel 2 runs
        if f"{written}s" in NOUNS and (
            (groups.get("gap") == " " and low != "1") or "/" in found[0]
        ):
            return None  # the 128 case
        if written in _VERBS and re.match(r"\s\d", text[found.end() :]):
            return None  # 256 spills 48 bytes
        if _EACH.search(_ahead(text, first)):
            return None  # one of every 10,000 batches
    if re.search(r"\d\s?[×x]\s\Z|(?<![\w.,])(?:1|[Oo]ne)\sin\s\Z", _ahead(text, first)):
        return None  # 16 x 16 tiles, 1 in 5 runs
    if unit == "min" and _OF_HOURS.search(_ahead(text, first)):
        return None  # the rest of a time in words that are not known
    if written == "s" and re.match(r"\sof\b", text[found.end() :]) and not groups.get("gap"):
        return None  # 100s of files
    if groups.get("gap") == "-" and (unit in {"%", "×"} or len(written) < 3) and written != "fold":
        return None
    each = groups.get("each")
    if each and not groups.get("per") and unit not in TIMES and unit not in {"%", "×", "days"}:
        return f"{unit}/{TIMES.get(each, each)}"
    per = groups.get("per")
    return f"{unit}{per}" if per else unit


_ARROW = re.compile(r"\d\s*(?:→|->|=>)\s*\d")

_CHANGES = re.compile(
    r"(?i)time|latenc|duration|took|build|compil|bandwidth|throughput|memory|speed|power|traffic"
    r"|usage|occupancy|median|mean|average|p\d\d|total|from|fell|rose|drop|went|goes|grow"
    r"|grew|shr[aiu]nk|increas|decreas|improve|reduc|raised|cut|faster|slower|now|was"
)


def _is_change(found: re.Match[str], text: str) -> bool:
    """Whether "67 → 3 min" is a change of one figure, and not what follows from a size of 67."""
    before = text[: found.start()]
    if (len(_ARROW.findall(text)) > 1 and found["first"].isdecimal()) or before.endswith("="):
        return False
    return (
        not found["first"].isdecimal()
        or not re.search(r"\w", before)
        or _CHANGES.search(before) is not None
    )


def _stretch(unit: str, before: str) -> bool:
    """Whether "over 3 hours" or "over 64 cases" may say along what, and not that it is more."""
    counted = unit in TIMES or unit == "days" or re.fullmatch(r"[A-Za-z]{3,}", unit)
    return bool(counted) and not _LONGER.search(before)


def _quantity(
    relation: str, low: str, high: str | None, unit: str, name: str, start: int, end: int,
    style: Habits, opened: bool = False,
) -> Iterator[Stated]:  # fmt: skip
    comma = bool(style.comma)
    low, high = digits(low, comma=comma), high and digits(high, comma=comma)
    if high is not None and Decimal(high) < Decimal(low):
        return  # "10-5 min" is no range
    text = f"{relation}{low}{f'..{high}' if high else ''}{'+' if opened else ''} {unit}".strip()
    yield Stated(start, end, text, unit, name)


def _compound(found: re.Match[str], relation: str, start: int, end: int) -> Iterator[Stated]:
    groups = found.groupdict()
    if groups["days"]:
        yield Stated(
            start, end, f"{relation}{24 * int(groups['days']) + int(groups['hours2'])} h", "h"
        )
        return
    if groups["hours"] is None:
        seconds = Decimal(groups["minutes2"] or groups["minutes4"]) * 60
        seconds += Decimal(groups["seconds2"] or groups["seconds4"])
        yield Stated(start, end, f"{relation}{seconds} s", "s")
        return
    minutes = Decimal(groups["hours"]) * 60 + Decimal(groups["minutes"] or groups["minutes3"])
    if groups["seconds"]:
        yield Stated(start, end, f"{relation}{minutes * 60 + Decimal(groups['seconds'])} s", "s")
    else:
        yield Stated(start, end, f"{relation}{minutes} min", "min")


def _relation(text: str | None) -> str:
    text = (text or "").strip()
    return RELATION_OF.get(text.lower()) or _SIGNS.get(text, text)


def _per(text: str | None) -> str:
    if not text:
        return ""
    if text.startswith(_DAYS):
        return "/day"
    return f"/{TIMES_ELSEWHERE.get(text) or TIMES.get(text.lower().rstrip('s') or 's', 's')}"


def unit_of(text: str) -> str:
    """A unit as records write it: ``minutes`` → ``min``."""
    if text in {"x", "×", "times", "fois", "fold", "-fold"}:
        return "×"
    if text.replace(" ", "") == "percent":
        return "%"
    if text in {"byte", "bytes"}:
        return "B"
    if worked := re.match("(?:GPU|CPU|card|person|man|engineer)[- ]([hd])", text):
        return "h" if worked[1] == "h" else "days"
    if re.fullmatch(r"[KkMGT]o(?:/s)?", text):
        return text.replace("o", "B")
    return (TIMES.get(text) or TIMES.get(text.removesuffix("s"))
            or TIMES_ELSEWHERE.get(text) or NOUNS_ELSEWHERE.get(text) or BYTES_ELSEWHERE.get(text)
            or _NOUN_OF.get(text.lower()) or text)  # fmt: skip


def is_name(text: str, position: int) -> bool:
    """Whether the number at ``position`` is part of a name: ``Pattern 9``, ``CUDA 12.1``."""
    return _NUMBERED.search(_ahead(text, position)) is not None
