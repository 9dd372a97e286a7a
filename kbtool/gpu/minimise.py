"""Minimisation: the failing cases of a set, the smallest that still fails, the part at fault.

Runs in a child that a case may take with it. Each verdict is told as it falls; the parent starts
another child that knows the verdicts so far, and the search, in which nothing is left to chance,
goes the same way as far as they reach, and on from there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kbtool.gpu.compare import RULE, compare_all
from kbtool.gpu.harness import Harness, HarnessError, Inputs
from kbtool.gpu.shrink import Case, Search, Shrinker, State, Verdict
from kbtool.gpu.validate import case_seed, validate_case
from kbtool.model.kernel import GIVEN, CaseField, CaseValue
from kbtool.model.kinds.minimise import FailingCase, MinimiseResult, PartResult
from kbtool.model.kinds.validate import CaseResult, OutputError

FEWEST_DRAWS = 3
"""Inputs drawn for a case of a set, and for any case however large."""
_WORK = 1 << 24
"""Bytes and operations that the draws of one case may come to."""
_HINTS = 24
"""The most values of a field that are tried because cases with them pass."""


class SpentError(Exception):
    """No probes, or no time, are left."""


class ContextLostError(Exception):
    """A case took the card's context with it: another process has to go on."""


class Prober:
    """Tries cases, and remembers.

    Args:
        harness: the kernel's harness.
        search: how far to go, and what is known.
        device: where to run.
        seed: of the inputs.
        variant: the version of the operator; its own choice where not given.
        on_probe: called with the key of a case and what it is, before it is tried with ``None`` and
            afterwards with the verdict.
    """

    def __init__(
        self,
        harness: Harness,
        search: Search,
        *,
        device: torch.device,
        seed: int,
        variant: str | None,
        on_probe: Callable[[str, str, Verdict | None], None],
    ) -> None:
        self.harness, self.search, self.device = harness, search, device
        self.seed, self.variant = seed, variant
        self.known = dict(search.known)
        self._deadline = time.monotonic() + search.seconds
        self._on_probe = on_probe

    def __call__(self, case_set: str, case: Case, draws: int = FEWEST_DRAWS) -> Verdict:
        """The verdict on ``case``, from at most so many draws of its inputs.

        Raises:
            SpentError: it would have to be tried, and nothing is left to try it with.
            ContextLostError: it lost the card's context.
        """
        key = json.dumps([case_set, case])
        if key not in self.known:
            if len(self.known) >= self.search.probes:
                raise SpentError(f"{self.search.probes} cases were tried, the most allowed")
            if time.monotonic() > self._deadline:
                raise SpentError("the time of the step was used up")
            self._record(key, self.search.kernel.case_text(case), self._try, case_set, case, draws)
        return self.known[key]

    def work(self, case: Case) -> int | None:
        """What the harness counts for a case; ``None`` where it cannot, as of one that is none."""
        try:
            return sum(self.harness.work(case).values())
        except Exception:
            return None

    def draws(self, case: Case) -> int:
        """How many inputs to draw for a case: a failure may hang on the values, and the smaller
        a case the rarer, and the cheaper, it is."""
        work = sum(self.harness.work(case).values())
        return max(FEWEST_DRAWS, min(self.search.draws, _WORK // max(work, 1)))

    def _record(self, key: str, label: str, judge: Callable[..., Verdict], *of: Any) -> None:
        self._on_probe(key, label, None)
        self.known[key] = judge(*of)
        self._on_probe(key, label, self.known[key])
        if self.known[key].fatal:
            raise ContextLostError

    def _try(self, case_set: str, case: Case, draws: int) -> Verdict:
        if not self.search.kernel.targets[self.search.target].takes(case, self.variant):
            return Verdict(state="refused", message="not taken by this target or variant")
        for seed in range(self.seed, self.seed + draws):
            try:
                result = self._validate(case_set, case, seed)
            except HarnessError:
                raise
            except Exception as error:
                # The operator's own errors are part of the result. This is one of the reference,
                # for which the case makes no sense, or of a context that is lost.
                message = f"{type(error).__name__}: {error}"
                lost = self._lost()
                return Verdict(
                    state="fails" if lost else "refused", message=message, seed=seed, fatal=lost
                )
            if not result.passed:
                raised = not result.outputs
                lost = raised and self._lost()
                return Verdict(
                    state="raises" if raised and not lost else "fails",
                    message=result.message or "",
                    seed=seed,
                    fatal=lost,
                )
        return Verdict(state="passes")

    def _validate(self, case_set: str, case: Case, seed: int) -> CaseResult:
        return validate_case(
            self.harness, case_set, case, device=self.device, seed=seed, variant=self.variant
        )

    def _lost(self) -> bool:
        """Whether nothing can run on the device any more."""
        if self.device.type != "cuda":
            return False
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return True
        return False

    def result(self, case_set: str, case: Case) -> CaseResult:
        """A failing case with the errors of its outputs, if it leaves any."""
        verdict = self(case_set, case)
        if not verdict.fatal:
            return self._validate(case_set, case, verdict.seed)
        return CaseResult(
            case_set=case_set,
            name=str(case["name"]),
            case={key: value for key, value in case.items() if key != "name"},
            passed=False,
            message=verdict.message,
        )

    def rate(self, case_set: str, case: Case) -> tuple[int, int] | None:
        """In how many draws of its inputs a failing case fails, and of how many; ``None`` where it
        takes the process with it."""
        if self(case_set, case).fatal:
            return None
        count = self.draws(case)
        seeds = range(self.seed, self.seed + count)
        return sum(not self._validate(case_set, case, seed).passed for seed in seeds), count

    def parts(self, case_set: str, case: Case) -> list[PartResult]:
        """The operator's parts alone, on the inputs with which a case failed."""
        offered = self._offered(case_set, case, self.variant)
        inputs = self._inputs(case_set, case)
        return [self._part(name, run, inputs) for name, run in offered.items()]

    def variants_with_parts(self, case_set: str, case: Case) -> list[str]:
        """The other variants that take the case and have parts that can be run alone."""
        target = self.search.kernel.targets[self.search.target]
        return [
            name
            for name in target.variants
            if name != self.variant
            and target.takes(case, name)
            and self._offered(case_set, case, name)
        ]

    def _offered(
        self, case_set: str, case: Case, variant: str | None
    ) -> Mapping[str, Callable[[], Any]]:
        """The parts of a variant, for the inputs with which a case failed."""
        offered = getattr(self.harness, "parts", None)
        if offered is None:
            return {}
        found: Mapping[str, Callable[[], Any]] = offered(self._inputs(case_set, case), variant)
        return found

    def _inputs(self, case_set: str, case: Case) -> Inputs:
        """The inputs with which a case failed."""
        seed = case_seed(self(case_set, case).seed, case_set, str(case["name"]))
        return self.harness.make_inputs(case, device=self.device, seed=seed)

    def _part(self, name: str, run: Callable[[], Any], inputs: Inputs) -> PartResult:
        outputs: dict[str, OutputError] = {}

        def judge() -> Verdict:
            try:
                out, reference, yardstick = run()
                outputs.update(compare_all(self.harness, inputs, out, reference, yardstick))
            except Exception as error:
                message = f"raised {type(error).__name__}: {error}"
                return Verdict(state="fails", message=message, fatal=self._lost())
            wrong = [f"{key}: {said.message}" for key, said in outputs.items() if not said.passed]
            return Verdict(state="fails" if wrong else "passes", message="; ".join(wrong))

        key = json.dumps(["part", name])
        # What an earlier process found without dying is found again, for the errors.
        if key not in self.known or not self.known[key].fatal:
            self._record(key, name, judge)
        verdict = self.known[key]
        return PartResult(
            name=name,
            passed=verdict.state == "passes",
            outputs=outputs,
            message=verdict.message or None,
        )


@torch.inference_mode()
def minimise(prober: Prober, cases: Sequence[tuple[str, Case]], sha256: str) -> MinimiseResult:
    """Find the failing cases, and make that with the least work as small as can be.

    Args:
        prober: tries cases.
        cases: (case set, case) pairs.
        sha256: of the library, for the record.

    Raises:
        ContextLostError: another process has to go on.
    """
    found: dict[str, Any] = {}
    failing: list[tuple[Verdict, str, Case]] = []
    passing: list[Case] = []
    tried = 0
    try:
        for case_set, case in cases:
            verdict = prober(case_set, case)
            tried += 1
            if verdict.state in {"fails", "raises"}:
                failing.append((verdict, case_set, case))
            elif verdict.state == "passes":
                passing.append(case)
    except SpentError as error:
        found["unfinished"] = str(error)
    if failing:
        # Wrong results before errors: those are what one cannot see. Then the least work.
        start = min(
            failing, key=lambda entry: (entry[0].state, sum(prober.harness.work(entry[2]).values()))
        )
        fields = prober.search.kernel.case_fields
        hints = _hints(fields, passing, [case for _, _, case in failing])
        most = max([_WORK, *(prober.work(case) or 0 for _, case in cases[:tried])])
        found |= _examine(prober, *start, hints, most)
    return MinimiseResult(
        sha256=sha256,
        device=str(prober.device),
        variant=prober.variant,
        seed=prober.seed,
        draws=prober.search.draws,
        rule=RULE,
        cases=tried,
        failing=[_failing(*entry) for entry in failing],
        probes=len(prober.known),
        deaths=sum(verdict.fatal for verdict in prober.known.values()),
        **found,
    )


def _hints(
    fields: Mapping[str, CaseField], passing: list[Case], failing: list[Case]
) -> dict[str, list[CaseValue]]:
    """Field → values of it in cases that pass, first those that no failing case has."""
    hints: dict[str, list[CaseValue]] = {}
    for name in (name for name, field in fields.items() if field.type != "ints"):
        fails = [case[name] for case in failing]
        values: dict[Any, None] = dict.fromkeys(case[name] for case in passing)
        order = sorted(values, key=lambda value: (value in fails, value is not None, value))
        hints[name] = order[:_HINTS]
    return hints


def _examine(
    prober: Prober,
    failure: Verdict,
    case_set: str,
    case: Case,
    hints: Mapping[str, list[CaseValue]],
    most: int,
) -> dict[str, Any]:
    """What there is to find of a failing case, as fields of the result.

    Args:
        prober: tries cases.
        failure: what became of the case.
        case_set: its set.
        case: the case.
        hints: field → values to try when it is as small as can be.
        most: the most work of a case that is tried then.
    """
    kernel = prober.search.kernel

    def named(candidate: Case) -> tuple[str, Case]:
        """With the name, and so the inputs, that it has when its text is given to a step."""
        if candidate == case:
            return case_set, case
        return GIVEN, {**candidate, "name": kernel.case_text(candidate)}

    def probe(candidate: Case) -> State:
        verdict = prober(*named(candidate), prober.draws(candidate))
        if verdict.state != "raises":
            return verdict.state
        # An error of another kind says that a case is not taken, and not that it goes wrong.
        return "fails" if _error_of(verdict) == _error_of(failure) else "refused"

    found: dict[str, Any] = {"start": _failing(failure, case_set, case), "axes": []}
    shrinker = Shrinker(kernel.case_fields, probe, case)
    try:
        shrinker.shrink()
        for axis in shrinker.axes():
            found["axes"].append(axis)
        shrinker.widen(
            found["axes"],
            hints,
            affordable=lambda case: (work := prober.work(case)) is not None and work <= most,
            deadly=lambda case: prober(*named(case)).fatal,
        )
    except SpentError as error:
        found["unfinished"] = str(error)
    smallest = named(shrinker.smallest)
    found["smallest"] = prober.result(*smallest)
    found["smallest_seed"] = prober(*smallest).seed
    found["text"] = kernel.case_text(shrinker.smallest)
    found["failed_draws"] = prober.rate(*smallest)
    found["parts"] = prober.parts(*smallest)
    if not found["parts"]:
        found["parts_of"] = prober.variants_with_parts(*smallest)
    return found


def _error_of(verdict: Verdict) -> str | None:
    """The error that was raised, whatever the numbers in it; ``None`` where none was."""
    return re.sub(r"\d+", "0", verdict.message) if verdict.state == "raises" else None


def _failing(verdict: Verdict, case_set: str, case: Case) -> FailingCase:
    return FailingCase(case_set=case_set, name=str(case["name"]), message=verdict.message)
