"""A claim: a figure that a log states and that other figures determine, kept as stated."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from kbtool.model.base import Cited, Instant, Model, Quantity, Reference, Slug

How = Literal[
    "sum",
    "difference",
    "product",
    "ratio",
    "percent",
    "change",
    "saving",
    "count",
    "mean",
    "geometric_mean",
    "harmonic_mean",
    "elapsed",
    "minimum",
    "maximum",
    "same",
    "outcome",
    "order",
    "alike",
]
"""sum: a+b+…; difference: a−b; product: a×b×…; ratio: a÷b, a throughput too (1 iter ÷ latency);
percent: 100·a÷b; change: 100·(a−b)÷b; saving: 100·(b−a)÷b; count: how many operands, a list being
as many as it holds, all of them or those that `where` describes, undetermined if one of them is
null; mean: arithmetic; elapsed: b−a of two times; minimum, maximum; same: the figure, or the
version, stands elsewhere too, and if the place where it stands in this record is a second operand,
under the same conditions; outcome: a claim of success in words, compared with what the operands
show, or against what `where` says; order: each time is at or after the one before it; alike: two
measured figures that are compared were taken under the same conditions."""

IN_WORDS = frozenset(("outcome", "order", "alike"))
"""Claims in words: they state no figure."""

ARITY: dict[str, int] = {
    "difference": 2, "ratio": 2, "percent": 2, "change": 2, "saving": 2, "elapsed": 2, "same": 1,
    "alike": 2,
}  # fmt: skip
"""Derivations that take exactly so many operands."""


class Derivation(Model):
    """How a figure follows from others; operands may themselves be derived."""

    how: How
    """The operation."""
    of: Annotated[list[Operand], Field(min_length=1)]
    """References (#path, RECORD#path), figures with units ('0.20 USD/h'), times, or derivations."""

    @model_validator(mode="after")
    def _arity(self) -> Self:
        wanted = ARITY.get(self.how)
        if wanted is not None and len(self.of) != wanted:
            raise ValueError(f"{self.how} takes {wanted} operands, not {len(self.of)}")
        for operand in self.of:
            if isinstance(operand, Derivation) and operand.how in IN_WORDS:
                raise ValueError(f"{operand.how} comes to no figure: it cannot be an operand")
        return self


Operand = Reference | Instant | Quantity | Derivation


class Claim(Cited):
    """A total, a rate, a percentage, a speedup or a count, as stated, beside what it derives from.

    Claims are never corrected: the record says what was said, the audit what follows.
    """

    id: Slug
    """A name for references."""
    says: Annotated[str, Field(min_length=1)]
    """What is claimed, in a sentence."""
    stated: Quantity | None = None
    """The figure as stated; absent for a claim in words (outcome, order, alike)."""
    how: How | None = None
    """How it follows from `of`; absent, with the reason under `unknown`, where nothing recorded
    determines it."""
    of: list[Operand] = Field(default_factory=list)
    """What it derives from."""
    where: dict[str, str] = Field(default_factory=dict)
    """Of a count: what the fields of a thing have to be for it to be counted (status: fixed). Of an
    outcome: what an operand has to be to bear it out; one that is anything else speaks against."""
    note: str | None = None
    """Remarks, for example what the log compared with what."""

    @model_validator(mode="after")
    def _derivable(self) -> Self:
        if (self.how is None) != (not self.of):
            raise ValueError("give both how and of, or neither")
        if self.how is not None:
            # A second operand of `same` is not computed with: it is the place of the stated one.
            placed = self.how == "same" and len(self.of) == 2 and isinstance(self.of[1], str)
            Derivation(how=self.how, of=self.of[:1] if placed else self.of)
        if self.where and self.how not in {"count", "outcome"}:
            raise ValueError("where is for a count or an outcome")
        if (self.stated is None) != (self.how in IN_WORDS):
            names = ", ".join(sorted(IN_WORDS))
            raise ValueError(
                f"a claim states a figure, unless it is one in words (how: {names}), which does not"
            )
        return self
