"""Regular expressions that people write into records, matched in time linear in the text.

Pydantic's engine, Rust's regex crate, cannot backtrack: ``(a+)+$`` takes no longer than ``a+$``.
It has no look-around and no backreferences, and refuses an expression that compiles to more than
10 MB.
"""

from __future__ import annotations

from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema


def found_in(expression: str, text: str) -> bool:
    """Whether a regular expression matches anywhere in ``text``.

    Raises:
        ValueError: it is no regular expression; the message says why.
    """
    return _compiled(expression).isinstance_python(text)


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> SchemaValidator:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=expression))
    except SchemaError as error:
        # The last line has the reason; those before it show the whole expression.
        reason = str(error).strip().splitlines()[-1].strip().removeprefix("error: ")
        raise ValueError(f"{expression[:80]!r} is no regular expression: {reason}") from None
