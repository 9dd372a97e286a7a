"""Shrink a failing case to the smallest that still fails, by trying cases. Needs no torch.

A failure need not be monotonic in any field, so only values that were tried count. Each number goes
up through the powers of two to the first that fails, then the gap below it is halved; at the end
the neighbours on both sides are tried. A failure that spares multiples of a number would not show
there, so distant values are tried too, one field at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from kbtool.model.base import Output
from kbtool.model.kernel import CaseField, CaseValue, Kernel
from kbtool.model.kinds.minimise import Axis, AxisProbe

Case = Mapping[str, CaseValue]
State = Literal["fails", "passes", "refused"]
Dial = tuple[Callable[[], int], Callable[[int], list[Case]]]
"""A value that can be lowered: the current value, and a function that makes cases with another."""
NEIGHBOURS = 3
"""Values tried on each side of a boundary."""
_ALL_BELOW = 33
"""If the boundary is at most this, every value below it is tried."""
_GAP = 8
"""After this many refused values in a row, the search for an accepted one stops."""
_POWERS = [1 << power for power in range(11)]
"""Typical boundaries: sizes of tiles, warps and blocks."""


class Verdict(Output):
    """The verdict on one case."""

    state: Literal["fails", "raises", "passes", "refused"]
    """raises: the operator raised an error; refused: the case is invalid or not supported."""
    message: str = ""
    seed: int = 0
    """Seed of the inputs with which it failed."""
    fatal: bool = False
    """The case killed the process or lost the CUDA context."""


class Search(Output):
    """The limits of a search, and the verdicts of earlier processes."""

    kernel: Kernel
    target: str
    """The target that was built."""
    draws: int
    """A case passes if this many draws of its inputs pass."""
    probes: int
    """The most cases to try."""
    seconds: float
    """Time limit, from the start of the search."""
    known: dict[str, Verdict]
    """Key of a case → its verdict."""


class Shrinker:
    """Makes one failing case smaller.

    Args:
        fields: the manifest's case fields.
        probe: returns the verdict on a case. It should cache: the same case comes up repeatedly.
        start: a case that fails.

    ``smallest`` is always the smallest failing case so far. If ``probe`` raises when time is up,
    nothing is lost.
    """

    def __init__(
        self, fields: Mapping[str, CaseField], probe: Callable[[Case], State], start: Case
    ) -> None:
        self._fields = fields
        self._probe = probe
        self._start = start
        self.smallest = dict(start)

    def shrink(self) -> None:
        """Shrink ``smallest`` until no single step makes it smaller.

        A step lowers a number, or several equal numbers together; resets an option to its default;
        removes an item from a list, or lowers one.
        """
        before = None
        while before != self.smallest:
            before = dict(self.smallest)
            for names in self._numbers():
                self._lower(*self._dial(names))
            for name, field in self._fields.items():
                plain = field.simplest(name)
                # A number only goes down; it is never reset to a larger default.
                if self.smallest[name] != plain and (field.type != "int" or plain is None):
                    self._accept([{**self.smallest, name: plain}])
                if field.type == "int" and field.choices and self.smallest[name] is not None:
                    choices = sorted(map(_int, _choices(name, field)))
                    now = _int(self.smallest[name])
                    self._accept([{**self.smallest, name: one} for one in choices if one < now])
            for name, field in self._fields.items():
                if field.type == "ints":
                    self._shorten(name)

    def axes(self) -> Iterator[Axis]:
        """Verdicts along each field of ``smallest``, and along equal numbers together."""
        for names in self._numbers(least=1):
            now, at = self._dial(names)
            if len(names) > 1 and now() == 1:
                continue
            top = max(now() + NEIGHBOURS, *(_int(self._start[name] or 0) for name in names))
            probes = [
                AxisProbe(value=tried, state=self._state(at(tried)))
                for tried in _around(now(), top)
            ]
            if len(names) == 1 and self._fields[names[0]].default is None:
                probes.append(self._option(names[0], None))
            yield Axis(field="=".join(names), value=now(), probes=probes)
        for name, field in self._fields.items():
            value = self.smallest[name]
            others: list[CaseValue] = [field.simplest(name)]
            if field.type == "bool":
                others = [False, True]
            elif field.choices:
                others = _choices(name, field)
            elif field.type == "int":
                continue
            values = [value, *(other for other in others if other != value)]
            if len(values) > 1:
                probes = [self._option(name, tried) for tried in values]
                yield Axis(field=name, value=value, probes=probes)

    def widen(
        self,
        axes: list[Axis],
        hints: Mapping[str, Sequence[CaseValue]],
        *,
        affordable: Callable[[Case], bool],
        deadly: Callable[[Case], bool],
    ) -> None:
        """Try distant values of each field and add the verdicts to ``axes``.

        Each field tries the values of ``hints``. Numbers also try powers of two; above the current
        value, the gap below the smallest passing one is halved down to the next failing value.

        Args:
            axes: the axes of ``smallest``. Each value is added as soon as it is tried, and fields
                without an axis get one.
            hints: field → values to try.
            affordable: returns whether a case may be tried.
            deadly: returns whether a tried case killed its process. A crash costs a process and a
                hang costs minutes, so the field is left after the first.
        """
        for name, field in self._fields.items():
            if field.type == "ints":
                continue  # the values it may have depend on other fields
            own = self.smallest[name]
            axis = next((axis for axis in axes if axis.field == name), None)
            new = axis is None
            axis = axis or Axis(field=name, value=own, probes=[AxisProbe(value=own, state="fails")])
            for value in _far(field, own, hints.get(name, ()), axis.probes):
                cases = [case for case in self._with(name, value) if affordable(case)]
                if not cases or any(probe.value == value for probe in axis.probes):
                    continue
                axis.probes.append(AxisProbe(value=value, state=self._state(cases)))
                if field.type == "int":
                    axis.probes.sort(key=lambda probe: (probe.value is None, probe.value or 0))
                if new:
                    axes.append(axis)
                    new = False
                if any(deadly(case) for case in cases):
                    break

    def _with(self, name: str, value: CaseValue) -> list[Case]:
        """``smallest`` with another value of one field."""
        if self._fields[name].type == "int" and None not in (value, self.smallest[name]):
            return self._dial((name,))[1](_int(value))
        return [{**self.smallest, name: value}]

    def _option(self, name: str, value: CaseValue) -> AxisProbe:
        return AxisProbe(value=value, state=self._probe({**self.smallest, name: value}))

    def _numbers(self, least: int = 2) -> list[tuple[str, ...]]:
        """The numbers that can change: each alone, then groups equal in the first case."""
        values = {
            name: (self._start[name], self.smallest[name])
            for name, field in self._fields.items()
            if field.type == "int" and not field.choices and _int(self.smallest[name] or 0) >= least
        }
        equal = [
            tuple(name for name in values if values[name] == pair)
            for pair in dict.fromkeys(values.values())
            if pair != (1, 1)
        ]
        return [*((name,) for name in values), *(names for names in equal if len(names) > 1)]

    def _dial(self, names: tuple[str, ...]) -> Dial:
        """The dial of the fields ``names``. It makes two cases for a value: one with only the
        numbers changed, and one with dependent lists cut to that length or their items capped."""

        def at(value: int) -> list[Case]:
            plain = {**self.smallest, **dict.fromkeys(names, value)}
            old = now()
            cut, held = dict(plain), dict(plain)
            for name, items in plain.items():
                if isinstance(items, list) and len(items) == old:
                    cut[name] = items[:value]
                if isinstance(items, list) and max([0, *items]) <= old:
                    held[name] = [min(item, value) for item in items]
            return [plain, *(case for case in (cut, held) if case != plain)]

        def now() -> int:
            return _int(self.smallest[names[0]])

        return now, at

    def _item(self, name: str, index: int) -> Dial:
        """The dial of one item of a list."""

        def at(value: int) -> list[Case]:
            items = _list(self.smallest[name])
            return [{**self.smallest, name: [*items[:index], value, *items[index + 1 :]]}]

        return (lambda: _list(self.smallest[name])[index]), at

    def _accept(self, candidates: Sequence[Case]) -> bool:
        """Whether a candidate fails; the first that does becomes ``smallest``."""
        for candidate in candidates:
            if self._probe(candidate) == "fails":
                self.smallest = dict(candidate)
                return True
        return False

    def _state(self, candidates: Sequence[Case]) -> State:
        """The worst verdict of the candidates."""
        states = [self._probe(candidate) for candidate in candidates]
        return min(states, key=("fails", "passes", "refused").index)

    def _lower(self, now: Callable[[], int], at: Callable[[int], list[Case]]) -> None:
        """Lower a value to the smallest failing one that doubling and halving find."""
        if now() < 2:
            return
        below, step = 0, 1
        while step < now() and not self._accept(at(step)):
            below, step = step, step * 2
        while now() - below > 1:
            middle = (now() + below) // 2
            posed = self._posed(at, middle, below)
            if posed is None or not self._accept(at(posed)):
                below = middle if posed is None else posed
        # The next lower value may be refused, so try the next accepted one too.
        nearest = self._posed(at, now() - 1, 0)
        if nearest is not None and self._accept(at(nearest)):
            self._lower(now, at)

    def _posed(self, at: Callable[[int], list[Case]], value: int, above: int) -> int | None:
        """The next value at or below ``value``, and above ``above``, that is not refused."""
        for tried in range(value, max(above, value - _GAP), -1):
            if self._state(at(tried)) != "refused":
                return tried
        return None

    def _shorten(self, name: str) -> None:
        """Remove items of a list, lower the field that counts them, and lower the other items."""
        index = 0
        while isinstance(items := self.smallest[name], list) and index < len(items):
            fewer = {**self.smallest, name: items[:index] + items[index + 1 :]}
            counted = [
                {**fewer, other: len(items) - 1}
                for other, field in self._fields.items()
                if field.type == "int" and self.smallest[other] == len(items)
            ]
            if len(items) > 1 and self._accept([*counted, fewer]):
                continue
            self._lower(*self._item(name, index))
            index += 1


def _around(value: int, top: int) -> list[int]:
    """The numbers to try next to ``value``, up to ``top``, in order."""
    tried = {value, *range(max(1, value - NEIGHBOURS), value + NEIGHBOURS + 1)}
    if value <= _ALL_BELOW:
        tried.update(range(1, value))
    power = 1
    while power < top:
        tried.add(power)
        power *= 2
    return sorted(tried | {top})


def _far(
    field: CaseField, own: CaseValue, hints: Sequence[CaseValue], probes: list[AxisProbe]
) -> Iterator[CaseValue]:
    """The values to try of a field that fails at ``own``; ``probes`` are the verdicts so far."""
    yield from hints
    if field.type != "int":
        return
    yield from _POWERS
    before = None
    while (gap := _gap_above(_int(own or 0), probes)) is not None and gap != before:
        before = fails, passes = gap
        yield (fails + passes) // 2 if passes - fails > 1 else passes + 1


def _gap_above(own: int, probes: list[AxisProbe]) -> tuple[int, int] | None:
    """The smallest passing number above ``own``, and the largest failing number before it."""
    above = [(_int(one.value), one.state) for one in probes if one.value is not None]
    passes = min((n for n, state in above if state == "passes" and n > own), default=None)
    fails = [n for n, state in above if state == "fails" and (passes is None or n < passes)]
    return None if passes is None or not fails else (max(fails), passes)


def _choices(name: str, field: CaseField) -> list[CaseValue]:
    """The values that a field takes, in its type."""
    return [field.parse(name, choice) for choice in field.choices]


def _int(value: CaseValue) -> int:
    assert isinstance(value, int)
    return value


def _list(value: CaseValue) -> list[int]:
    assert isinstance(value, list)
    return value
