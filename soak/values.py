"""Hostile values for the fields of records, by name."""

from __future__ import annotations

import math
from typing import Any

from kbtool.model.base import MAX_DIGITS, MAX_ID, MAX_NAME, MAX_TEXT, MAX_TITLE

TEXTS = {
    "empty": "",
    "blank": " ",
    "control": "a\x1b]0;title\x07\x1b[31mred\x00\x08b",
    "bidi": "a\u202eb\u2066c\u200bd",
    "newlines": "a\nb\r\nc",
    "long": "a" * 2_000_000,
    "wide": "\u8868\u984c \U0001f600 e\u0301",
    "markup": "<script>alert(1)</script> [x](javascript:alert(1)) {{ 7*7 }} ``` | $x$",
    "snippet": '--8<-- "/etc/passwd" 675',
    "path": "../../../etc/passwd",
    "absolute": "/etc/passwd",
    "nul-path": "a\x00b",
    "placeholder": "${q}",
    "backtracks": "(a+)+$",
    "parentheses": "(" * 5000,
    "bad-expression": "[",
    "zero": "0",
    "minus": "-1",
    "large": "99999999999999999999999",
    "digits": "9" * 100_000,
    "exponent": "1e" + "9" * 140,
    "tiny": "1e-999999",
    "fraction": "0.1234567890123456789012345678901234567890",
    "nan": "nan",
    "infinite": "inf",
    "true": "true",
    "thai-digits": "\u0e52\u0e53",
    "money": "99999999999999999999.99 USD",
    "amount": "1e30 USD",
    "rate": "0 USD/h",
    "minutes": "1833.733 min",
    "time": "9" * 30 + " h",
    "range": "1e9..1e99 min",
    "percent": "1e999 %",
    "last-instant": "9999-12-31T23:59:59Z",
    "first-instant": "0001-01-01T00:00:00+14:00",
    "no-instant": "2025-02-30T25:61:00Z",
    "last-day": "9999-12-31",
    "reference": "#claims",
    "own-reference": "#id",
    "far-reference": "2025-01-01-a#bugs.wrong.hypotheses.sign.likelihood",
    "cycle": "2025-01-02-b#claims.same",
    "no-record": "2025-01-09-z#bugs.x",
    "cite": "log:1-99999999999999999999",
    "commit": "deadbeef",
    "session-id": "2025-01-01-a",
    "pattern-id": "P01",
    "name": "a.b_c-1",
    "id": "a" * MAX_ID,
    "id-and-one": "a" * (MAX_ID + 1),
    "title": "t" * MAX_TITLE,
    "title-and-one": "t" * (MAX_TITLE + 1),
    "name-and-one": "n" * (MAX_NAME + 1),
    "text": "a" * MAX_TEXT,
    "text-and-one": "a" * (MAX_TEXT + 1),
    "text-of-words": "a b " * (MAX_TEXT // 4),
    "text-of-lines": "a\n" * (MAX_TEXT // 2),
    "text-of-tags": "<b>" * (MAX_TEXT // 3),
    "text-of-marks": "*_`[" * (MAX_TEXT // 4),
    "text-of-openings": "<" * MAX_TEXT,
    "text-of-elements": "<a>" * (MAX_TEXT // 3),
    "text-of-calls": "[a](" * (MAX_TEXT // 4),
    "text-of-comments": "<!--" * (MAX_TEXT // 4),
    "text-of-fences": "```\n~~~\n" * (MAX_TEXT // 8),
    "text-of-digits": "1" * MAX_TEXT,
    "text-of-spaces": "a" + " " * (MAX_TEXT - 2) + "b",
    "text-of-links": "[a](#b)" * (MAX_TEXT // 7),
    "text-of-headings": "# a\n\n" * (MAX_TEXT // 5),
    "text-of-quotes": "> " * (MAX_TEXT // 2),
    "text-of-accents": "e" + "\u0301" * 5000,
    "figure-digits": "9" * MAX_DIGITS,
    "figure-digits-and-one": "9" * (MAX_DIGITS + 1),
    "figure-exponent": f"1e{MAX_DIGITS}",
    "figure-smallest": f"1e-{MAX_DIGITS}",
    "unit-long": "1 " + "u" * (MAX_TITLE - 2),
    "int64": "9223372036854775807",
    "over-int64": "9223372036854775808",
    "one": "1",
    "leading-zeros": "007",
    "separated": "1_000",
    "hexadecimal": "0x10",
    "half": "0.5",
    "range-down": "10..5 min",
    "open-range": "60+ min",
    "money-longest": "999999999 USD",
    "percent-over": "101 %",
    "unit-power": "1 GB/s/s/s/s/s/s",
    "leap-second": "2024-12-31T23:59:60Z",
    "far-zone": "2025-01-01T00:00:00+23:59",
    "no-zone": "2025-01-01T10:00",
    "year-0": "0000-01-01T00:00:00Z",
    "future": "2999-01-01T00:00:00Z",
    "commit-long": "a" * 40,
    "sha256": "0" * 64,
    "run": "20250102T090004Z-look-0004",
    "run-step": "20250102T090004Z-look-0004#steps.validate",
    "cite-many": "log:" + ",".join(map(str, range(1, 3000))),
    "cite-digits": "log:" + "9" * 5000,
    "figure-link": "[2 x](#claims.speedup), [3](2025-01-01-a#claims.speedup)",
    "figure-call": "[1](" + "sum(" * 3000 + "#a" + ")" * 3000 + ")",
    "front-matter": "---\ntitle: x\n---\n# y {#claims}\n",
    "table": "a | b\n--- | ---\n| c |\n",
    "template": "{% include 'mkdocs.yml' %} {0.__class__} %s%n",
    "shell": "$(touch x); `id` | tee y && false \n'\"",
    "formula": '=HYPERLINK("x"),"a',
    "backslashes": "\\" * 1000,
    "entity": "&#0; &#x110000; &lt; &nosuch;",
    "separators": "a\u2028b\u2029c\x85d",
    "no-character": "\uffff\ufffe\ufeff",
    "conflict": "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> x",
    "secret": "sk-" + "a1B2" * 12,
    "machine-path": "/home/m/work/x and C:\\Users\\m\\x at 10.20.30.40",
    "device": "/dev/zero",
    "folder": ".",
    "option": "--help",
    "glob": "**/*",
    "script-link": "javascript:alert(1)",
    "file-link": "file:///etc/passwd",
    "expression-any": ".*",
    "expression-repeats": "(a{1000}){1000}",
    "expression-branches": "(" + "|".join(["a.*b"] * 200) + ")",
    "expression-looks": "(?=a)(?i)\\1\\p{L}",
}
FOR_THE_SITE = {
    "wide", "newlines", "markup", "snippet", "placeholder", "path", "backtracks", "front-matter",
    "table", "template", "entity", "separators", "figure-link", "script-link", "file-link",
}  # fmt: skip
"""Texts that mkdocs or a browser may take for more than text."""


def _deep(levels: int) -> Any:
    """A mapping in a mapping in a mapping."""
    made: Any = "a"
    for _ in range(levels):
        made = {"a": made}
    return made


def _nested(levels: int) -> Any:
    """A derivation of a derivation of a derivation."""
    made: Any = "1e60"
    for _ in range(levels):
        made = {"how": "product", "of": [made, "1e60"]}
    return made


SHAPES: dict[str, Any] = {
    "null": None,
    "list": [],
    "mapping": {},
    "nested": [[[["a"]]]],
    "list-of-null": [None],
    "list-of-text": ["a", "a"],
    "mapping-of-null": {"a": None},
    "hostile-key": {"a\x1b]0;x\x07.b#c ": "1"},
    "many": {f"k{number}": "1" for number in range(3000)},
    "derivation": {"how": "sum", "of": ["1e" + "9" * 140, "1"]},
    "very-many": {f"k{number}": "1" for number in range(20_000)},
    "long-list": ["a"] * 20_000,
    "texts": ["", " ", "a\nb", "<b>", "a" * 10_000],
    "deep": _deep(60),
    "too-deep": _deep(500),
    "wide-derivation": {"how": "product", "of": ["1.5 GB/s"] * 2000},
    "deep-derivation": _nested(30),
    "power": {"how": "product", "of": ["1e999999", {"how": "product", "of": ["1e999999", "9"]}]},
}
NUMBERS: dict[str, Any] = {
    "int-0": 0, "int--1": -1, "int-2**64": 2**64, "int-10**400": 10**400, "float-1e308": 1e308,
    "float--0.0": -0.0, "float-5e-324": 5e-324, "bool": True,
    "int-1": 1, "int-7": 7, "int-10**6": 10**6, "int-2**63-1": 2**63 - 1, "int--2**63": -(2**63),
    "int-2**31": 2**31, "float-0.5": 0.5, "float-1.5": 1.5, "float--1e308": -1e308,
    "float-1e-300": 1e-300, "infinity": math.inf, "not-a-number": math.nan, "surrogate": "a\ud800b",
    "numbers": [0, -1, 2**63, 1e308, True, None], "many-numbers": [1.5] * 100_000,
}  # fmt: skip
"""Of runs, which are JSON."""
SCALES = {"times-1e300": 1e300, "times-1e-300": 1e-300, "times-0": 0.0, "times--1": -1.0}
"""By what all fractions below a field of a run are multiplied, so that its figures still agree:
such a run is accepted, and its pages have to cope with it."""
VALUES: dict[str, Any] = {**TEXTS, **SHAPES, **NUMBERS}
