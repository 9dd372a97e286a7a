"""Minimisation: find the failing cases, shrink one while it still fails, find the faulty part.

Runs in a child process, because a case may kill it. The child reports each verdict at once. After a
crash the parent starts another child with the verdicts so far. The search is deterministic, so the
new child repeats the same steps from the known verdicts and continues from there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kbtool.gpu.compare import RULE, Judge
from kbtool.gpu.context import context_lost
from kbtool.gpu.harness import Harness, HarnessError, Inputs, inputs_of
from kbtool.gpu.shrink import Case, Search, Shrinker, State, Verdict
from kbtool.gpu.validate import case_seed, validate_case
from kbtool.model.kernel import GIVEN, CaseField, CaseValue, without_name
from kbtool.model.kinds.minimise import FailingCase, MinimiseResult, PartResult
from kbtool.model.kinds.validate import CaseResult, OutputError

FEWEST_DRAWS = 3
"""Random inputs drawn for a case of a set, and the minimum for any other case."""
_WORK = 1 << 24
"""The most bytes plus operations for all draws of one case."""
_HINTS = 24
"""The most values of a field to try because a passing case has them."""


class SpentError(Exception):
    """The search has used up its probes or its time."""


class ContextLostError(Exception):
    """A case lost the CUDA context, so another process has to continue."""


class Prober:
    """Runs cases and remembers the verdicts.

    Args:
        harness: the kernel's harness.
        search: limits of the search, and the known verdicts.
        device: the device to run on.
        seed: seed of the inputs.
        variant: variant of the operator. Default: the library chooses.
        on_probe: called with the key and label of a case: with ``None`` before it runs, with the
            verdict afterwards.
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
        """The verdict on ``case``, after at most ``draws`` draws of its inputs.

        Raises:
            SpentError: the verdict is not known, and no probes or no time are left.
            ContextLostError: the case lost the CUDA context.
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
        """The harness's work count for a case; ``None`` if the case is invalid."""
        try:
            return sum(self.harness.work(case).values())
        except Exception:
            return None

    def draws(self, case: Case) -> int:
        """How many inputs to draw for a case. A failure may depend on the values; in smaller cases
        it is rarer, and draws are cheaper."""
        work = sum(self.harness.work(case).values())
        return max(FEWEST_DRAWS, min(self.search.draws, _WORK // max(work, 1)))

    def _record(self, key: str, label: str, judge: Callable[..., Verdict], *of: Any) -> None:
        self._on_probe(key, label, None)
        self.known[key] = judge(*of)
        self._on_probe(key, label, self.known[key])
        if self.known[key].fatal:
            raise ContextLostError

    def _try(self, case_set: str, case: Case, draws: int) -> Verdict:
        if problem := self.search.kernel.outside(case):
            return Verdict(state="refused", message=problem)
        if not self.search.kernel.targets[self.search.target].takes(case, self.variant):
            return Verdict(state="refused", message="not taken by this target or variant")
        for seed in range(self.seed, self.seed + draws):
            try:
                result = self._validate(case_set, case, seed)
            except HarnessError:
                raise
            except Exception as error:
                # Errors of the operator are part of the verdict. An error here comes from the
                # reference, which rejects the case, or from a lost context.
                message = f"{type(error).__name__}: {error}"
                lost = context_lost(self.device)
                return Verdict(
                    state="fails" if lost else "refused", message=message, seed=seed, fatal=lost
                )
            if not result.passed:
                raised = not result.outputs
                lost = raised and context_lost(self.device)
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

    def result(self, case_set: str, case: Case) -> CaseResult:
        """A failing case as a record, with the errors of its outputs if there are any."""
        verdict = self(case_set, case)
        if not verdict.fatal:
            return self._validate(case_set, case, verdict.seed)
        return CaseResult(
            case_set=case_set,
            name=str(case["name"]),
            case=without_name(case),
            passed=False,
            message=verdict.message,
        )

    def rate(self, case_set: str, case: Case) -> tuple[int, int] | None:
        """How many draws of a failing case fail, and how many were tried; ``None`` if the case
        kills its process."""
        if self(case_set, case).fatal:
            return None
        count = self.draws(case)
        seeds = range(self.seed, self.seed + count)
        return sum(not self._validate(case_set, case, seed).passed for seed in seeds), count

    def parts(self, case_set: str, case: Case) -> list[PartResult]:
        """Run each part of the operator alone, on inputs with which a case failed."""
        offered = self._offered(case_set, case, self.variant)
        inputs = self._inputs(case_set, case)
        return [self._part(name, run, inputs) for name, run in offered.items()]

    def variants_with_parts(self, case_set: str, case: Case) -> list[str]:
        """Other variants that take the case and have parts that can run alone."""
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
        """Make the inputs with which a case failed."""
        seed = case_seed(self(case_set, case).seed, case_set, str(case["name"]))
        return inputs_of(self.harness, case, device=self.device, seed=seed)

    def _part(self, name: str, run: Callable[[], Any], inputs: Inputs) -> PartResult:
        outputs: dict[str, OutputError] = {}

        def judge() -> Verdict:
            try:
                out, reference, yardstick = run()
                outputs.update(Judge(self.harness, inputs, reference, yardstick).all(out))
            except Exception as error:
                message = f"raised {type(error).__name__}: {error}"
                return Verdict(state="fails", message=message, fatal=context_lost(self.device))
            wrong = [
                f"{key}: {output.message}" for key, output in outputs.items() if not output.passed
            ]
            return Verdict(state="fails" if wrong else "passes", message="; ".join(wrong))

        key = json.dumps(["part", name])
        # Run it again for the errors, unless it killed an earlier process.
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
    """Find the failing cases and shrink the one with the least work.

    Args:
        prober: runs cases.
        cases: (case set, case) pairs.
        sha256: hash of the library, for the record.

    Raises:
        ContextLostError: another process has to continue.
    """
    found: dict[str, Any] = {}
    failing: list[tuple[Verdict, str, Case]] = []
    passing: list[Case] = []
    refused: list[FailingCase] = []
    tried = 0
    try:
        for case_set, case in cases:
            verdict = prober(case_set, case)
            tried += 1
            if verdict.state in {"fails", "raises"}:
                failing.append((verdict, case_set, case))
            elif verdict.state == "passes":
                passing.append(case)
            else:
                refused.append(_failing(verdict, case_set, case))
    except SpentError as error:
        found["unfinished"] = str(error)
    if failing:
        # Prefer wrong results to raised errors, because they are silent; then the least work.
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
        refused=refused,
        probes=len(prober.known),
        deaths=sum(verdict.fatal for verdict in prober.known.values()),
        **found,
    )


def _hints(
    fields: Mapping[str, CaseField], passing: list[Case], failing: list[Case]
) -> dict[str, list[CaseValue]]:
    """Field → its values in passing cases, those that no failing case has first."""
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
    """Examine one failing case; returns fields of the result.

    Args:
        prober: runs cases.
        failure: the verdict on the case.
        case_set: the case set.
        case: the case.
        hints: field → values to try once the case is minimal.
        most: the most work that such a case may have.
    """
    kernel = prober.search.kernel

    def named(candidate: Case) -> tuple[str, Case]:
        """The case under the name that it gets when its text is given to a step. The name decides
        the inputs."""
        if candidate == case:
            return case_set, case
        return GIVEN, {**candidate, "name": kernel.case_text(candidate)}

    def probe(candidate: Case) -> State:
        verdict = prober(*named(candidate), prober.draws(candidate))
        if verdict.state != "raises":
            return verdict.state
        # A different error means that the case is not supported, not that it fails.
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
    """The raised error with its numbers removed; ``None`` if nothing was raised."""
    return re.sub(r"\d+", "0", verdict.message) if verdict.state == "raises" else None


def _failing(verdict: Verdict, case_set: str, case: Case) -> FailingCase:
    return FailingCase(case_set=case_set, name=str(case["name"]), message=verdict.message)
