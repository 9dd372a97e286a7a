"""Which setting counts as the best; no test here looks at a clock."""

from __future__ import annotations

import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from kbtool.gpu.benchmark import Timed, timing
from kbtool.gpu.harness import HarnessError
from kbtool.gpu.tune import tune
from kbtool.model.kinds.tune import TuneCase, TuneResult, fastest_apart
from kbtool.steps.tune.report import headline, report


def spread(low: float, median: float, high: float) -> Any:
    """A timing with these quartiles, in microseconds."""
    return timing([us / 1e6 for us in (low, low, median, high, high)])


SLOW, NEAR, FAST, FASTEST = (
    spread(9, 10, 11), spread(7, 8, 9), spread(6, 7, 8), spread(4, 5, 6),
)  # fmt: skip


def test_a_setting_is_better_only_where_the_quartiles_lie_apart():
    assert fastest_apart("1", {"1": SLOW, "2": NEAR}) == "1"
    assert fastest_apart("1", {"1": SLOW, "2": NEAR, "3": FAST}) == "3"
    assert fastest_apart("1", {"1": SLOW, "3": FAST, "4": FASTEST}) == "4"
    assert fastest_apart("4", {"1": SLOW, "4": FASTEST}) == "4"
    with pytest.raises(ValueError, match="own choice, was not timed"):
        fastest_apart("9", {"1": SLOW})


class Clock:
    """Tells times that were made up beforehand, and others where some of the arms come again."""

    device = torch.device("cpu")
    protocol = "none"

    def __init__(
        self,
        times: dict[str, Any],
        absent: dict[str, str] | None = None,
        again: dict[str, Any] | None = None,
    ) -> None:
        self.rounds = [(times, absent or {}), (again or times, {})]

    def time(self, arms: Any, least_bytes: int, *, unseen: Any) -> Timed:
        (times, absent), calls = self.rounds.pop(0), arms(0)
        assert set(calls) == set(times) | set(absent)
        outputs = {name: calls[name]() for name in times}
        with unseen.in_place(unseen.first):
            drawn = {name: [calls[name]()] for name in times}
        return Timed(times, absent, outputs, drawn=drawn)

    def others_on_card(self) -> int:
        return 1

    def read_bandwidth(self) -> float:
        return 1.0


def harness(wrong: int = 0, timed_wrong: int = 0, keeps: int = 0) -> Any:
    """Doubles a tensor; not with the setting ``wrong``, nor, where it is timed, ``timed_wrong``.
    The setting ``keeps`` returns its first result again."""

    def call(inputs: Any, *, variant: str, poison: bool = True) -> Any:
        return {"out": inputs["x"] * (3 if inputs["n"] == wrong else 2)}

    def arm(inputs: Any) -> Any:
        off, kept = inputs["n"] == timed_wrong, []

        def timed() -> Any:
            if not kept or inputs["n"] != keeps:
                kept[:] = [call(inputs, variant="v")["out"] + off]
            return kept[0]

        return timed

    return SimpleNamespace(
        SETTING="n",
        make_inputs=lambda case, *, device, seed: {"x": torch.full((4,), 1.0 + seed % 7)},
        settings=lambda inputs, variant: ("1", {str(n): {**inputs, "n": n} for n in (1, 2)}),
        arms=lambda inputs, variants: {name: arm(inputs) for name in variants},
        call=call,
        reference=lambda inputs: {"out": inputs["x"].double() * 2},
        baseline=lambda inputs: {"out": inputs["x"] * 2},
        work=lambda case: {"bytes": 1, "flops": 1},
    )


def measured(of: Any, clock: Clock) -> TuneResult:
    told = []
    result = tune(
        of, [(("small", {"name": "one", "n": 4}), "v")], clock, sha256="0" * 64, threads=1, seed=0,
        on_case=lambda done, part: told.append((done, part.cases[0].name)),
    )  # fmt: skip
    assert told == [(1, "one")]
    return result


def test_the_faster_setting_is_the_best():
    result = measured(harness(), Clock({"1": SLOW, "2": FAST}))
    case = result.cases[0]
    assert (case.own, case.best, case.wrong, case.case) == ("1", "2", None, {"n": 4})
    assert case.gain == pytest.approx(10 / 7)
    assert result.others_on_card == 1
    alone = result.model_copy(update={"others_busy": 0.0, "others_on_card": None})
    told = "another n is faster in 1 of 1 case: by 1.43× at most, 1.429× in the geometric mean"
    assert headline(alone).startswith(told)
    assert report(result) == ["one, v: own 1 10.00 µs, best 2 7.00 µs (1.43×)"]


def test_a_setting_that_keeps_its_result_is_wrong():
    result = measured(harness(keeps=2), Clock({"1": SLOW, "2": FAST}))
    told = "what was timed with 2: with other values in the same memory, "
    assert str(result.cases[0].wrong).startswith(told)
    assert result.step_status == "failed"


def test_a_setting_that_is_faster_only_once_is_not_the_best():
    result = measured(harness(), Clock({"1": SLOW, "2": FAST}, again={"1": SLOW, "2": NEAR}))
    case = result.cases[0]
    assert (case.best, case.gain, case.settings["2"], case.retimed["2"]) == ("1", 1.0, FAST, NEAR)


def test_the_gain_is_measured_on_separate_samples():
    result = measured(harness(), Clock({"1": SLOW, "2": FASTEST}, again={"1": SLOW, "2": FAST}))
    assert (result.cases[0].best, result.cases[0].gain) == ("2", pytest.approx(10 / 7))
    assert report(result) == ["one, v: own 1 10.00 µs, best 2 7.00 µs (1.43×)"]


@pytest.mark.parametrize("samples", [10, 20])
def test_equal_settings_seldom_give_a_better_one(samples):
    """Nineteen settings as fast as the own choice, by noise of 1 %, in 300 tunes."""
    noise = random.Random(4)

    def drawn(names: Iterable[str]) -> dict[str, Any]:
        return {name: timing([noise.gauss(1e-5, 1e-7) for _ in range(samples)]) for name in names}

    once = twice = 0
    for _ in range(300):
        best = fastest_apart("0", drawn(map(str, range(20))))
        once += best != "0"
        twice += best != "0" and fastest_apart("0", drawn(["0", best])) != "0"
    assert twice <= 3
    assert samples > 10 or once > 20


def test_if_no_setting_is_faster_the_own_choice_is_the_best():
    result = measured(harness(), Clock({"1": SLOW, "2": NEAR}))
    assert (result.cases[0].best, result.cases[0].gain) == ("1", 1.0)
    alone = result.model_copy(update={"others_busy": 0.0, "others_on_card": None})
    assert headline(alone) == "1 case timed; no other n is faster"


def test_a_setting_with_a_wrong_output_is_reported():
    result = measured(harness(wrong=2), Clock({"1": SLOW, "2": FAST}))
    assert str(result.cases[0].wrong).startswith("out: ")


@pytest.mark.parametrize("wrong", [1, 2])
def test_own_choice_and_best_setting_are_compared_with_the_reference(wrong):
    result = measured(harness(timed_wrong=wrong), Clock({"1": SLOW, "2": FAST}))
    assert str(result.cases[0].wrong).startswith(f"what was timed with {wrong}: ")


def test_an_own_choice_that_cannot_be_timed_is_no_result():
    with pytest.raises(HarnessError, match="own choice, cannot be timed: no memory"):
        measured(harness(), Clock({"2": FAST}, {"1": "no memory"}))


def test_inputs_without_settings_are_a_failure_that_names_the_case():
    def refuse(inputs: Any, variant: str) -> Any:
        raise ValueError("calls with lengths are not tuned")

    of = harness()
    of.settings = refuse
    with pytest.raises(HarnessError, match="one: calls with lengths are not tuned"):
        measured(of, Clock({"1": SLOW}))


def test_a_harness_without_settings_says_so():
    with pytest.raises(HarnessError, match="no settings to tune"):
        tune(
            SimpleNamespace(), [], Clock({}), sha256="0" * 64, threads=1, seed=0,
            on_case=lambda done, part: None,
        )  # fmt: skip


def test_a_recorded_best_that_contradicts_the_times_is_refused():
    fields = {"name": "c", "case_set": "s", "case": {}, "variant": "v", "own": "1"}
    times = {"1": SLOW, "2": NEAR}
    assert TuneCase(**fields, settings=times, best="1").gain == 1.0
    with pytest.raises(ValidationError, match="best is 2; the times make it 1"):
        TuneCase(**fields, settings=times, best="2")
    faster = {"1": SLOW, "2": FAST}
    assert TuneCase(**fields, settings=faster, best="2").best == "2"  # as in older records
    with pytest.raises(ValidationError, match="best is 2; the times make it 1"):
        TuneCase(**fields, settings=faster, retimed=times, best="2")
    with pytest.raises(ValidationError, match="retimed 1, 3; the times call for 2"):
        TuneCase(**fields, settings=faster, retimed={"1": SLOW, "3": FAST}, best="3")
