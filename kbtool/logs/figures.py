"""Figures in a line of prose: a number with its unit, its currency, its bound or its range."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import NamedTuple


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


TIMES = {"ns": "ns", "us": "us", "µs": "us", "μs": "us", "usec": "us", "microsecond": "us",
         "ms": "ms", "msec": "ms", "millisecond": "ms", "nanosecond": "ns",
         "s": "s", "sec": "s", "second": "s", "min": "min", "minute": "min", "h": "h",
         "hr": "h", "hour": "h"}  # fmt: skip
_NOUNS = (
    "lines", "files", "tests", "configs", "configurations", "cases", "checks", "sessions",
    "patterns", "steps", "bugs", "fixes", "commits", "insertions", "deletions", "iterations",
    "iters", "runs", "samples", "warps", "warpgroups", "threads", "blocks", "CTAs", "SMs",
    "registers", "functions", "kernels", "strategies", "attempts", "errors", "warnings", "failures",
    "passes", "stages", "splits", "tiles", "heads", "tokens", "hypotheses", "options", "scripts",
    "documents", "shapes", "variants", "builds", "launches", "GPUs", "cards", "reports", "pages",
    "words", "issues", "elements", "rows", "columns", "phases", "tasks", "items", "scenarios",
    "techniques", "templates", "modules", "symbols", "instructions", "cycles", "spills", "repeats",
    "repetitions", "trials", "days", "weeks",
)  # fmt: skip
METRIC = (
    r"(?:(?:max(?:imum)?|mean|avg|average|rel(?:ative)?|abs(?:olute)?|min(?:imum)?|largest|numerical)"
    r"[ _-])*(?:diff(?:erence)?|err(?:or)?|mae|mse|rmse|speed-?up|tolerance|atol|rtol|accuracy|loss"
    r"|cosine(?: similarity)?|ulp)s?"
)
_N = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_N_COMMA = r"(?:\d{1,3}(?:[.\u202f\u00a0]\d{3})+(?:,\d+)?|\d+(?:,\d+)?(?:[eE][+-]?\d+)?)"
_RELATION = (
    r"(?P<rel>~|≈|≃|<=|(?<![-=])>=|≤|≥|<|(?<![-=])>|\b(?:about|approximately|approx\.?|around|roughly"
    r"|circa|ca\.|less than|under|below|more than|over|above|at least|at most|up to)\s)?\s*"
)
_DASH = r"\s*(?:-|–|—|−|\.\.\.?|to(?=\s))\s*"
_SYMBOLS = r"US\$|CA\$|A\$|C\$|NZ\$|HK\$|S\$|\$|€|£|₹|¥"
_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SGD|HKD|SEK|NOK|DKK|PLN|KRW|BRL|TWD|CZK"
_NOT_MONEY = frozenset(("CTA", "SMS"))
_PER = (
    r"(?:\s*/\s*|\s+per\s+|\s+an?\s+)(?:GPU-?)?(?P<per>hours?|hrs?|h|min(?:ute)?s?"
    r"|sec(?:ond)?s?|s|days?)\b"
)
_UNIT = (
    r"(?P<unit>[kMG]?(?:iter|it|req|tok(?:en)?|sample|call|launch|step|query|querie|op)(?:s|es)?/s(?:ec)?\b"
    r"|[kKMGTP]i?B/s\b|[kMGTP]?FLOPS\b|[kMGTP]?FLOPs?/s\b"
    r"|[kKMGTP]i?B\b|bytes?\b|[kMG]Hz\b"
    r"|%|per ?cent\b|×(?!\s?[\d$€£])|x\b(?!\s?[\d$€£])|times(?=\s(?:as|faster|slower|the|more"
    r"|less|better|worse)\b)"
    r"|(?:ns|us|µs|μs|usec|ms|msec|s|secs?|mins?|h|hrs?)(?![\w%])|(?:nano|micro|milli)?seconds?\b"
    r"|minutes?\b|hours?\b|days\b|W\b|°C|GB\b"
    r"|(?P<noun>(?:" + "|".join(f"{n[:-1]}s?" if n[-1] == "s" and n[-2] != "s" else n
                                for n in _NOUNS) + r")\b))"
)  # fmt: skip
_RELATIONS = {"~": "~", "≈": "~", "≃": "~", "≤": "<=", "≥": ">=", "about": "~",
              "approximately": "~",
              "approx": "~", "approx.": "~", "around": "~", "roughly": "~", "circa": "~",
              "ca.": "~",
              "less than": "<", "under": "<", "below": "<", "more than": ">", "over": ">",
              "above": ">", "at least": ">=", "at most": "<=", "up to": "<="}  # fmt: skip
_SYMBOL_CODES = {"US$": "USD", "€": "EUR", "£": "GBP", "₹": "INR", "CA$": "CAD", "C$": "CAD",
                 "A$": "AUD", "NZ$": "NZD", "HK$": "HKD", "S$": "SGD"}  # fmt: skip
_NUMBERED = re.compile(
    r"(?:pattern|session|bug|step|phase|option|priority|pass|line|lines|section|stage|table|case"
    r"|checkpoint|figure|issue|version|python|cuda|pytorch|week|day|level|v|#|page|chapter|attempt)"
    r"\s*\Z",
    re.IGNORECASE,
)


def habits(text: str) -> Habits:
    """How a report writes decimals, and which currency its dollars are."""
    unit = r"\s?(?:ms|us|µs|s|min|h|GB|MB|€|EUR|%|×|x|USD|GB/s)(?!\w)"
    comma = len(re.findall(rf"(?<![\d.,])\d+,\d{{1,2}}{unit}", text))
    comma += len(re.findall(rf"(?<![\d.,])\d{{1,3}}(?:\.\d{{3}})+,\d+{unit}", text))
    point = len(re.findall(rf"(?<![\d.,])\d+\.\d+{unit}|[$€£]\s?\d+\.\d\d(?!\d)", text))
    others = set(re.findall(r"\b(?:CAD|AUD|NZD|SGD|HKD|MXN|TWD)\b", text))
    stated = re.search(r"(?im)^\W*currency\W*:\W*([A-Z]{3})\b", text)
    dollar = "USD"
    if others:
        dollar = stated[1] if stated else ""
    return Habits(None if comma and point else comma > 0, dollar or None)


@cache
def _expressions(comma: bool) -> tuple[re.Pattern[str], ...]:
    n = _N_COMMA if comma else _N
    before = r"(?<![\w.,/^#@+×$€£¥₹\\-])(?<![$€£¥₹]\s)(?<!\d[:])"
    return (
        # $0.80-1.20/hr
        re.compile(
            rf"{_RELATION}(?P<symbol>(?<![\w$])(?:{_SYMBOLS}))\s?(?P<low>{n})(?P<open>\+)?"
            rf"(?:{_DASH}(?:{_SYMBOLS})?\s?(?P<high>{n}))?(?![\w%]|[.,]\d)(?:{_PER})?"
        ),
        # 12.50 EUR per hour, 12,50 €
        re.compile(
            rf"{_RELATION}{before}(?P<low>{n})(?P<open>\+)?(?:{_DASH}(?P<high>{n}))?\s?"
            rf"(?P<code>(?:{_CODES})\b|[€£₹])(?:{_PER})?"
        ),
        # EUR 12.50
        re.compile(
            rf"{_RELATION}\b(?P<code>{_CODES})\s?(?P<low>{n})(?P<open>\+)?"
            rf"(?:{_DASH}(?P<high>{n}))?(?![\w%]|[.,]\d)(?:{_PER})?"
        ),
        # 1 hour 47 minutes, 2h15m, 0m12.3s
        re.compile(
            rf"{_RELATION}{before}(?:(?P<hours>\d+)\s?(?:h|hrs?|hours?)[\s,]*(?:and\s)?"
            r"(?P<minutes>\d+)\s?(?:min(?:ute)?s?|m)\b(?:[\s,]*(?:and\s)?"
            r"(?P<seconds>\d+(?:\.\d+)?)\s?(?:s|sec(?:ond)?s?)\b)?"
            r"|(?P<minutes2>\d+)\s?(?:min(?:ute)?s?|m)[\s,]*(?:and\s)?"
            r"(?P<seconds2>\d+(?:\.\d+)?)\s?(?:s|sec(?:ond)?s?)\b)"
        ),
        # 5 min – 10 min
        re.compile(
            rf"{_RELATION}{before}(?P<low>{n})\s?(?P<unit>ns|us|µs|ms|s|sec|min|h|hr|hours|%|GB|MB|KB|×|x)"
            rf"\s*[-–]\s*(?P<high>{n})\s?(?P=unit)(?!\w)"
        ),
        # 67 → 3 min
        re.compile(rf"{before}(?P<first>{n})\s*(?:→|->|=>)\s*(?P<second>{n})[\s-]?{_UNIT}"),
        # 4/5 sessions, 4 of 5 sessions
        re.compile(
            r"(?<![\w./-])(?P<first>\d+)\s?(?:/|of(?: the)?\s|out of\s)\s?(?P<second>\d+)\s"
            rf"(?:[a-z][\w-]*\s)?{_UNIT}"
        ),
        # 5-10 min, ~240 KB, < 0.1 %, 10× faster, +316 lines
        re.compile(
            rf"{_RELATION}{before}(?P<sign>(?<![\w)\]])[+−-])?(?P<low>{n})(?P<open>\+)?"
            rf"(?:{_DASH}(?P<high>{n})(?P<open2>\+)?)?(?P<gap>[\s-]?){_UNIT}(?P<per>/[a-z]+\b)?"
            r"(?P<open3>(?<=×)\+|(?<=x)\+)?"
        ),
        # 11 operational patterns
        re.compile(
            rf"{_RELATION}{before}(?P<low>\d+)(?P<gap>\s)(?!to\b|of\b|and\b|or\b|in\b|is\b|are\b|min\b|s\b)"
            rf"[A-Za-z][\w-]*\s{_UNIT}"
        ),
        # max_diff < 0.1, max difference: 4.72 (target: < 0.1)
        re.compile(
            rf"(?i:(?<![\w-])(?P<name>{METRIC}))(?:\s*(?:=|:|is|was|of|at)\s*|\s+|\s*(?=[<>~≈≤≥]))"
            rf"{_RELATION}(?P<low>-?{n})(?:{_DASH}(?P<high>{n}))?(?![\w%×/]|[.,:]\d|\s?(?:×|%))"
        ),
        # (target: < 0.1): without the sign it may be anything
        re.compile(
            r"(?i:(?<![\w-])(?P<name>target|threshold|bound))\s*:?\s*(?P<rel><=|>=|≤|≥|<|>)\s*"
            rf"(?P<low>{n})(?![\w%×/]|[.,:]\d|\s?(?:×|%))"
        ),
    )


def figures(text: str, style: Habits) -> list[Stated]:
    """The figures in ``text``, in their order. A number without a unit is none."""
    if not any(character.isdigit() for character in text):
        return []
    taken: list[Stated] = []
    if style.comma is None and re.search(r"\d,\d", text):
        return []
    for at, expression in enumerate(_expressions(bool(style.comma))):
        for found in expression.finditer(text):
            for stated in _stated(at, found, text, style):
                if not any(stated.start < t.end and t.start < stated.end for t in taken):
                    taken.append(stated)
    return sorted(taken, key=lambda stated: stated.start)


def _stated(at: int, found: re.Match[str], text: str, style: Habits) -> Iterator[Stated]:
    groups = found.groupdict()
    start, end = found.span()
    start += len(found[0]) - len(found[0].lstrip())
    relation = _relation(groups.get("rel"))
    if at == 3:
        yield from _compound(found, relation, start, end)
        return
    per = groups.get("per")
    name = groups.get("name") or ""
    unit: str | None = ""
    if at in {0, 1, 2}:
        sign = groups.get("symbol") or groups.get("code") or ""
        unit = sign if re.fullmatch(_CODES, sign) else _SYMBOL_CODES.get(sign)
        unit = style.dollar if sign == "$" else unit
        unit = unit and f"{unit}{_per(per)}"
    elif at < 9:
        unit = unit_of(groups["unit"])
        if groups.get("noun") and _NUMBERED.search(text[: found.start()]):
            return
        if groups.get("noun") and not (
            re.fullmatch(r"[\d.,]+", groups.get("low") or "0")
            and "." not in (groups.get("low") or "")
            and text[found.start("low" if "low" in groups else "first") - 1 :][:1] != "="
        ):
            return  # S=64 tests, an error of 0.2
        gap = groups.get("gap")
        if gap == "-" and (unit in {"%", "×"} or len(groups["unit"]) < 3):
            return
        if per and unit:
            unit += per
    if unit is None:
        return
    if "first" in groups:
        half = found.start("second")
        yield from _quantity("", groups["first"], None, unit, "", start, half, style)
        yield from _quantity("", groups["second"], None, unit, "", half, end, style)
        return
    low = groups["low"]
    if groups.get("sign") in {"−", "-"}:
        low = f"-{low}"
    opened = bool(groups.get("open") or groups.get("open2") or groups.get("open3"))
    yield from _quantity(relation, low, groups.get("high"), unit, name, start, end, style, opened)


def _quantity(
    relation: str, low: str, high: str | None, unit: str, name: str, start: int, end: int,
    style: Habits, opened: bool = False,
) -> Iterator[Stated]:  # fmt: skip
    low, high = _digits(low, style), high and _digits(high, style)
    if high is not None and Decimal(high) < Decimal(low):
        return  # "10-5 min" is no range
    text = f"{relation}{low}{f'..{high}' if high else ''}{'+' if opened else ''} {unit}".strip()
    yield Stated(start, end, text, unit, name)


def _compound(found: re.Match[str], relation: str, start: int, end: int) -> Iterator[Stated]:
    groups = found.groupdict()
    if groups["minutes2"] is not None:
        seconds = Decimal(groups["minutes2"]) * 60 + Decimal(groups["seconds2"])
        yield Stated(start, end, f"{relation}{seconds} s", "s")
        return
    minutes = Decimal(groups["hours"]) * 60 + Decimal(groups["minutes"])
    if groups["seconds"]:
        yield Stated(start, end, f"{relation}{minutes * 60 + Decimal(groups['seconds'])} s", "s")
    else:
        yield Stated(start, end, f"{relation}{minutes} min", "min")


def _relation(text: str | None) -> str:
    text = (text or "").strip()
    return _RELATIONS.get(text.lower(), text)


def _per(text: str | None) -> str:
    if not text:
        return ""
    return "/day" if text.startswith("day") else f"/{TIMES.get(text.rstrip('s') or 's', 's')}"


def _digits(text: str, style: Habits) -> str:
    if style.comma:
        return re.sub(r"[.\u202f\u00a0](?=\d{3})", "", text).replace(",", ".").lower()
    return text.replace(",", "").lower()


def unit_of(text: str) -> str:
    """A unit as records write it: ``minutes`` → ``min``."""
    if text in {"x", "×", "times"}:
        return "×"
    if text.replace(" ", "") == "percent":
        return "%"
    if text in {"byte", "bytes"}:
        return "B"
    return TIMES.get(text) or TIMES.get(text.removesuffix("s")) or text


def is_name(text: str, position: int) -> bool:
    """Whether the number at ``position`` is part of a name: ``Pattern 9``, ``CUDA 12.1``."""
    return _NUMBERED.search(text[:position]) is not None
