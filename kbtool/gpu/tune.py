"""Tuning: what the library chooses by itself, timed beside every other choice worth making."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any, cast

import torch

from kbtool.gpu.benchmark import (
    CHECKED,
    UNSEEN,
    Calls,
    Clock,
    OtherProcesses,
    Timed,
    more,
    wrong_on_unseen,
)
from kbtool.gpu.compare import Judge
from kbtool.gpu.harness import Harness, HarnessError, HarnessWithSettings, Inputs, inputs_of
from kbtool.gpu.unseen import Unseen
from kbtool.gpu.validate import case_seed
from kbtool.model.kernel import without_name
from kbtool.model.kinds.tune import TuneCase, TuneResult, fastest_apart


def tune(
    harness: Harness,
    cases: Sequence[tuple[tuple[str, Mapping[str, Any]], str | None]],
    clock: Clock,
    *,
    sha256: str,
    threads: int,
    seed: int,
    on_case: Callable[[int, TuneResult], None],
) -> TuneResult:
    """Time every setting of every case.

    Args:
        harness: the kernel's harness, with settings.
        cases: ((case set, case), variant) pairs.
        clock: how to time, and where.
        sha256: of the library, for the record.
        threads: CPU threads.
        seed: of the inputs.
        on_case: called with the number of cases done and the result of the last one.

    Raises:
        HarnessError: the harness has no settings, or the library's own choice cannot be timed.
    """
    if not hasattr(harness, "settings"):
        raise HarnessError("the kernel's harness has no settings to tune")
    tunable = cast("HarnessWithSettings", harness)
    others = OtherProcesses()
    on_card: int | None = None
    results: list[TuneCase] = []

    def of(cases: list[TuneCase]) -> TuneResult:
        return TuneResult(
            sha256=sha256,
            device=clock.device.type,
            threads=threads,
            setting=tunable.SETTING,
            protocol=(
                f"{clock.protocol}; the fastest setting whose quartiles lie apart from those of the"
                " own choice is timed again beside it alone, and is the best only if they do there"
                f" too; {CHECKED}: of the settings that were timed last, as are all outputs of a"
                f" call with the best; {UNSEEN}"
            ),
            others_busy=others.share(),
            others_on_card=on_card,
            cases=cases,
        )

    with torch.inference_mode():
        for (case_set, case), variant in cases:
            assert variant is not None
            seeded = case_seed(seed, case_set, str(case["name"]))
            results.append(_tune_case(tunable, case_set, case, clock, seeded, variant))
            on_card = more(on_card, clock.others_on_card())
            on_case(len(results), of(results[-1:]))
    return of(results)


def _tune_case(
    harness: HarnessWithSettings,
    case_set: str,
    case: Mapping[str, Any],
    clock: Clock,
    seed: int,
    variant: str,
) -> TuneCase:
    def make(number: int) -> dict[str, Any]:
        return inputs_of(harness, case, device=clock.device, seed=seed + number)

    def of(inputs: Inputs) -> tuple[str, dict[str, Inputs]]:
        """The own choice, and the inputs of every setting; they share their tensors."""
        try:
            return harness.settings(inputs, variant)
        except ValueError as error:
            raise HarnessError(f"{case['name']}: {error}") from error

    def time(among: Collection[str]) -> tuple[Timed, Unseen]:
        """The settings ``among`` all, and what they were held to."""
        unseen = Unseen(make, among, Random(seed))

        def arms(number: int) -> Calls:
            inputs = make(number)
            if number == 0:
                unseen.begin(inputs)
            settings = of(inputs)[1]
            return {name: harness.arms(settings[name], [variant])[variant] for name in among}

        return clock.time(arms, harness.work(case)["bytes"], unseen=unseen), unseen

    def faults_of(timed: Timed, unseen: Unseen, names: Collection[str]) -> list[str]:
        """What is wrong with what was timed, setting by setting."""
        judge = Judge(harness, unseen.restored())
        held = {name: judge.first(timed.outputs[name]) for name in names}
        held |= wrong_on_unseen(harness, unseen, timed, held)
        told = {name: error.message for name, error in held.items() if not error.passed}
        return [
            f"what was timed with {name}: {why}" for name, why in (timed.suspect | told).items()
        ]

    own, settings = of(make(0))
    names = list(settings)
    del settings  # on a card the inputs take the memory that timing needs
    last, unseen = first, _ = time(names)
    if own not in first.timings:
        why = first.absent.get(own, "it is not among the settings")
        raise HarnessError(f"{case['name']}: {own}, the own choice, cannot be timed: {why}")
    best = fastest_apart(own, first.timings)
    if best != own:
        # Of many settings alike one looks faster by luck; not twice.
        last, unseen = time([own, best])
        if last.absent:
            raise HarnessError(f"{case['name']}: cannot be timed again: {last.absent}")
        best = fastest_apart(own, last.timings)
    faults = faults_of(last, unseen, list(last.timings))
    inputs = of(unseen.restored())[1][best]
    out = harness.call(inputs, variant=variant, poison=True)
    errors = Judge(harness, inputs).all(out)
    faults = [
        *(f"{key}: {error.message}" for key, error in errors.items() if not error.passed),
        *faults,
    ]
    return TuneCase(
        name=str(case["name"]),
        case_set=case_set,
        case=without_name(case),
        variant=variant,
        own=own,
        settings=first.timings,
        absent=first.absent,
        best=best,
        retimed=last.timings if last is not first else {},
        wrong="; ".join(faults) or None,
    )
