"""Write plain data (text, lists, mappings, null) as YAML.

Text that a YAML 1.1 or 1.2 reader could take for another type is quoted, so that every editor reads
the same data as kbtool: ``parse(dump(data)) == data``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

Data = str | Sequence["Data"] | Mapping[str, "Data"] | None
"""The data of a record."""
Fields = Mapping[str, Data]
"""The fields of a list item."""

_PLAIN = re.compile(
    r"[A-Za-z][A-Za-z0-9 _./()+,;×–−-]*"
    r"|\d{4}-\d{2}-\d{2}-[a-z][a-z0-9-]*"  # a session's id; a bare date is a date to YAML 1.1
)
_TYPED = re.compile(r"(y|n|yes|no|on|off|true|false|null)", re.IGNORECASE)
_NOT_IN_FLOW = re.compile(r"[,;]")


def dump(data: Mapping[str, Data], indent: int = 0) -> str:
    """``data`` as a block of YAML, each line indented by ``indent`` spaces.

    Args:
        data: keys and values; not empty.
        indent: spaces before each line.
    """
    return "".join(_entry(f"{scalar(key)}:", value, indent) for key, value in data.items())


def scalar(text: str) -> str:
    """``text`` on one line, quoted unless every YAML reader takes it as text."""
    if _PLAIN.fullmatch(text) and text[-1] != " " and not _TYPED.fullmatch(text):
        return text
    return _quoted(text)


def flow(data: Fields) -> str:
    """``data`` on one line: ``{kind: gpu, amount: "0.40"}``."""
    return "{" + ", ".join(f"{_flow_scalar(k)}: {_flow_value(v)}" for k, v in data.items()) + "}"


def _flow_value(value: Data) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return _flow_scalar(value)
    if isinstance(value, Mapping):
        return flow(value)
    return f"[{', '.join(map(_flow_value, value))}]"


def _flow_scalar(text: str) -> str:
    return _quoted(text) if _NOT_IN_FLOW.search(text) else scalar(text)


def _quoted(text: str) -> str:
    # JSON strings are YAML double-quoted strings, except for characters that YAML must escape.
    return re.sub(
        "[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]",
        lambda match: f"\\u{ord(match[0]):04x}",
        json.dumps(text, ensure_ascii=False),
    )


def _entry(head: str, value: Data, indent: int) -> str:
    """``head`` (``key:`` or ``-``) and its value."""
    margin = " " * indent
    if value is None:
        return f"{margin}{head} null\n"
    if isinstance(value, str):
        return f"{margin}{head} {scalar(value)}\n"
    if isinstance(value, Mapping):
        if not value:
            return f"{margin}{head} {{}}\n"
        return f"{margin}{head}\n{dump(value, indent + 2)}"
    if not value:
        return f"{margin}{head} []\n"
    return f"{margin}{head}\n" + "".join(_entry("-", item, indent + 2) for item in value)
