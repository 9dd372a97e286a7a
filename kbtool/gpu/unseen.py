"""Values that a kernel has not seen, in the memory of inputs that it has.

A result that is kept from an earlier call is then wrong, and work that was saved by keeping it
makes the call longer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import torch
from torch import Tensor

from kbtool.gpu.compare import same_bits
from kbtool.gpu.harness import HarnessError, Inputs

_FIRST = 1 << 20
"""The number of the first unseen inputs; those below are for calls that rotate through inputs."""
_STRUCTURE = (torch.int32, torch.int64, torch.bool)
"""Lengths, indices and masks: a plan that was made before the call may follow from them."""
SLOWER = 1.25
"""Calls on unseen inputs that take this much longer are looked at again."""
PAIRS = 6
"""Pairs of calls, on inputs that an arm has seen and on unseen ones, before it is refused."""


class Unseen:
    """Writes unseen values into the inputs of a case, and the former ones back.

    Args:
        make: new inputs of the case, by number.
        arms: the arms to hold to it: the library's own.
        random: draws the calls whose inputs change.
    """

    def __init__(
        self, make: Callable[[int], Inputs], arms: Collection[str], random: Random
    ) -> None:
        self._make = make
        self.arms, self.random = arms, random
        self._live: dict[str, Any] = {}
        self._original: Inputs | None = None
        self._first: Inputs | None = None
        self._made = 0

    def begin(self, live: Inputs) -> None:
        """Take note of the inputs, before any arm is made with them."""
        self._live = dict(live)
        # A card's memory has to hold the largest case: there no copy is kept while arms are timed.
        if all(tensor.device.type == "cpu" for _, tensor in tensors(live)):
            self._original = copied(live)

    def restored(self) -> Inputs:
        """The inputs with the values that they had before any arm was made."""
        before = self._make(0) if self._original is None else self._original
        write(self._live, before, structure=True)
        return self._live

    @property
    def first(self) -> Inputs:
        """The first unseen inputs, with which outputs are held against the reference."""
        if self._first is None:
            self._first = self._make(_FIRST)
        return self._first

    def next_pair(self) -> tuple[Inputs, Inputs]:
        """The values that the arms have seen, and others; both in memory of their own."""
        self._made += 1
        return copied(self._live), self._make(_FIRST + self._made)

    @contextmanager
    def in_place(self, values: Inputs) -> Iterator[None]:
        """The arms compute from these values."""
        # Making the arms may have changed the inputs: zeros, say, where peers must find no NaN.
        original = self._original
        if original is None or not all(
            same_bits(tensor, self._live[name]) for name, tensor in tensors(original)
        ):
            original = copied(self._live)
        write(self._live, values)
        try:
            yield
        finally:
            write(self._live, original)


def tensors(inputs: Inputs) -> Iterator[tuple[str, Tensor]]:
    """The tensors among the inputs."""
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            yield name, value


def copied(inputs: Inputs) -> dict[str, Any]:
    """The same values in other memory."""
    return {**inputs, **{name: tensor.clone() for name, tensor in tensors(inputs)}}


def write(into: Inputs, values: Inputs, *, structure: bool = False) -> None:
    """Write ``values`` into the tensors of ``into``.

    Args:
        into: the inputs that keep their memory.
        values: inputs of the same case.
        structure: whether to write lengths, indices and masks too.

    Raises:
        HarnessError: the values have other shapes.
    """
    named = dict(tensors(values))
    varying = [name for name, tensor in named.items() if tensor.dtype not in _STRUCTURE]
    for name in named if structure or not varying else varying:
        target, source = into[name], named[name]
        if target.shape != source.shape:
            raise HarnessError(
                f"make_inputs gives {name} the shape {tuple(target.shape)} with one seed and"
                f" {tuple(source.shape)} with another"
            )
        once = tuple(slice(1) if stride == 0 else slice(None) for stride in target.stride())
        target[once].copy_(source[once])


def looks_kept(seen: Sequence[float], unseen: float) -> bool:
    """Whether a call on unseen inputs took so much longer that results may be kept."""
    return unseen > SLOWER * statistics.quantiles(seen, n=4, method="inclusive")[2]


def keeps_results(
    seen: Sequence[float], unseen: float, pairs: Iterator[tuple[float, float]]
) -> str | None:
    """Why the times of an arm do not count, or ``None``.

    Args:
        seen: seconds of its timed calls, all on the same inputs.
        unseen: seconds of a call among them on inputs that it had not seen.
        pairs: seconds of further calls, one on the former inputs and one on others; they are made
            only while all unseen ones take longer.
    """
    longer = [unseen]
    if not looks_kept(seen, unseen):
        return None
    for again, other in pairs:
        if other <= SLOWER * again or not looks_kept(seen, other):
            return None
        longer.append(other)
    return (
        f"its calls took {statistics.median(seen) * 1e6:.4g} µs on inputs that it had seen and"
        f" {statistics.median(longer) * 1e6:.4g} µs on others: it keeps results between calls"
    )
