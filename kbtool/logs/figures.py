"""Figures in a line of prose: a number with its unit, its currency, its bound or its range."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import NamedTuple

from kbtool.logs.languages import (
    ALSO_TO,
    BYTES_ELSEWHERE,
    NOUNS_ELSEWHERE,
    RELATIONS,
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
NOUNS = (
    "lines", "files", "tests", "configs", "configurations", "cases", "checks", "sessions",
    "patterns", "steps", "bugs", "fixes", "commits", "insertions", "deletions", "iterations",
    "iters", "runs", "rounds", "samples", "warps", "warpgroups", "threads", "blocks", "CTAs", "SMs",
    "registers", "functions", "kernels", "strategies", "attempts", "errors", "warnings", "failures",
    "passes", "stages", "splits", "tiles", "heads", "tokens", "hypotheses", "options", "scripts",
    "documents", "shapes", "variants", "builds", "launches", "GPUs", "cards", "reports", "pages",
    "words", "issues", "elements", "rows", "columns", "phases", "tasks", "items", "scenarios",
    "techniques", "templates", "modules", "symbols", "instructions", "cycles", "spills", "repeats",
    "repetitions", "trials", "days", "weeks", "tensors", "parameters", "requests",
    "batches", "layers", "experts", "mismatches", "switches", "calls", "loops", "nodes",
    "cores", "frames", "sweeps",
    "images", "passed", "failed", "skipped",
)  # fmt: skip
_NOUN_OF = {noun.lower(): noun for noun in NOUNS}
METRIC = (
    r"(?:(?:max(?:imum)?|mean|avg|average|rel(?:ative)?|abs(?:olute)?|min(?:imum)?|largest|numerical)"
    r"[ _-])*(?:diff(?:erence)?|err(?:or)?|mae|mse|rmse|speed-?up|tol(?:erance)?|atol|rtol"
    r"|accuracy|loss|cosine(?: similarity)?|ulp)s?"
)
_COUNTS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
           "ten": 10, "eleven": 11, "twelve": 12}  # fmt: skip
_COUNTED_OUT = "|".join(_COUNTS)
_OF_TIME = "(?:second|minute|hour|day|week)"
_SIGNS = {"≈": "~", "~=": "~", "≃": "~", "≤": "<=", "≥": ">=", "⩽": "<=", "⩾": ">="}
_FROM = re.compile(r"(?i)\b(?:from|von|de|desde|da|van|с|от)\s[\d.,]+\s?[^\s\d]{0,6}\s\Z")
"""Before words that mean "up to" and "to": from 180 GB/s to 246 GB/s."""
_RELATION_OF = {word: sign for sign, words in RELATIONS.items() for word in words}
_AFTER = {"以内": "<=", "以下": "<=", "以上": ">=", "未満": "<"}
"""What Japanese says after a figure of it."""
_JOINED = "|".join(word for word in _RELATION_OF if word[0] >= "\u3040")
"""Words of Japanese and Chinese, which stand before a number without a space."""
_RELATION = (
    rf"(?P<rel>~=?|≈|≃|<=|(?<![-=])>=|[≤≥⩽⩾]|<|(?<![-=])>|{_JOINED}"
    rf"|\b(?i:{'|'.join(map(re.escape, _RELATION_OF))})\s)?\s*"
)
_DASH = r"\s*(?:-|–|—|−|〜|～|\.\.\.?|to(?=\s)|bis(?=\s)|à(?=\s)|a(?=\s\d))\s*"
_IN_WORDS = {"us dollar": "USD", "euro": "EUR", "swiss franc": "CHF", "pound": "GBP",
             "rupee": "INR", "yen": "JPY", "yuan": "CNY", "руб": "RUB", "рубль": "RUB",
             "рубля": "RUB", "рублей": "RUB", "руб.": "RUB", "₽": "RUB"}  # fmt: skip
_MONEY_WORDS = (
    r"(?i:(?:US )?dollars?|euros?|Swiss francs?|pounds?|rupees?|yen|yuan"
    r"|руб(?:лей|ля|ль|\.)?|₽)"
)
_SYMBOLS = r"US\$|CA\$|A\$|C\$|NZ\$|HK\$|S\$|\$|€|£|₹|¥|￥"
_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|RUB|CAD|AUD|NZD|SGD|HKD|SEK|NOK|DKK|PLN|KRW|BRL|TWD|CZK"
_NOT_MONEY = frozenset(("CTA", "SMS"))
_PER = (
    r"(?:\s*/\s*|\s+per\s+|\s+an?\s+|\s+pro\s+|\s+par\s+|\s+por\s+|\s+all'|\s+в\s+|\s+за\s+)(?:GPU-?)?(?P<per>hours?|hrs?|h"
    r"|min(?:ute)?s?|sec(?:ond)?s?|s|days?|Stunde|Std\.?|heure|hora|ora|uur|час|ч|Minute|Tag|jour|時間)"
    r"(?![^\W\d_])"
)
_EACH_TIME = r"\s(?:per|an?|each|every)\s(?P<each>second|minute|hour|day|week)\b"
_DAYS = ("day", "Tag", "jour")
_NO_MORE = r"(?!\s?/\s?[^\W\d_]|\s?(?:[kKM]|bn|hundred|thousand|[mb]illion|Mio|mila|mille|mil)\b)"
"""After an amount: not by what no word for a time names, and not a multiple of it."""
_END = "(?![A-Za-z0-9_])"
"""The end of a unit; Japanese and Chinese go on without a space."""
_COUNTED = "|".join(f"{n[:-1]}s?" if n[-1] == "s" and n[-2] != "s" else n for n in NOUNS)
_UNIT = (
    r"(?P<unit>(?:"
    r"[kMG]?(?:iter|it|req|tok(?:en)?|sample|call|launch|step|query|querie|op)(?:s|es)?/s(?:ec)?"
    r"|[kKMGTP]i?B/s|[kMGTP]?FLOPS|[kMGTP]?FLOPs?/s|[kMGTP]FLOP|[kKMGTP]i?B|bytes?|[kMG]Hz"
    r"|per ?cent|-?fold|(?:nano|micro|milli)?seconds?|minutes?|hours?|days|[kM]?Wh?|[km]?J"
    r"|(?:GPU|CPU|card|person|man|engineer)[- ](?:hours?|hrs?|h|days?)"
    rf"|(?P<noun>{_COUNTED}|{'|'.join(NOUNS_ELSEWHERE)})){_END}"
    r"|%|°C|(?:×|x\b)(?!\s?(?:[\d$€£]|[A-Z]{1,2}\d|GPUs?\b"
    r"|NVIDIA|GeForce|RTX|Tesla|Quadro|AMD|Instinct|Intel))"
    r"|fois(?=\s(?:plus|moins)\b)|times(?=\s(?:as|faster|slower|the|more|less|better|worse)\b)"
    r"|(?:ns|us|µs|μs|usec|ms|msec|s|secs?|mins?|h|hrs?)(?![\w%])"
    r"|(?:" + "|".join(re.escape(w) for w in TIMES_ELSEWHERE if w[0] < "一") + r")(?!\w)"
    rf"|(?:{'|'.join(sorted(BYTES_ELSEWHERE, key=len, reverse=True))})(?!\w)"
    r"|ミリ秒|マイクロ秒|時間(?!半)|小时(?!半)|分钟|分(?:(?=かか)|(?![のか割類岐布之]))|秒)"
)  # fmt: skip
_OCTETS = r"(?P<unit>[KkMGT]o(?:/s)?)\b"
"""Bytes in French; only where the report has decimal commas."""
_SYMBOL_CODES = {"US$": "USD", "€": "EUR", "£": "GBP", "₹": "INR", "CA$": "CAD", "C$": "CAD",
                 "A$": "AUD", "NZ$": "NZD", "HK$": "HKD", "S$": "SGD",
                 "円": "JPY", "元": "CNY"}  # fmt: skip
_KEY_UNITS = {"ns": "ns", "us": "us", "usec": "us", "ms": "ms", "msec": "ms", "s": "s",
              "sec": "s", "secs": "s", "seconds": "s", "minutes": "min", "mins": "min",
              "h": "h", "hours": "h", "hrs": "h", "kb": "KB", "kib": "KiB", "mb": "MB",
              "mib": "MiB", "gb": "GB", "gib": "GiB", "tflops": "TFLOPS", "gflops": "GFLOPS",
              "mhz": "MHz", "ghz": "GHz", "pct": "%", "percent": "%", "usd": "USD", "eur": "EUR",
              "gbp": "GBP", "chf": "CHF", "jpy": "JPY", "gb_s": "GB/s", "gib_s": "GiB/s",
              "tb_s": "TB/s", "watts": "W", "joules": "J", "w": "W"}  # fmt: skip
_KEY_UNITS |= {
    f"{code.lower()}_per_{hour}": f"{code}/h"
    for code in ("USD", "EUR", "GBP")
    for hour in ("h", "hour")
}
"""The unit at the end of a name, as in ``latency_us: 12.5``. ``min`` is the least as often."""
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


def _words_of(unit: str) -> str:
    """The words of other languages for a unit, as alternatives."""
    known = sorted((w for w, of in TIMES_ELSEWHERE.items() if of == unit), key=len, reverse=True)
    return "|".join(map(re.escape, known))


@cache
def _expressions(comma: bool) -> dict[str, re.Pattern[str]]:
    n = COMMA if comma else POINT
    # Not within a word, a version, a date or a longer number; Japanese has no spaces.
    before = (
        r"(?<![^\W\u3040-\u30ff\u3400-\u9fff])(?<![.,/^#@+×$€£¥₹\\-])(?<![$€£¥₹]\s)(?<!\d[:'’])"
        r"(?<!\d±)(?<!\d±\s)(?<!\d\s±)(?<!\d\s±\s)(?<![≪≫≠≲≳])(?<![≪≫≠≲≳]\s)"
        r"(?<!\+-)(?<!\+-\s)(?<!minus\s)"
    )
    unit = f"(?:{_UNIT}|{_OCTETS.replace('<unit>', '<octets>')})" if comma else _UNIT
    spread = rf"(?:\s?(?:±|\+/?-)\s?{n})?"
    whole = r"(?![\w%]|[.,'’]\d|\s?(?:±|\+/?-|[×·]\s?10))"
    return {
        # $0.80-1.20/hr
        "symbol": re.compile(
            rf"{_RELATION}(?P<symbol>(?<![\w$−-])(?:{_SYMBOLS}))\s?(?P<low>{n})(?P<open>\+)?"
            rf"(?:{_DASH}(?:{_SYMBOLS})?\s?(?P<high>{n}))?{whole}(?:{_PER})?{_NO_MORE}"
        ),
        # 12.50 EUR per hour, 12,50 €
        "amount": re.compile(
            rf"{_RELATION}{before}(?P<low>{n})(?P<open>\+)?(?:{_DASH}(?P<high>{n}))?\s?"
            rf"(?P<code>(?:{_CODES})\b|(?:{_MONEY_WORDS})(?!\w)|\$(?!\w)|[€£₹円元])(?:{_PER})?"
            rf"{_NO_MORE}"
            r"(?P<after>以内|以下|以上|未満)?"
        ),
        # EUR 12.50
        "code": re.compile(
            rf"{_RELATION}\b(?P<code>{_CODES})\s?(?P<low>{n})(?P<open>\+)?"
            rf"(?:{_DASH}(?P<high>{n}))?{whole}(?:{_PER})?{_NO_MORE}"
        ),
        # 1 hour 47 minutes, 2h15m, 0m12.3s
        "compound": re.compile(
            rf"{_RELATION}{before}(?:(?P<days>\d+)\s?(?:d|days?)[\s,]*(?:and\s)?(?P<hours2>\d+)\s?"
            rf"(?:h|hrs?|hours?)(?!\w)|(?P<hours>\d+)\s?(?:h|hrs?|hours?|{_words_of('h')})"
            r"[\s,]*(?:(?:and|und|et|y|e|en|и)\s)?"
            rf"(?:(?P<minutes>\d+)\s?(?:(?:min(?:ute)?s?|m|{_words_of('min')})(?!\w)\.?|分钟?)"
            # 2h20, 2 h 20
            r"|(?P<minutes3>(?<=h)[0-5]\d(?![\w%°]|[.,'’-]\d)"
            r"|(?<=\s)[0-5]\d(?![\w%°]|[.,'’-]\d|\s?[^\W\d])))(?:[\s,]*(?:and\s)?"
            r"(?P<seconds>\d+(?:\.\d+)?)\s?(?:s|sec(?:ond)?s?)\b)?"
            r"|(?P<minutes2>\d+)\s?(?:min(?:ute)?s?\.?|m)[\s,]*(?:and\s)?"
            r"(?P<seconds2>\d+(?:\.\d+)?)\s?(?:s|sec(?:ond)?s?)\b"
            # 5 min 30
            r"|(?P<minutes4>\d+)\s?min\s(?P<seconds4>[0-5]\d)(?![\w%°]|[.,'’:/-]\d|\s?[^\W_]))"
        ),
        # wall=00:12:41, elapsed: 3:10 h
        "watch": re.compile(
            r"(?i:\b(?:elapsed|(?:finished|completed|done|ended) (?:after|in)|wall(?:[ _-]?time)?"
            r"|duration|took|lasted|real|total|(?:run|net|total)[ _-]?time"
            r"|dauer|durée|duración|durata))\s*[=:]?\s*(?P<hours>\d{1,3}):(?P<minutes>[0-5]\d)"
            r"(?::(?P<seconds>[0-5]\d(?:\.\d+)?)(?![\w:])|\s?(?:h|hrs?|hours|Std\.?|Stunden)\b)"
        ),
        # two days, half an hour, an hour and a half, one to two hours, a day or two
        "words": re.compile(
            rf"{_RELATION}(?i:\b(?:(?P<many>an?|one|{_COUNTED_OUT})\s(?:(?P<unit>{_OF_TIME})\sand\sa\shalf"
            rf"|and\sa\shalf\s(?P<unit2>{_OF_TIME})s)"
            rf"|(?P<low>one|{_COUNTED_OUT})(?:\s(?:to|or)\s|\s?[-–]\s?)(?P<high>{_COUNTED_OUT})"
            rf"\s(?P<unit3>{_OF_TIME})s|an?\s(?P<unit4>{_OF_TIME})\sor\s(?P<two>two)"
            rf"|(?P<count>{_COUNTED_OUT}|half\san?)\s(?P<unit5>{_OF_TIME}|per\s?cent)s?)\b)"
        ),
        # 7¾ h
        "fraction": re.compile(rf"{_RELATION}(?<![\w.,/])(?P<low>\d*)(?P<part>[¼½¾])\s?{_UNIT}"),
        # 5 min – 10 min
        "range": re.compile(
            rf"{_RELATION}{before}(?P<low>{n})\s?(?P<unit>ns|us|µs|ms|s|sec|min|h|hr|hours|%|GB|MB|KB|×|x)"
            rf"\s*[-–]\s*(?P<high>{n})\s?(?P=unit)(?!\w)"
        ),
        # between 3 and 5 ms
        "between": re.compile(
            rf"\b(?i:between|zwischen|entre)\s(?P<low>{n})\s(?:and|und|et|y)\s(?P<high>{n})\s?{_UNIT}"
        ),
        # 16 or 32 threads: two figures
        # 17.4 ms (was 17.6)
        "was": re.compile(
            rf"{before}(?P<first>{n})\s?{_UNIT}\s\((?:was|were|from|before|previously|prev\.?|vs\.?"
            rf"|down from|up from|statt|vorher|avant|antes|prima)\s(?P<second>{n})\)"
        ),
        # 12, 15 and 18 ms; 3.2/4.1/5.0 ms
        "list": re.compile(
            rf"{before}(?<!=)(?P<several>{n}(?:,\s{n}){{0,9}},?\s(?:and|und|et|y|e|en|и|&)\s"
            rf"|{n}(?:\s?/\s?{n}){{1,9}}\s?/\s?)"
            rf"(?P<last>{n})\s?(?P<unit>ns|us|µs|μs|ms|s|min|h|%|[kKMGT]i?B(?:/s)?|[GT]FLOPS|×|x"
            rf"|(?P<noun>{_COUNTED}))(?![\w%])"
        ),
        # and 410 against 371 us
        "or": re.compile(
            rf"{before}(?<!=)(?P<first>{n})\s(?:or|oder|ou|o|against|vs\.?|versus|instead of"
            rf"|gegen|statt|contre|contra|contro|tegen|против)\s(?P<second>{n})\s?{_UNIT}"
        ),
        # 318.1k tok/s, 9.2 M requests, 3 million rows
        "scaled": re.compile(
            rf"{_RELATION}{before}(?P<low>\d+(?:[.,]\d+)?)\s?"
            rf"(?P<scale>k|K|M|G|thousand|million|billion)\s{_UNIT}(?P<per>/[A-Za-z]+\b)?"
            rf"(?:{_EACH_TIME})?"
        ),
        # from 412 to 651 GB/s: two figures, unless it ranges
        "from": re.compile(
            rf"(?<!range\s)(?<!ranges\s)(?<!ranged\s)(?<!varies\s)\b(?i:from|von|de)\s(?P<first>{n})"
            rf"\s(?:to|auf|à|a)\s(?P<second>{n})\s?{_UNIT}"
        ),
        # 67 → 3 min
        "arrow": re.compile(
            rf"{before}(?P<first>{n})\s*(?:→|->|=>)\s*(?P<second>{n})[\s-]?{_UNIT}"
        ),
        # 4/5 sessions, 4 of 5 sessions
        "share": re.compile(
            r"(?<![\w./-])(?P<first>\d+)\s?(?:/|(?:of(?: the)?|out of|von(?: den)?|van(?: de)?|sur"
            r"|de|su|из)\s)\s?(?P<second>\d+)\s"
            rf"(?:[a-z][\w-]*\s)?{_UNIT}"
        ),
        # 2 cases of 96
        "share2": re.compile(
            rf"(?<![\w./-])(?P<first>\d+)\s{_UNIT}\s(?:[a-z]+ed\s)?(?:out of|of|von|sur|de|su)\s"
            r"(?P<second>\d+)"
            r"(?![\w%/:-]|[.,]\d|\s?(?:%|×|[^\W\d_]+s\b|[num]?s\b|h\b|min\b|[kKMGT]i?B))"
        ),
        # 15.1 / 19.8 ms
        "pair": re.compile(
            rf"{before}(?P<first>{n})\s/\s(?P<second>{n})\s?(?P<unit>ns|us|µs|ms|GB/s|TFLOPS)(?![\w/])"
        ),
        # 5-10 min, ~240 KB, < 0.1 %, 10× faster, +316 lines, 2.31 ± 0.02 ms
        "plain": re.compile(
            rf"{_RELATION}{before}(?P<sign>(?<![\w)\]])[+−-])?(?P<low>{n})(?P<open>\+)?{spread}"
            rf"(?:{_DASH}(?P<high>{n})(?P<open2>\+)?)?(?P<gap>[\s-]?){unit}(?P<per>/[A-Za-z]+\b)?"
            rf"(?P<rate>{_EACH_TIME})?"
            r"(?P<open3>(?<=×)\+|(?<=x)\+)?(?P<after>以内|以下|以上|未満)?"
        ),
        # 11 operational patterns
        "described": re.compile(
            rf"{_RELATION}{before}(?P<low>\d+)(?P<gap>\s)(?!to\b|of\b|and\b|or\b|in\b|is\b|are\b|min\b|s\b"
            rf"|hundred|thousand|[mbtr]+illion|dozen|[kM]\b)[A-Za-z][\w-]*\s{_UNIT}"
        ),
        # cases=180, Tests: 96
        "tally": re.compile(
            rf"(?i:(?<![\w-])(?:[a-z]+_)*(?P<noun>(?P<unit>{'|'.join(NOUNS)})))(?:\s?=\s?|:\s+(?=\d+\s*(?:\Z|[;)]|,\s)))"
            r"(?P<low>\d+)(?![\w%/:×-]|[.,]\d|\s?(?:×|%|[num]?s\b|min\b|h\b|[kKMGT]i?B))"
        ),
        # a factor of 1.73
        "factor": re.compile(
            r"(?i:\b(?<!is )(?:an?|overall|total) (?P<factor>factor|Faktor)(?: of)?)[\s.:=]+"
            rf"(?P<low>{n})(?P<unit>)(?![\w%/]|[.,:'’]\d|\s?(?:×|%|±|·))"
        ),
        # latency_us: 142.7, "build_seconds": 74
        "key": re.compile(
            r"(?i:(?<![\w-])(?P<key>[a-z]\w+?_|(?=seconds|minutes))(?P<unit>"
            + "|".join(sorted((*_KEY_UNITS, "gbs", "gbps"), key=len, reverse=True))
            + rf"))\"?\s?[:=]\s*(?P<low>-?{n}){whole}(?!\s?(?:[nuµm]?s|min|h|[KMG]i?B)\b)"
        ),
        # max_diff < 0.1, max difference: 4.72 (target: < 0.1)
        "metric": re.compile(
            rf"(?i:(?<![\w-])(?P<name>{METRIC}))\"?(?:\s*(?:=|:|is|was|of|at)\s*|\s+|\s*(?=[<>~≈≤≥]))"
            rf"{_RELATION}(?P<low>-?{n})(?:{_DASH}(?P<high>{n}))?(?![\w%×/]|[.,:'’]\d|\s?(?:×|%|±|·))"
        ),
        # the error was 2.1e-3 where 5e-3 is allowed
        "power": re.compile(
            rf"{_RELATION}{before}(?P<low>\d+(?:[{',' if comma else '.'}]\d+)?(?:[eE]-\d{{1,3}}"
            r"|\s?[×·]\s?10(?:\^\s?\{?[-−–]\d{1,3}\}?|⁻[⁰¹²³⁴⁵⁶⁷⁸⁹]+)))"
            r"(?![\w%×/]|[.,]\d|\s?(?:×|%|±|·|[nuµm]?s\b))"
        ),
        # (6.4 ± 0.3)e-13
        "bracket": re.compile(
            rf"\((?P<low>\d+(?:[{',' if comma else '.'}]\d+)?)\s?(?:±|\+/?-)\s?{n}\)"
            r"(?P<times>[eE]-\d{1,3}|\s?[×·]\s?10(?:\^\s?\{?[-−–]\d{1,3}\}?|⁻[⁰¹²³⁴⁵⁶⁷⁸⁹]+))"
            r"(?![\w%×/]|[.,]\d|\s?(?:×|%|±|·|[nuµm]?s\b))"
        ),
        # (target: < 0.1): without the sign it may be anything
        "target": re.compile(
            r"(?i:(?<![\w-])(?P<name>target|threshold|bound))\s*:?\s*(?P<rel><=|>=|≤|≥|<|>)\s*"
            rf"(?P<low>{n})(?![\w%×/]|[.,:'’]\d|\s?(?:×|%|±|·))"
        ),
    }


_MONEY = frozenset(("symbol", "amount", "code"))
_PRINTED = re.compile(
    r"\[\s*\d{1,3}\s?%\]"
    r"|\A\s*(?:[(\[]\d+ rows?(?: [x×] \d+ columns?)?[)\]]|\d+ rows? (?:in set|selected).*)\s*\Z"
)
"""What is of no work: how far pytest, CMake and ninja are, how many rows a client printed."""


def figures(text: str, style: Habits) -> list[Stated]:
    """The figures in ``text``, in their order. A number without a unit is none."""
    if not re.search(rf"[\d¼½¾]|(?i:{_OF_TIME}|per\s?cent)", text):
        return []
    text = _PRINTED.sub(lambda found: " " * len(found[0]), narrow(text))
    taken: list[Stated] = []
    covered = bytearray(len(text))
    if style.comma is None and re.search(r"\d,\d", text):
        return []
    for form, expression in _expressions(bool(style.comma)).items():
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
        many = f"{_COUNTS.get(said['many'], 1)}.5"
    elif said["low"]:
        low, high = _COUNTS.get(said["low"], 1), _COUNTS[said["high"]]
        if low >= high:
            return
        many = f"{low}..{high}"
    elif said["two"]:
        many = "1..2"
    elif said["count"] in _COUNTS:
        many = str(_COUNTS[said["count"]])
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
    return sign if re.fullmatch(_CODES, sign) else _SYMBOL_CODES.get(sign)


def _unit_of_key(key: str, unit: str) -> str | None:
    unit = unit.lower()
    if unit in {"gbs", "gbps"}:  # gbps may be bits
        return "GB/s" if unit == "gbs" and _BYTES_PER_SECOND.search(key) else None
    if len(unit) == 1 and not (_POWER if unit == "w" else _TAKES_TIME).search(key):
        return None  # n_h: 8 heads
    return _KEY_UNITS[unit]


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
    return _RELATION_OF.get(text.lower()) or _SIGNS.get(text, text)


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
