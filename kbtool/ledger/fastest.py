"""The fastest implementation for a shape: every measured case, and which of them are nearest.

``RULE`` says what is nearest. The page of a kernel asks the same of the same data in the browser
(``site/assets/fastest.js``), and a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kbtool.ledger.headline import Against, Headline, headlines
from kbtool.ledger.measured import Machine, groups, target_of
from kbtool.model.kernel import Case, CaseField, CaseValue, Kernel, value_text, without_name
from kbtool.model.kinds.benchmark import BenchmarkCase
from kbtool.model.kinds.tune import TuneResult
from kbtool.model.run import Run
from kbtool.model.twin import ArmTime, MeasuredCase, MeasuredSet, ProblemField, Tuned

RULE = (
    "A measured case answers for a shape on the same machine if every field of text, truth value or"
    " list is the same, and if a field of numbers that is null or 0 in one is so in the other. Its"
    " distance is the product, over the other fields of numbers, of the larger value ÷ the smaller:"
    " 1 is the same case, 2 has one field twice as large. The least distance comes first, at the"
    " same distance the least time of the fastest variant, by the measure of the case set. Only"
    " cases that are current count."
)

MOST = 3
"""So many cases are told, the nearest first."""

_NUMBERS = ("int", "float")


class Found(NamedTuple):
    """A measured case that answers for a shape."""

    of: MeasuredSet
    case: MeasuredCase
    distance: float
    """1 is the same case."""
    apart: list[str]
    """The fields whose values differ."""

    @property
    def fastest(self) -> str:
        """The fastest arm, ours or a peer's."""
        return min(self.case.arms, key=lambda arm: _us(self.of, self.case.arms[arm]) or _NEVER)

    @property
    def own(self) -> str:
        """Our fastest arm: a variant, or the kernel's own choice."""
        return _own(self.of, self.case)[0]

    def us(self, arm: str) -> float | None:
        """The time of an arm, by the measure of the set."""
        return _us(self.of, self.case.arms[arm])

    @property
    def commands(self) -> list[str]:
        """What repeats the run that timed the best peer beside ours, or ours alone."""
        run = self.case.arms[self.case.best_peer or self.own].run
        return self.of.repeat.get(run, [])


_NEVER = float("inf")


def _us(of: MeasuredSet, arm: ArmTime) -> float | None:
    return arm.between_us if of.measure == "between" else arm.us


def _own(of: MeasuredSet, case: MeasuredCase) -> tuple[str, float]:
    """Our fastest arm, and its time; never, where ours was not timed by that measure."""
    ours = {name: _us(of, arm) for name, arm in case.arms.items() if arm.own}
    known = {name: us for name, us in ours.items() if us is not None}
    fastest = min(known, key=known.__getitem__, default=of.subject)
    return fastest, known.get(fastest, _NEVER)


# ---- what was measured ----


def measured(
    kernel: Kernel,
    runs: Sequence[Run],
    page: str,
    commands: Callable[[Run], list[str]],
) -> list[MeasuredSet]:
    """The case sets of a kernel that a quiet run timed, by machine and element type.

    Args:
        kernel: the kernel.
        runs: its runs, newest first.
        page: the page with these figures.
        commands: what repeats a run of a recipe.
    """
    tuned = _tuned(kernel, runs)
    found = [
        (one, _set(kernel, machine, one, tuned, page, commands))
        for machine, every in groups(runs, kernel).items()
        for one in headlines(every)
        if not one.newest.noise_reason
    ]
    return _with_current(kernel, found)


def _with_current(
    kernel: Kernel, found: Iterable[tuple[Headline, MeasuredSet]]
) -> list[MeasuredSet]:
    """The sets, their cases marked that answer for their shapes."""
    sets = [of for _, of in found]
    best: dict[object, tuple[bool, bool, object, str]] = {}
    places: dict[object, tuple[int, int]] = {}
    for at, (one, of) in enumerate(found):
        for number, case in enumerate(of.cases):
            if _own(of, case)[1] == _NEVER:
                continue
            shape = (of.target, of.machine, _shape(kernel, case.case))
            started = one.newest.run.started
            rank = (of.measure == "between", of.measure == "chain", started, of.case_set)
            if shape not in best or rank > best[shape]:
                best[shape], places[shape] = rank, (at, number)
    chosen = set(places.values())
    return [
        of.model_copy(
            update={
                "cases": [
                    case.model_copy(update={"current": (at, number) in chosen})
                    for number, case in enumerate(of.cases)
                ]
            }
        )
        for at, of in enumerate(sets)
    ]


def _shape(kernel: Kernel, case: Case) -> tuple[str, ...]:
    """The fields of a case, with the defaults of those that it lacks; without its name."""
    names = dict.fromkeys([*kernel.case_fields, *without_name(case)])
    return tuple(f"{name}={value_text(_value(kernel, case, name))}" for name in names)


def _value(kernel: Kernel, case: Case, name: str) -> CaseValue:
    known = kernel.case_fields.get(name)
    if name in case or known is None:
        return case.get(name)
    return known.simplest(name)


def _set(
    kernel: Kernel,
    machine: Machine,
    one: Headline,
    tuned: Mapping[object, Tuned],
    page: str,
    commands: Callable[[Run], list[str]],
) -> MeasuredSet:
    newest, leading, ratios = one.newest, one.leading, one.ratios
    return MeasuredSet(
        kernel=kernel.id,
        page=page,
        target=machine.target,
        machine=machine.name,
        case_set=newest.case_set,
        subject=newest.subject,
        dtype=newest.dtype,
        commit=newest.run.repository.commit,
        runs=[group.run.id for group in one.pooled],
        commands=commands(newest.run) if newest.run.recipe else [],
        repeat={group.run.id: commands(group.run) for group in one.pooled if group.run.recipe},
        measure=None if leading is None else "between" if one.between else "chain",
        mean=leading.mean if leading else None,
        least=leading.least if leading else None,
        lost=leading.lost if leading else None,
        against=one.against,
        cases=[
            _case(
                one,
                case,
                ratios.get(case.name, {}),
                tuned.get((machine, _shape(kernel, case.case))),
            )
            for case in one.cases
        ],
    )


def _case(
    one: Headline, case: BenchmarkCase, ratios: Mapping[str, Against], tuned: Tuned | None
) -> MeasuredCase:
    ours = case.arms[one.newest.subject]
    best = one.leading.best.get(case.name) if one.leading else None
    bound = one.newest.result.bound(case)
    return MeasuredCase(
        name=case.name,
        case=case.case,
        current=False,
        us=ours.median_us,
        between_us=ours.between_us,
        best_peer=best[0] if best else None,
        ratio=best[1] if best else None,
        floor_us=bound.us if bound else None,
        floor_by=bound.by if bound else None,
        arms=_arms(one, case.name, ratios),
        tuned=tuned,
    )


def _arms(one: Headline, case: str, ratios: Mapping[str, Against]) -> dict[str, ArmTime]:
    """Ours and the peers that were right, each from the newest run of the build that timed it."""
    found: dict[str, ArmTime] = {}
    for group in one.pooled:
        for timed in (timed for timed in group.cases if timed.name == case):
            own = [group.subject, *group.result.variants]
            for arm in [*own, *group.right_peers(timed)]:
                right = arm not in timed.timed or timed.timed[arm].passed
                if arm not in timed.arms or arm in found or arm in timed.suspect or not right:
                    continue
                time, ratio = timed.arms[arm], ratios.get(arm)
                found[arm] = ArmTime(
                    run=group.run.id,
                    own=arm in own,
                    us=time.median_us,
                    low_us=time.low_us,
                    high_us=time.high_us,
                    between_us=time.between_us,
                    between_low_us=time.between_low_us,
                    between_high_us=time.between_high_us,
                    ratio=ratio.ratio if ratio else None,
                    ratio_low=ratio.low if ratio else None,
                    ratio_high=ratio.high if ratio else None,
                )
    return found


def _tuned(kernel: Kernel, runs: Iterable[Run]) -> dict[object, Tuned]:
    """(machine, fields of a case) → what the newest quiet run that tuned it found."""
    found: dict[object, Tuned] = {}
    for run in runs:
        result, target = run.last(TuneResult), target_of(run)
        if result is None or target is None or result.noise:
            continue
        card = run.machine.card if target != "cpu" else None
        machine = Machine(target, card or f"{run.machine.cpu}, {result.threads} threads")
        for case in result.cases:
            if case.wrong is None:
                one = Tuned(
                    run=run.id, variant=case.variant, setting=result.setting, own=case.own,
                    best=case.best,
                )  # fmt: skip
                found.setdefault((machine, _shape(kernel, case.case)), one)
    return found


def fields(kernel: Kernel, results: Iterable[MeasuredSet]) -> list[ProblemField]:
    """The fields of the kernel's cases, with what the measured ones have."""
    cases = [case.case for of in results for case in of.cases if case.current]
    return [_field(kernel, name, known, cases) for name, known in kernel.case_fields.items()]


def _field(kernel: Kernel, name: str, known: CaseField, cases: Iterable[Case]) -> ProblemField:
    values = {value_text(value): value for case in cases for value in [_value(kernel, case, name)]}
    return ProblemField(
        name=name,
        type=known.type,
        help=known.help,
        default=known.simplest(name),
        minimum=known.minimum,
        maximum=known.maximum,
        divides=known.divides,
        values=sorted(values.values(), key=_in_order),
    )


def _in_order(value: CaseValue) -> tuple[int, float, str]:
    """Null first, then numbers, then text."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, value_text(value)


# ---- the rule ----


def nearest(
    known: Sequence[ProblemField], results: Iterable[MeasuredSet], machine: str, asked: Case
) -> list[Found]:
    """The cases of a machine that answer for a shape, by ``RULE``: the nearest first.

    Args:
        known: the fields of the kernel's cases.
        results: what was measured of the kernel.
        machine: the machine.
        asked: the shape: field → value.
    """
    found = []
    for of in results:
        for case in of.cases if of.machine == machine else ():
            apart = _distance(known, asked, case.case) if case.current else None
            if apart is not None:
                found.append(Found(of, case, *apart))
    return sorted(found, key=lambda one: (one.distance, _own(one.of, one.case)[1]))[:MOST]


def _distance(
    known: Sequence[ProblemField], asked: Case, case: Case
) -> tuple[float, list[str]] | None:
    """How far a case is from a shape, and by which fields; ``None`` if it does not answer for it.

    A product of quotients and no sum of logarithms: it is the same to the last bit in a browser.
    """
    distance, apart = 1.0, []
    for field in known:
        one, other = (values.get(field.name, field.default) for values in (asked, case))
        if one == other:
            continue
        if field.type not in _NUMBERS or not _above_zero(one) or not _above_zero(other):
            return None
        distance *= max(one, other) / min(one, other)  # type: ignore[operator,type-var]
        apart.append(field.name)
    return distance, apart


def _above_zero(value: CaseValue) -> bool:
    return isinstance(value, int | float) and value > 0


def why_none(
    known: Sequence[ProblemField], results: Iterable[MeasuredSet], machine: str, asked: Case
) -> str:
    """Why no case of a machine answers for a shape: what was never timed there."""
    cases = [case for of in results if of.machine == machine for case in of.cases if case.current]
    never = [
        f"{field.name}={value_text(asked.get(field.name, field.default))}"
        for field in known
        if all(_distance([field], asked, case.case) is None for case in cases)
    ]
    return f"no case with {', '.join(never)}" if never else "no case with these fields together"


def as_json(kernel: Kernel, asked: Case, found: Mapping[str, list[Found]]) -> dict[str, Any]:
    """The answers on each machine, for programs; times and ratios are rounded nowhere."""
    return {
        "kernel": kernel.id,
        "case": without_name(asked),
        "rule": RULE,
        "machines": [
            {"machine": machine, "nearest": [_found_json(one) for one in every]}
            for machine, every in found.items()
        ],
    }


def _found_json(one: Found) -> dict[str, Any]:
    return {
        "distance": one.distance,
        "apart": one.apart,
        "fastest": one.fastest,
        "own": one.own,
        "target": one.of.target,
        "case_set": one.of.case_set,
        "measure": one.of.measure,
        "commit": one.of.commit,
        "runs": one.of.runs,
        "commands": one.commands,
        **one.case.model_dump(mode="json"),
    }
