"""What every record is made of: strict models, quantities, ids and citations.

Scalars reach these models as strings (see ``kbtool.store.document``): the schema gives the type,
so a commit id such as ``7e12345`` is never a float and ``no`` is never false.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from kbtool.model.docstrings import docstrings_of

MAX_TEXT = 200_000
"""Characters of any text of a record, where its field states no lower bound. The longest that
kbtool writes is the end of a command's output: 40 lines of 4,000 characters."""


class Model(BaseModel):
    """Base of every record model: unknown keys refused, immutable, docstrings are the help."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, str_max_length=MAX_TEXT, defer_build=True
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema, with the docstrings of the fields."""
        made = handler(schema)
        properties = handler.resolve_ref_schema(made).get("properties", {})
        docstrings = docstrings_of(cls)
        for name, field in cls.model_fields.items():
            if name in docstrings:
                properties[field.alias or name].setdefault("description", docstrings[name])
        return made


class Output(Model):
    """Base of what kbtool prints and exports: it may join texts of records."""

    model_config = ConfigDict(str_max_length=None)


_UNSEEN = frozenset(("Zs", "Zl", "Zp", "Cc", "Cf"))
"""Categories of characters that a reader does not see."""
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols that a reader does not see: fillers of Hangul, braille without a dot."""


def _seen(text: str) -> str:
    if all(one in _BLANK or unicodedata.category(one) in _UNSEEN for one in text):
        raise ValueError("is blank")
    return text


Text = Annotated[str, Field(min_length=1), AfterValidator(_seen)]
"""Text of which a reader sees something."""
Whole = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
"""A whole number that a machine reports; larger ones end programs that read records."""
HowMany = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""How many there are of something."""
AtLeastOne = Annotated[int, Field(ge=1, le=2**63 - 1)]
"""How many there are of something that cannot be missing."""
MAX_ID = 200
MAX_TITLE = 1_000
Title = Annotated[str, Field(min_length=1, max_length=MAX_TITLE), AfterValidator(_seen)]
"""What a thing is called in prose; pages repeat it in lists, tables and links."""
MAX_NAME = 10_000
Name = Annotated[str, Field(max_length=MAX_NAME)]
"""What a run calls a case or a kernel. A name may list the length of each batch entry, or the
arguments of a template; the heading of a table repeats it in each row."""

_QUANTITY = re.compile(
    r"""(?P<relation>~|<=|>=|<|>)?\s*
        (?P<low>[+-]?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)
        (?:\s*\.\.\s*(?P<high>[+-]?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?))?
        (?P<open>\+)?
        # A unit, or the rest of a version: 2.2.1, 2.13.0rc1, 2.2.1+cu121.
        (?:\s*(?P<unit>[^\d\s:+\-,_±.].*|(?:\.\d+)+(?:(?:a|b|rc|\.post|\.dev)\d+)*(?:\+\S+)?))?""",
    re.VERBOSE,
)


class _Stated:
    """A value that keeps the text it was stated in, and is told apart by it."""

    KIND: ClassVar[str]
    """What the text is, for the error where a value is no text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text.strip()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._validate, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def _validate(cls, value: object) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise ValueError(cls.KIND)
        if len(value) > MAX_TITLE:
            raise ValueError(f"{value:.40}… has over {MAX_TITLE:,} characters; {cls.KIND}")
        return cls(value)


MAX_DIGITS = 100
"""Digits of a figure, and places before and after its point; what follows from more has no end."""


def _has_more_digits(number: Decimal, most: int) -> bool:
    _, digits, exponent = number.as_tuple()
    return len(digits) > most or abs(int(exponent)) > most


def _decimal(text: str) -> Decimal:
    try:
        return _bounded(Decimal(text))
    except InvalidOperation:  # its exponent is beyond what Python counts with
        raise ValueError(f"{text:.40}: it has more than {MAX_DIGITS} digits") from None


def _bounded(number: Decimal) -> Decimal:
    if _has_more_digits(number, MAX_DIGITS):
        raise ValueError(f"{str(number)[:40]}: it has more than {MAX_DIGITS} digits")
    return number


class Quantity(_Stated):
    """A figure with its unit, exactly as stated: ``734 min``, ``5..10 min``, ``~0.19``.

    Digits are kept as written (``Decimal``), because the number of digits a log states decides how
    closely a recomputation has to agree.

    Attributes:
        relation: ``=`` (default), ``~``, ``<``, ``<=``, ``>``, ``>=``; ``60+`` reads as ``>= 60``.
        low: the figure, or the lower end of a range.
        high: the upper end of a range, else ``None``.
        unit: the unit as written; empty for a bare number.
    """

    KIND: ClassVar[str] = "a quantity is text: a number and its unit"
    PATTERN: ClassVar[str] = (
        r"^(~|<=|>=|<|>)?\s*[+-]?\d+(\.\d+)?(e[+-]?\d+)?(\s*\.\.\s*[+-]?\d+(\.\d+)?(e[+-]?\d+)?)?"
        r"\+?(\s*[^\d\s:+-].*)?$"
    )
    MINUTES: ClassVar[dict[str, Decimal]] = {
        "ns": Decimal(1) / Decimal(60_000_000_000),
        "us": Decimal(1) / Decimal(60_000_000),
        "ms": Decimal(1) / Decimal(60_000),
        "s": Decimal(1) / Decimal(60),
        "min": Decimal(1),
        "h": Decimal(60),
    }

    __slots__ = ("high", "low", "relation", "unit")

    def __init__(self, text: str) -> None:
        match = _QUANTITY.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f"{text!r} is not a quantity; write a number, '..' for a range, then the unit: "
                "'734 min', '5..10 min', '~0.19', '88 %', '0.20 USD/h'"
            )
        super().__init__(text)
        self.low = _decimal(match["low"])
        self.high = _decimal(match["high"]) if match["high"] else None
        if self.high is not None and self.high < self.low:
            raise ValueError(f"{text!r}: the range runs downwards")
        self.relation = ">=" if match["open"] else (match["relation"] or "=")
        self.unit = (match["unit"] or "").strip()

    @classmethod
    def of(cls, number: Decimal, unit: str) -> Self:
        """A single figure, without the time that reading its text takes."""
        made = cls.__new__(cls)
        made.text = f"{number} {unit}"
        made.low, made.high = number, None
        made.relation, made.unit = "=", unit
        return made

    @property
    def is_time(self) -> bool:
        """Whether the unit is a unit of time (ns, us, ms, s, min, h)."""
        return self.unit in self.MINUTES

    @property
    def is_single(self) -> bool:
        """Whether it is one figure, exact or about, and so one to add up: no range, no bound."""
        return self.high is None and self.relation in {"=", "~"}

    @property
    def minutes(self) -> Decimal:
        """The figure in minutes; the middle of a range. ``ValueError`` if it is no time."""
        if not self.is_time:
            raise ValueError(f"{self.text!r} is not a time")
        middle = self.low if self.high is None else (self.low + self.high) / 2
        return middle * self.MINUTES[self.unit]

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        # Editors see YAML numbers before kbtool makes them strings, so a bare number is fine too.
        return {
            "anyOf": [{"type": "string", "pattern": cls.PATTERN}, {"type": "number"}],
            "examples": ["734 min", "5..10 min", "~0.19", "88 %", "0.20 USD/h"],
        }


class Dimension:
    """What a quantity measures: the units that a key takes, as an annotation of ``Quantity``."""

    def __init__(
        self,
        units: str,
        takes: str,
        examples: tuple[str, ...],
        *,
        exact: bool = False,
        most: int | None = None,
        below: int | None = None,
    ) -> None:
        """See the class.

        Args:
            units: a regular expression for the whole unit.
            takes: what to write, in words.
            examples: quantities that are right.
            exact: one figure, neither a range nor a bound.
            most: the largest figure.
            below: what every figure is less than, of a time in seconds; nobody means more, and
                what is computed from it would have no end.
        """
        self._units = re.compile(units)
        self._takes = f"takes {takes}: {', '.join(examples)}"
        self._examples = list(examples)
        self._exact = exact
        self._most = most
        self._below = below

    def check(self, value: Quantity) -> Quantity:
        """``value``, or ``ValueError`` that says what the key takes."""
        if not self._units.fullmatch(value.unit):
            unit = f"its unit is {value.unit!r}" if value.unit else "it has no unit"
            raise ValueError(f"{value.text!r} {self._takes}; {unit}")
        if value.low < 0:
            raise ValueError(f"{value.text!r} {self._takes}; it is negative")
        for end in (value.low, value.low if value.high is None else value.high):
            if _has_more_digits(end, _DIGITS):
                raise ValueError(
                    f"{value.text[:40]!r} {self._takes}; it has more than {_DIGITS} digits"
                )
            if self._below is not None:
                scale = value.MINUTES[value.unit] * 60 if value.is_time else 1
                if end * scale >= self._below:
                    unit = " s" if value.is_time else ""
                    raise ValueError(
                        f"{value.text!r} {self._takes}; it is {self._below:,}{unit} or more"
                    )
        if self._most is not None and (value.high or value.low) > self._most:
            raise ValueError(f"{value.text!r} {self._takes}; it is more than {self._most}")
        if self._exact and (value.high is not None or value.relation != "="):
            raise ValueError(f"{value.text!r} {self._takes}; it is no single figure")
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        number = r"\d+(\.\d+)?(e[+-]?\d+)?"
        relation = "" if self._exact else r"(~|<=|>=|<|>)?\s*"
        span = "" if self._exact else rf"(\s*\.\.\s*{number})?\+?"
        pattern = rf"^{relation}\+?{number}{span}\s*({self._units.pattern})$"
        return {"type": "string", "pattern": pattern, "examples": self._examples}


_YEARS = (1900, 2999)
"""Of a moment. Python cannot add to the last of year 9999, nor take from the first of year 1."""


class Instant(_Stated):
    """A moment as a log states it: ISO 8601 with a zone, or without one where the log names none.

    ``2025-10-12T19:42Z``, ``2025-10-12T03:13-08:00``, ``2025-10-12T21:03`` (zone unknown).
    """

    KIND: ClassVar[str] = "a time is text in ISO 8601"

    __slots__ = ("at",)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        try:
            self.at = datetime.fromisoformat(self.text)
        except ValueError:
            raise ValueError(
                f"{text!r} is not a time; write ISO 8601 with the zone (2025-10-12T19:42Z, "
                "2025-10-12T03:13-08:00), or without one if the zone is unknown"
            ) from None
        if len(self.text) < 16:
            raise ValueError(f"{text!r} has no time of day; write 2025-10-12T19:42Z")
        if not _YEARS[0] <= self.at.year <= _YEARS[1]:
            raise ValueError(f"{text!r} is no time between {_YEARS[0]} and {_YEARS[1]}")

    @property
    def zoned(self) -> bool:
        """Whether the zone is known."""
        return self.at.tzinfo is not None

    @property
    def day(self) -> str:
        """The calendar day as stated, ``YYYY-MM-DD``, in the record's own zone."""
        return self.at.date().isoformat()

    def since(self, earlier: Instant) -> timedelta | None:
        """Time from ``earlier`` to here; ``None`` if only one of the two has a zone."""
        if self.zoned != earlier.zoned:
            return None
        return self.at - earlier.at

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "examples": ["2025-10-12T19:42Z", "2025-10-12T03:13-08:00"]}


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def _plain_digits(value: object) -> object:
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        raise ValueError(f"{value!r} is no amount; write its digits, with a point: 1234.50")
    return value


def _is_of_the_calendar(name: str) -> str:
    day = name[:10]
    if name.startswith("undated-"):
        return name
    try:
        year = date.fromisoformat(day).year
    except ValueError:
        raise ValueError(
            f"{name!r}: the calendar has no {day}; name it after its day, or undated-NAME"
        ) from None
    if year == date.max.year:
        raise ValueError(f"{name!r}: {day} is too late; exports need the month after it")
    return name


_DIGITS = 20
"""Digits of a quantity that has a dimension, and places before and after its point."""
_BELOW = 10**9
_TIME = "ns|us|ms|s|min|h"
_BYTES = "B|[kKMGT]B|[KMGT]iB"

Duration = Annotated[
    Quantity,
    Dimension(
        _TIME,
        f"a time, in {_TIME.replace('|', ', ')}",
        ("25 min", "30 s", "5..10 min"),
        below=_BELOW,
    ),
]
"""A time, as a log states it: a figure, a range, a bound."""
ExactDuration = Annotated[
    Quantity,
    Dimension(
        _TIME,
        f"one time, in {_TIME.replace('|', ', ')}",
        ("5 min", "30 s"),
        exact=True,
        below=_BELOW,
    ),
]
"""A time that is computed with."""
Amount = Annotated[
    Quantity,
    Dimension(
        "[A-Z]{3}",
        "an amount with its currency (ISO 4217)",
        ("5 USD", "30..50 EUR"),
        below=_BELOW,
    ),
]
"""A sum of money."""
Rate = Annotated[
    Quantity,
    Dimension(
        "[A-Z]{3}/(s|min|h|day)", "money per s, min, h or day", ("0.20 USD/h",), below=_BELOW
    ),
]
"""The price of a unit of time."""
Memory = Annotated[Quantity, Dimension(_BYTES, "bytes", ("24 GB", "48 KiB"))]
"""A number of bytes."""
Size = Annotated[
    Quantity,
    Dimension(f"({_BYTES}|lines)?", "bytes, lines or a count", ("240 KB", "316 lines", "6")),
]
"""How large a thing is, or how many there are of it."""
Likelihood = Annotated[Quantity, Dimension("%", "per cent", ("80 %", "60..80 %"), most=100)]
"""How likely something is held to be."""
Money = Annotated[
    Decimal,
    Field(ge=0, max_digits=14, decimal_places=6, allow_inf_nan=False),
    BeforeValidator(_plain_digits),
]
"""An amount of the line's currency; decimal, never a float."""
Figure = Annotated[Decimal, Field(allow_inf_nan=False), AfterValidator(_bounded)]
"""A measured or stated number, digits kept as written."""
SessionId = Annotated[
    str,
    Field(pattern=r"^(\d{4}-\d{2}-\d{2}|undated)-[a-z0-9][a-z0-9-]*$", max_length=MAX_ID),
    AfterValidator(_is_of_the_calendar),
]
PatternId = Annotated[str, Field(pattern=r"^P\d{2}[a-z]?$")]
KernelId = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=MAX_ID)]
RunId = Annotated[str, Field(pattern=r"^\d{8}T\d{6}Z-[a-z0-9-]+$", max_length=MAX_ID)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=MAX_ID)]
"""A name for an item inside a record, used in references."""
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")]


def cited_lines(cite: str) -> list[tuple[int, int]]:
    """First and last line of every part of a citation: ``log:3,8-9`` → ``[(3, 3), (8, 9)]``."""
    parts = cite.partition(":")[2]
    spans = [part.partition("-") for part in parts.split(",")] if parts else []
    return [(int(first), int(last or first)) for first, _, last in spans]


def _lines_run_forwards(cite: str) -> str:
    for first, last in cited_lines(cite):
        if first < 1:
            raise ValueError(f"{cite!r} names line {first}; lines are counted from 1")
        if last < first:
            raise ValueError(f"{cite!r} runs backwards; write {last}-{first}")
    return cite


def _plain_name(name: str) -> str:
    if name in {".", ".."} or "/" in name or "\\" in name or not name.isprintable():
        raise ValueError(f"{name!r} is not the name of a file; leave its folders out")
    return name


Cite = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9][a-z0-9-]*(:\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*)?$",
        description="Where the figure stands: a key of `sources`, then line numbers: log:114-127",
    ),
    AfterValidator(_lines_run_forwards),
]
RunStep = Annotated[
    str,
    Field(
        pattern=r"^\d{8}T\d{6}Z-[a-z0-9-]+#steps\.[^\s#.]+$",
        description="A step of a run: 20261121T161916Z-split-k-bb3c#steps.validate",
    ),
]
Reference = Annotated[
    str,
    Field(
        pattern=r"^(((\d{4}-\d{2}-\d{2}|undated)-[a-z0-9][a-z0-9-]*|P\d{2}[a-z]?"
        r"|\d{8}T\d{6}Z-[a-z0-9-]+)?#[^\s#]+)$",
        description=(
            "A figure in a record: RECORD#path, or #path in this one; a path is keys and item ids"
            " joined by dots: 2025-10-12-n7a#duration, #measurements.fa1.s128.pytorch,"
            " 20261121T161916Z-split-k-bb3c#steps.validate.cases_passed"
        ),
    ),
]


def pattern_of(text: Any) -> str:
    """The regular expression of one of the annotated texts above."""
    field = next(part for part in text.__metadata__ if isinstance(part, FieldInfo))
    pattern: str = next(part.pattern for part in field.metadata if hasattr(part, "pattern"))
    return pattern


class Cited(Model):
    """An item that states figures, and where they come from."""

    source: Cite | None = None
    """Where it stands; required in a record that has `sources`."""


class SourceFile(Model):
    """A document that a record was transcribed from."""

    file: Annotated[str, Field(min_length=1), AfterValidator(_plain_name)]
    """The name of the file, without a folder."""
    lines: AtLeastOne | None = None
    """How many lines it has; citations must lie within."""
    about: str
    """What the file is."""
    url: str | None = None
    """Where it can be read, if anywhere."""
