"""How a figure may be written: the regular expressions that find figures in a line of prose."""

from __future__ import annotations

import re
from functools import cache

from kbtool.logs.languages import (
    BYTES_ELSEWHERE,
    NOUNS_ELSEWHERE,
    RELATIONS,
    TIMES_ELSEWHERE,
)
from kbtool.logs.numerals import COMMA, POINT

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

METRIC = (
    r"(?:(?:max(?:imum)?|mean|avg|average|rel(?:ative)?|abs(?:olute)?|min(?:imum)?|largest|numerical)"
    r"[ _-])*(?:diff(?:erence)?|err(?:or)?|mae|mse|rmse|speed-?up|tol(?:erance)?|atol|rtol"
    r"|accuracy|loss|cosine(?: similarity)?|ulp)s?"
)

COUNTS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
           "ten": 10, "eleven": 11, "twelve": 12}  # fmt: skip

_COUNTED_OUT = "|".join(COUNTS)

OF_TIME = "(?:second|minute|hour|day|week)"

RELATION_OF = {word: sign for sign, words in RELATIONS.items() for word in words}

_JOINED = "|".join(word for word in RELATION_OF if word[0] >= "\u3040")
"""Words of Japanese and Chinese, which stand before a number without a space."""

_RELATION = (
    rf"(?P<rel>~=?|≈|≃|<=|(?<![-=])>=|[≤≥⩽⩾]|<|(?<![-=])>|{_JOINED}"
    rf"|\b(?i:{'|'.join(map(re.escape, RELATION_OF))})\s)?\s*"
)

_DASH = r"\s*(?:-|–|—|−|〜|～|\.\.\.?|to(?=\s)|bis(?=\s)|à(?=\s)|a(?=\s\d))\s*"

_MONEY_WORDS = (
    r"(?i:(?:US )?dollars?|euros?|Swiss francs?|pounds?|rupees?|yen|yuan"
    r"|руб(?:лей|ля|ль|\.)?|₽)"
)

_SYMBOLS = r"US\$|CA\$|A\$|C\$|NZ\$|HK\$|S\$|\$|€|£|₹|¥|￥"

CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|RUB|CAD|AUD|NZD|SGD|HKD|SEK|NOK|DKK|PLN|KRW|BRL|TWD|CZK"

_PER = (
    r"(?:\s*/\s*|\s+per\s+|\s+an?\s+|\s+pro\s+|\s+par\s+|\s+por\s+|\s+all'|\s+в\s+|\s+за\s+)(?:GPU-?)?(?P<per>hours?|hrs?|h"
    r"|min(?:ute)?s?|sec(?:ond)?s?|s|days?|Stunde|Std\.?|heure|hora|ora|uur|час|ч|Minute|Tag|jour|時間)"
    r"(?![^\W\d_])"
)

_EACH_TIME = r"\s(?:per|an?|each|every)\s(?P<each>second|minute|hour|day|week)\b"

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

KEY_UNITS = {"ns": "ns", "us": "us", "usec": "us", "ms": "ms", "msec": "ms", "s": "s",
              "sec": "s", "secs": "s", "seconds": "s", "minutes": "min", "mins": "min",
              "h": "h", "hours": "h", "hrs": "h", "kb": "KB", "kib": "KiB", "mb": "MB",
              "mib": "MiB", "gb": "GB", "gib": "GiB", "tflops": "TFLOPS", "gflops": "GFLOPS",
              "mhz": "MHz", "ghz": "GHz", "pct": "%", "percent": "%", "usd": "USD", "eur": "EUR",
              "gbp": "GBP", "chf": "CHF", "jpy": "JPY", "gb_s": "GB/s", "gib_s": "GiB/s",
              "tb_s": "TB/s", "watts": "W", "joules": "J", "w": "W"}  # fmt: skip

KEY_UNITS |= {
    f"{code.lower()}_per_{hour}": f"{code}/h"
    for code in ("USD", "EUR", "GBP")
    for hour in ("h", "hour")
}
"""The unit at the end of a name, as in ``latency_us: 12.5``. ``min`` is the least as often."""


def _words_of(unit: str) -> str:
    """The words of other languages for a unit, as alternatives."""
    known = sorted((w for w, of in TIMES_ELSEWHERE.items() if of == unit), key=len, reverse=True)
    return "|".join(map(re.escape, known))


@cache
def expressions(comma: bool) -> dict[str, re.Pattern[str]]:
    """Form of a figure → the expression that finds it, where decimals have a comma or a point."""
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
            rf"(?P<code>(?:{CODES})\b|(?:{_MONEY_WORDS})(?!\w)|\$(?!\w)|[€£₹円元])(?:{_PER})?"
            rf"{_NO_MORE}"
            r"(?P<after>以内|以下|以上|未満)?"
        ),
        # EUR 12.50
        "code": re.compile(
            rf"{_RELATION}\b(?P<code>{CODES})\s?(?P<low>{n})(?P<open>\+)?"
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
            rf"{_RELATION}(?i:\b(?:(?P<many>an?|one|{_COUNTED_OUT})\s(?:(?P<unit>{OF_TIME})\sand\sa\shalf"
            rf"|and\sa\shalf\s(?P<unit2>{OF_TIME})s)"
            rf"|(?P<low>one|{_COUNTED_OUT})(?:\s(?:to|or)\s|\s?[-–]\s?)(?P<high>{_COUNTED_OUT})"
            rf"\s(?P<unit3>{OF_TIME})s|an?\s(?P<unit4>{OF_TIME})\sor\s(?P<two>two)"
            rf"|(?P<count>{_COUNTED_OUT}|half\san?)\s(?P<unit5>{OF_TIME}|per\s?cent)s?)\b)"
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
            + "|".join(sorted((*KEY_UNITS, "gbs", "gbps"), key=len, reverse=True))
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
