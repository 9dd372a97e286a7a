"""How numbers are written: with commas, points, apostrophes or spaces, and as powers of ten."""

from __future__ import annotations

import re

_THIN = "\u2009\u202f\u00a0"
"""Spaces that only stand between groups of digits, or before a unit."""
_TEN = (
    r"(?:\s?[×·*x]\s?10(?:\^?\s?\{?[-+−–]?\d{1,3}\}?(?![\d.,])|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
    r"|[eE][+-]?\d+)?"
)  # fmt: skip
POINT = (
    rf"(?:\d{{1,3}}(?:[,'’{_THIN}]\d{{3}})+(?:\.\d+)?"
    rf"|\d{{1,2}}(?:,\d{{2}})+,\d{{3}}(?:\.\d+)?|\d+(?:\.\d+)?{_TEN})"
)
"""With the groups of India too: 1,20,000."""
COMMA = rf"(?:\d{{1,3}}(?:[. '’{_THIN}]\d{{3}})+(?:,\d+)?|\d+(?:,\d+)?{_TEN})"
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_WIDE = str.maketrans("０１２３４５６７８９．，％：　", "0123456789.,%: ")


def narrow(text: str) -> str:
    """``text`` with digits and marks of full width as the usual ones, at the same places."""
    return text.translate(_WIDE)


def digits(text: str, *, comma: bool) -> str:
    """A number as records write it: ``1'234.5`` → ``1234.5``, ``4.1 × 10^-13`` → ``4.1e-13``."""
    head, times, power = re.match(
        r"(.*?)(?:(\s?[×·*x]\s?10|[eE])\^?\s?\{?([-+−–]?\d+|[⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹]+)\}?)?\Z", text
    ).groups()  # type: ignore[union-attr]
    between = r"[. ](?=\d{3})" if comma else ","
    head = re.sub(rf"['’{_THIN}]|{between}", "", head)
    head = head.replace(",", ".")
    if not times:
        return head
    return f"{head}e{re.sub('[−–]', '-', power.translate(_SUPERSCRIPT))}"


def whole(text: str, *, comma: bool) -> str | None:
    """The number that is all of ``text``, as records write it."""
    found = re.fullmatch(rf"([-−])?({COMMA if comma else POINT})", text)
    return f"{'-' if found[1] else ''}{digits(found[2], comma=comma)}" if found else None


def is_cut(text: str, start: int, *, comma: bool) -> bool:
    """Whether the number at ``start`` may be the end of one such as ``1 048 576``."""
    before = re.search(r"(?<![\w.,])\d{1,3} \Z", text[max(0, start - 6) : start])
    return not comma and before is not None and re.match(r"\d{3}(?!\d)", text[start:]) is not None
