"""What a step of a run found: one model a kind of step, told apart by ``type``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kbtool.model.base import KernelId, Model, Reference
from kbtool.model.kernel import CaseValue, value_text
from kbtool.model.mutant import Mutant

Microseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

QUIET = 0.05
"""The share of the cores that others may use while a benchmark runs."""

_ROUNDING_US = 1e-4
"""Samples are kept to so many microseconds."""


class BuildResult(Model):
    """What a build step made."""

    type: Literal["build"] = "build"
    kernel: KernelId
    target: str
    key: str
    """Hash of sources, flags, compiler, torch, architecture: the name of the build folder."""
    artifact: str
    """File name of the library."""
    sha256: Sha256
    """Hash of the library: what validate and benchmark must find."""
    bytes: int
    warm: bool
    """Whether it was there already and no compiler ran."""
    reused: int = 0
    """Objects that earlier builds had left; their sources were not compiled again."""
    compiler: str
    flags: list[str]
    sources: dict[str, Sha256]
    """File → hash."""
    specialisation: str = ""
    """The specialisation of the target that was built alone; empty where all of it was."""


class OutputError(Model):
    """One output of one case, held against the reference."""

    passed: bool
    error: float | None
    """max |out − ref| over finite positions; null if there are none or they do not compare."""
    bound: float | None
    """2 · max |torch − ref| + atol: what the error may be."""
    torch_error: float | None
    """max |torch − ref|: the error of torch's own implementation at this precision."""
    message: str | None = None
    """What is wrong, if anything."""

    @model_validator(mode="after")
    def _verdict_follows(self) -> Self:
        if self.error is None or self.bound is None:
            return self
        if self.passed != (self.error <= self.bound):
            said, is_ = ("passed", "over") if self.passed else ("did not pass", "within")
            raise ValueError(f"{said}, although error {self.error} is {is_} bound {self.bound}")
        return self

    @property
    def share(self) -> float | None:
        """The error as a share of its bound; ``None`` where there are not both."""
        if self.error is None or self.bound is None:
            return None
        if self.bound == 0:
            return 0.0 if self.error == 0 else math.inf
        return self.error / self.bound


class CaseResult(Model):
    """One case of a validation."""

    case_set: str
    name: str
    variant: str | None = None
    """The variant that was asked for; null leaves the choice to the kernel."""
    case: dict[str, Any]
    passed: bool
    outputs: dict[str, OutputError] = {}
    repeatable: bool | None = None
    """Whether a second call gave the same bits."""
    message: str | None = None
    """What is wrong, if anything."""

    @model_validator(mode="after")
    def _verdict_follows(self) -> Self:
        if not self.passed:
            return self
        wrong = [name for name, output in self.outputs.items() if not output.passed]
        if wrong:
            raise ValueError(f"passed, although output {wrong[0]!r} did not")
        if self.repeatable is False:
            raise ValueError("passed, although a second call gave other bits")
        return self

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return f"{self.case_set}/{self.name}" + (f" as {self.variant}" if self.variant else "")


class ValidationResult(Model):
    """What a validate step found."""

    type: Literal["validation"] = "validation"
    sha256: Sha256
    """The library that was validated."""
    device: str
    seed: int
    rule: str
    """The rule of the verdict, in words."""
    cases: list[CaseResult]
    not_reached: Annotated[int, Field(ge=0)] = 0
    """Cases that the step did not come to; more than 0 only where it did not end by itself."""
    first_seconds: Annotated[float, Field(ge=0)] | None = None
    """From the step's start to the first verdict, in seconds; null where that was not kept."""

    @property
    def passed(self) -> bool:
        """Whether every case was run and passed."""
        return bool(self.cases) and not self.not_reached and all(c.passed for c in self.cases)

    @property
    def cases_passed(self) -> int:
        """How many cases passed."""
        return sum(case.passed for case in self.cases)

    @property
    def variants(self) -> set[str | None]:
        """The variants that the cases were held against; ``None`` is the kernel's own choice."""
        return {case.variant for case in self.cases}


def unvalidated(
    sha256: str, variants: Iterable[str | None], passed: Iterable[ValidationResult]
) -> str | None:
    """What passed none of the validations, in words, or ``None``.

    Args:
        sha256: of the library.
        variants: of it; ``None`` is its own choice.
        passed: validations that passed.
    """
    known: set[str | None] = set()
    for result in passed:
        if result.sha256 == sha256:
            known |= result.variants
    missing = [variant for variant in variants if variant not in known]
    if not missing:
        return None
    library = f"library {sha256[:12]}"
    return f"variant {missing[0] or 'default'} of {library}" if known else library


class Timing(Model):
    """Samples of one arm on one case."""

    samples_us: Annotated[list[Microseconds], Field(min_length=1)]
    """Microseconds a call, one entry a sample."""
    median_us: Microseconds
    """The median of the samples."""
    low_us: Microseconds
    """Their 25th percentile."""
    high_us: Microseconds
    """Their 75th percentile."""
    calls_per_sample: int
    """Calls that a sample averages over."""
    host_us: Microseconds | None = None
    """Median time of one call as the host sees it, launch and return included."""
    between_us: Microseconds | None = None
    """Median time of a plain kernel and the call behind it, both together, in a chain of such
    pairs; null on the CPU and in older records."""
    between_low_us: Microseconds | None = None
    """The 25th percentile of the same."""
    between_high_us: Microseconds | None = None
    """The 75th percentile."""

    @model_validator(mode="after")
    def _figures_follow_from_samples(self) -> Self:
        samples = self.samples_us if len(self.samples_us) > 1 else self.samples_us * 2
        quartiles = statistics.quantiles(samples, n=4, method="inclusive")
        names = ("low_us", "median_us", "high_us")
        for name, figure in zip(names, quartiles, strict=True):
            stated: float = getattr(self, name)
            if not math.isclose(stated, figure, rel_tol=1e-9, abs_tol=_ROUNDING_US):
                raise ValueError(f"{name} is {stated}, but the samples give {figure}")
        between = (self.between_low_us, self.between_us, self.between_high_us)
        known = [figure for figure in between if figure is not None]
        if known != sorted(known):
            raise ValueError(f"between_us and its quartiles are out of order: {known}")
        return self

    @property
    def sample_ms(self) -> float:
        """How long a sample took, all its calls together, in the median."""
        return self.calls_per_sample * self.median_us / 1e3

    def us(self, between: bool) -> float | None:
        """``between_us`` or the median."""
        return self.between_us if between else self.median_us


class BenchmarkCase(Model):
    """One case of a benchmark: every arm in turn, over the same inputs."""

    name: str
    case_set: str | None = None
    """Null in older records, of steps that timed one set."""
    case: dict[str, Any]
    arms: dict[str, Timing]
    bytes: int
    """Least bytes that the case has to move."""
    flops: int
    """Operations that the case needs."""
    rechecked: bool
    """Whether the result was right again after timing."""
    refused: str | None = None
    """Why the figures are refused; a refused case proves nothing."""
    absent: dict[str, str] = {}
    """Arm → why it did not run."""
    workspace_bytes: dict[str, int] = {}
    """Arm of the library → device or main memory that it needs beside inputs and outputs."""
    peers: dict[str, OutputError] = {}
    """Peer → its output against the reference, under the rule of validation."""
    timed: dict[str, OutputError] = {}
    """Arm of the library → the output of what was timed, likewise; empty in older records."""
    plain_us: Microseconds | None = None
    """What the plain kernel of ``between_us`` takes in a chain of its own."""
    sm_clock_mhz: int | None = None
    """The card's multiprocessor clock right after the timed samples; null where there is no card,
    where it does not tell, and in older records."""

    @model_validator(mode="after")
    def _rechecked_follows(self) -> Self:
        wrong = [arm for arm, output in self.timed.items() if not output.passed]
        if self.rechecked and wrong:
            raise ValueError(f"rechecked, although what was timed as {wrong[0]} is wrong")
        return self


class BenchmarkResult(Model):
    """What a benchmark step measured."""

    type: Literal["benchmark"] = "benchmark"
    sha256: Sha256
    """The library that was timed."""
    device: str
    threads: int
    subject: str
    """The arm that runs the library."""
    baseline: str
    """The arm that ratios are taken against."""
    variants: list[str] = []
    """The arms that run one variant of the library each."""
    read_gb_s: Annotated[float, Field(gt=0)]
    """The measured ceiling of memory reads, in 10⁹ bytes a second, same run, same threads."""
    protocol: str
    """How it was timed, in words."""
    sm_clocks_mhz: list[int] | None = None
    """The card's multiprocessor clock before each case and after the last, right after reading
    memory; null where there is no card or it does not tell."""
    others_busy: Annotated[float, Field(ge=0)] | None = None
    """Share of the cores that other processes used meanwhile; null where it cannot be told."""
    others_on_card: Annotated[int, Field(ge=0)] | None = None
    """The most other processes that held the card to compute, as asked before each case and after
    the last; null where there is no card or nobody tells."""
    cases: list[BenchmarkCase]
    not_reached: Annotated[int, Field(ge=0)] = 0
    """Cases that the step did not come to; more than 0 only where it did not end by itself."""

    @property
    def ran(self) -> list[str | None]:
        """The variants of the library that were run; ``None`` is its own choice."""
        return [None, *self.variants]

    def ratio(self, case: BenchmarkCase) -> float | None:
        """Baseline time ÷ subject time: above 1 the subject is faster.

        ``None`` without both, and where others were busy: noise can turn which is faster.
        """
        subject, baseline = case.arms.get(self.subject), case.arms.get(self.baseline)
        if self.noise or case.refused or subject is None or baseline is None:
            return None
        return baseline.median_us / subject.median_us

    def ratios(self) -> list[float]:
        """The :meth:`ratio` of every case that has one."""
        return [value for case in self.cases if (value := self.ratio(case)) is not None]

    def best_peer(self, case: BenchmarkCase, *, between: bool = False) -> str | None:
        """The fastest arm that is not the library's and whose output is right.

        Args:
            case: of this benchmark.
            between: by the times behind plain kernels.
        """
        ours = {self.subject, *self.variants}
        right = {
            arm: us
            for arm, timing in case.arms.items()
            if arm not in ours and (arm not in case.peers or case.peers[arm].passed)
            if (us := timing.us(between)) is not None
        }
        return min(right, key=right.__getitem__, default=None)

    def ratio_to_best(self, case: BenchmarkCase, *, between: bool = False) -> float | None:
        """The best peer's time ÷ subject time; ``None`` where :meth:`ratio` would be."""
        best = self.best_peer(case, between=between)
        if self.noise or case.refused or best is None or self.subject not in case.arms:
            return None
        peer, subject = (case.arms[arm].us(between) for arm in (best, self.subject))
        return peer / subject if peer and subject else None

    def by_set(self, *, between: bool = False) -> dict[str, list[float]]:
        """Case set → its cases' ratios to their best peers."""
        found: dict[str, list[float]] = {}
        for case in self.cases:
            value = self.ratio_to_best(case, between=between)
            if value is not None:
                found.setdefault(case.case_set or "", []).append(value)
        return found

    def share_of_ceiling(self, case: BenchmarkCase) -> float | None:
        """The case's least bytes a second as a share of the measured read rate."""
        subject = case.arms.get(self.subject)
        if case.refused or subject is None:
            return None
        return case.bytes / (subject.median_us * 1e3) / self.read_gb_s

    @property
    def noise(self) -> str | None:
        """Why the figures say little, or ``None``: others were busy on the same machine."""
        return _noise(self.others_busy, self.others_on_card)


def _noise(others_busy: float | None, others_on_card: int | None) -> str | None:
    if others_on_card:
        return f"noisy: other processes on the card meanwhile: {others_on_card}"
    if others_busy is None or others_busy <= QUIET:
        return None
    return f"noisy: other processes used {others_busy:.0%} of the cores meanwhile"


class TuneCase(Model):
    """One case of a tune: every setting in turn, over the same inputs."""

    name: str
    case_set: str
    case: dict[str, Any]
    variant: str
    """The variant of the library that was tuned."""
    own: str
    """The setting that the library takes by itself."""
    settings: dict[str, Timing]
    """Setting → its time."""
    absent: dict[str, str] = {}
    """Setting → why it could not be timed."""
    best: str
    """The fastest setting whose quartiles lie apart from those of the library's own choice, in
    `settings` and again in `retimed`; the own choice where there is none."""
    retimed: dict[str, Timing] = {}
    """The own choice and the fastest setting apart from it, timed again alone: of many settings one
    looks faster by luck. Empty where there is none, and in older records."""
    wrong: str | None = None
    """What the best setting's output is off by, if it is wrong: such a case proves nothing."""

    @model_validator(mode="after")
    def _best_follows_from_times(self) -> Self:
        wanted = fastest_apart(self.own, self.settings)
        if self.retimed:
            if wanted == self.own or self.retimed.keys() != {self.own, wanted}:
                raise ValueError(f"retimed {', '.join(self.retimed)}; the times call for {wanted}")
            wanted = fastest_apart(self.own, self.retimed)
        if self.best != wanted:
            raise ValueError(f"best is {self.best}; the times make it {wanted}")
        return self

    @property
    def times(self) -> Mapping[str, Timing]:
        """The times that own and best are compared by: the later ones, which did not choose."""
        return self.retimed or self.settings

    @property
    def gain(self) -> float:
        """The own choice's time ÷ the best setting's: 1 where that is the own choice."""
        return self.times[self.own].median_us / self.times[self.best].median_us


def fastest_apart(own: str, settings: Mapping[str, Timing]) -> str:
    """The fastest setting whose upper quartile is below the lower one of ``own``, or ``own``."""
    if own not in settings:
        raise ValueError(f"{own}, the library's own choice, was not timed")
    faster = [name for name, timing in settings.items() if timing.high_us < settings[own].low_us]
    return min(faster, key=lambda name: settings[name].median_us, default=own)


class TuneResult(Model):
    """What a tune step measured: the library's own choice beside every other."""

    type: Literal["tune"] = "tune"
    sha256: Sha256
    """The library that was timed."""
    device: str
    threads: int
    setting: str
    """What was set: num_splits."""
    protocol: str
    """How it was timed, in words."""
    others_busy: Annotated[float, Field(ge=0)] | None = None
    """Share of the cores that other processes used meanwhile; null where it cannot be told."""
    others_on_card: Annotated[int, Field(ge=0)] | None = None
    """As for a benchmark."""
    cases: list[TuneCase]
    not_reached: Annotated[int, Field(ge=0)] = 0
    """Cases that the step did not come to; more than 0 only where it did not end by itself."""
    table: str | None = None
    """The file that the settings were written to, in the kernel's folder; null where it was left as
    it was."""

    @property
    def noise(self) -> str | None:
        """Why the figures say little, or ``None``: others were busy on the same machine."""
        return _noise(self.others_busy, self.others_on_card)

    @property
    def ran(self) -> list[str | None]:
        """The variants of the library that were run."""
        return list(dict.fromkeys(case.variant for case in self.cases))


CaseNumber = Annotated[int, Field(ge=0)]


class MutantResult(Model):
    """One bug put back: whether validation found it, and by which cases."""

    bug: Reference
    """The record of the bug: SESSION#bugs.ID."""
    mutant: Mutant
    """The edit, as it was made."""
    sha256: Sha256 | None = None
    """The library with the bug; null if it does not build."""
    verdict: Literal["killed", "survived", "not-built", "not-judged"]
    """killed: a case failed, or the process died or hung; survived: every case passed; not-built:
    the edit cannot be made or does not compile; not-judged: the machine failed, not the kernel."""
    killed_by: list[CaseNumber] = []
    """The cases that failed, as numbers, from 0, in the list of cases."""
    over_bound: list[CaseNumber] = []
    """The cases that the fixed bound refuses."""
    cut_short: Literal["died", "hung"] | None = None
    """How the process ended, if before the last case: later cases are not judged."""
    cases_run: int
    """Cases that ran to their end."""
    message: str | None = None
    """What the first case to fail says, or the compiler."""
    profiles: dict[CaseNumber, list[float | None]] = {}
    """Case → largest error of the first output at each index of an axis; null for NaN."""

    @model_validator(mode="after")
    def _verdict_follows(self) -> Self:
        if (self.verdict == "killed") != bool(self.killed_by or self.cut_short):
            raise ValueError(
                f"{self.mutant.id}: {self.verdict}, although {len(self.killed_by)} cases failed and"
                f" the process {self.cut_short or 'ended well'}"
            )
        return self

    @property
    def finding(self) -> str | None:
        """What is wrong with the validation or with the mutant, or ``None``."""
        if self.verdict == "survived" and self.mutant.equivalent is None:
            return "no case finds it"
        if self.verdict == "killed" and self.mutant.equivalent is not None:
            return "declared equivalent, but found"
        return {"not-built": "does not build", "not-judged": "not judged"}.get(self.verdict)


class MutantsResult(Model):
    """What a mutants step found: which bugs, put back one at a time, validation finds."""

    type: Literal["mutants"] = "mutants"
    kernel: KernelId
    target: str
    sha256: Sha256
    """The library without any of the bugs; it passed every one of the cases in this step."""
    device: str
    seed: int
    rule: str
    """The rule of the verdict, in words."""
    bound: Annotated[float, Field(gt=0)] | None = None
    """The fixed bound that the rule is compared with: the first output's largest error must be
    below it, and nothing else counts. An output that is NaN is not below it."""
    cases: Annotated[list[str], Field(min_length=1)]
    """SET/NAME of each case, in the order in which they ran."""
    mutants: list[MutantResult]
    replaceable: list[CaseNumber]
    """The cases that find nothing but what another case finds too."""
    not_reached: Annotated[int, Field(ge=0)] = 0
    """Mutants that the step did not come to; more than 0 only where it did not end by itself."""

    @model_validator(mode="after")
    def _cases_are_there(self) -> Self:
        for result in self.mutants:
            for number in (*result.killed_by, *result.over_bound, *result.profiles):
                if number >= len(self.cases):
                    raise ValueError(f"{result.mutant.id}: there is no case {number}")
        wanted = replaceable_cases(len(self.cases), self.mutants)
        if self.replaceable != wanted:
            raise ValueError(f"replaceable is {self.replaceable}; the verdicts make it {wanted}")
        return self

    @property
    def passed(self) -> bool:
        """Whether every bug is found, but for those that cannot be."""
        return all(result.finding is None for result in self.mutants)

    @property
    def case_sets(self) -> list[str]:
        """The case sets, in order."""
        return list(dict.fromkeys(name.partition("/")[0] for name in self.cases))

    def found(self, case_set: str | None = None) -> list[MutantResult]:
        """The bugs that the rule finds, over all cases or by those of one set."""
        of_set = self._numbers(case_set)
        return [
            result
            for result in self.mutants
            if (result.verdict == "killed" if case_set is None else of_set & set(result.killed_by))
        ]

    def let_through(self, case_set: str | None = None) -> list[MutantResult]:
        """Those of ``found`` that the fixed bound lets through on the same cases."""
        if self.bound is None:
            return []
        of_set = self._numbers(case_set)
        return [one for one in self.found(case_set) if not of_set & set(one.over_bound)]

    def _numbers(self, case_set: str | None) -> set[int]:
        return {
            number
            for number, name in enumerate(self.cases)
            if case_set is None or name.partition("/")[0] == case_set
        }


def replaceable_cases(count: int, mutants: Sequence[MutantResult]) -> list[int]:
    """The cases, out of ``count``, of which any one could go: what it finds another finds too."""
    needed = {result.killed_by[0] for result in mutants if len(result.killed_by) == 1}
    return [number for number in range(count) if number not in needed]


class AxisProbe(Model):
    """One value tried in one field of a case, all else fixed."""

    value: CaseValue
    state: Literal["fails", "passes", "refused"]
    """refused: the case cannot be posed, or the operator does not take it."""


class Axis(Model):
    """What becomes of the smallest failing case along one field, all else fixed."""

    field: str
    """The case field, or several that change together, joined by `=`."""
    value: CaseValue
    """Its value in the smallest failing case."""
    probes: list[AxisProbe]
    """Every value tried, numbers in order."""

    @property
    def boundary(self) -> tuple[int, int] | None:
        """The largest number that passes and the smallest that fails; ``None`` unless every number
        tried up to the one passes and every one from the other on fails."""
        passes, fails = self._numbers("passes"), self._numbers("fails")
        if not passes or not fails or passes[-1] > fails[0]:
            return None
        return passes[-1], fails[0]

    @property
    def sentence(self) -> str:
        """What was seen along the field, in words: no more than was tried."""
        parts = []
        if self.boundary is not None:
            passes, fails = self.boundary
            parts.append(f"fails from {fails} on, passes up to {passes}; tried:")
        for state in ("fails", "passes", "refused"):
            values = [probe.value for probe in self.probes if probe.state == state]
            if values:
                parts.append(f"{state}{'' if state == 'refused' else ' at'} {_listed(values)};")
        return f"{self.field} {' '.join(parts).removesuffix(';')}"

    def _numbers(self, state: str) -> list[int]:
        return sorted(
            probe.value
            for probe in self.probes
            if probe.state == state
            and isinstance(probe.value, int)
            and not isinstance(probe.value, bool)
        )


def _listed(values: list[CaseValue]) -> str:
    """Values in words, numbers that follow one another as a range: ``1–33, 64, absent``."""
    runs: list[list[CaseValue]] = []
    for value in values:
        last = runs[-1][-1] if runs else None
        if type(value) is int and type(last) is int and value == last + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ", ".join(
        "–".join(value_text(end) for end in (run if len(run) < 2 else (run[0], run[-1])))
        for run in runs
    )


class PartResult(Model):
    """One part of an operator, run alone on the smallest failing case."""

    name: str
    passed: bool
    outputs: dict[str, OutputError] = {}
    message: str | None = None
    """What is wrong, if anything."""


class FailingCase(Model):
    """One case that fails."""

    case_set: str
    name: str
    message: str


class MinimiseResult(Model):
    """What a minimise step found."""

    type: Literal["minimise"] = "minimise"
    sha256: Sha256
    """The library that was examined."""
    device: str
    variant: str | None = None
    """The version of the operator; its own choice where not given."""
    seed: int
    draws: int
    """The most inputs drawn for a case before it counted as passing; fewer for large cases."""
    rule: str
    """The rule of the verdict, in words."""
    cases: int
    """Cases that were tried first."""
    failing: list[FailingCase]
    """Those of them that fail."""
    start: FailingCase | None = None
    """The one that was made smaller: of the failing ones, that with the least work."""
    smallest: CaseResult | None = None
    """The smallest case that still fails: no single step makes it smaller."""
    smallest_seed: int | None = None
    """Of the inputs with which it fails."""
    failed_draws: tuple[int, int] | None = None
    """In how many draws of inputs it fails, and of how many; null where it kills the process."""
    text: str | None = None
    """It as text, as the `case` of a step takes it."""
    axes: list[Axis] = []
    """What becomes of it when one field changes."""
    parts: list[PartResult] = []
    """The operator's parts on it, each alone; empty where the harness offers none."""
    parts_of: list[str] = []
    """Where it offers none of this variant: the variants of which it does."""
    probes: int
    """Cases tried in all."""
    deaths: int
    """How often a case took the process, or the card's context, with it."""
    unfinished: str | None = None
    """Why the search ended early, if it did."""

    @property
    def at_fault(self) -> list[str]:
        """The parts that are wrong alone."""
        return [part.name for part in self.parts if not part.passed]


class KernelLaunch(Model):
    """One launch of a kernel as Nsight Compute measured it."""

    kernel: str
    """Its name."""
    grid: str
    """Blocks, `(x, y, z)`."""
    block: str
    """Threads a block, `(x, y, z)`."""
    metrics: dict[str, float | None]
    """Nsight Compute's name of a metric → value in base units; null where it had none."""


Bottleneck = Literal["bytes", "arithmetic", "latency", "occupancy", "launch", "unknown"]


class ProfileCase(Model):
    """One call of one arm on one case, profiled."""

    name: str
    case: dict[str, Any]
    launches: list[KernelLaunch]
    """Every kernel that the call launched, in order."""
    bottleneck: Bottleneck
    """The first thing to mend; unknown where the metrics do not tell."""
    verdict: str
    """It in a line, as the symptoms of patterns are matched against."""
    reasons: list[str]
    """The figures that say so, each beside its threshold and where that comes from."""


class ProfileResult(Model):
    """What a profile step measured."""

    type: Literal["profile"] = "profile"
    sha256: Sha256
    """The library that was profiled."""
    arm: str
    """The arm of the harness that was called."""
    variant: str | None = None
    """The variant that it is; null for the kernel's own choice and for arms of others."""
    profiler: str
    """The profiler and its version."""
    launch_us: Microseconds | None = None
    """Time from one launch of an empty kernel to the next, eagerly; null where not measured."""
    protocol: str
    """How it was measured, in words."""
    cases: list[ProfileCase]
    not_reached: Annotated[int, Field(ge=0)] = 0
    """Cases that the step did not come to; more than 0 only where it did not end by itself."""

    @property
    def ran(self) -> list[str | None]:
        """The variant of the library that was run; ``None`` is its own choice."""
        return [self.variant]


class ToolReport(Model):
    """What one tool of compute-sanitizer reported."""

    tool: str
    options: list[str]
    """Its options."""
    excluded: list[str] = []
    """Of earlier runs: variants that it was not given, and parts of the names of kernels that it
    did not look at."""
    cases: list[str]
    """The cases that ran to their end under it, as `set/name`."""
    errors: int | None
    """Errors; of racecheck, warnings too. None where the tool was stopped: it counts at its end."""
    reports: list[str] = []
    """Those that differ in what they say or in the kernel, the first of each, as printed."""


class SanitiseResult(Model):
    """What compute-sanitizer reported."""

    type: Literal["sanitise"] = "sanitise"
    sha256: Sha256
    """The library that was run."""
    version: str
    """The version of compute-sanitizer."""
    tools: list[ToolReport]
    not_reached: Annotated[int, Field(ge=0)] = 0
    """Tools that did not come to their end; more than 0 only where the step did not either."""


class CommandResult(Model):
    """What a command step did."""

    type: Literal["command"] = "command"
    argv: list[str]
    exit_code: int | None
    output_tail: str
    """The last lines printed."""
    produced: dict[str, Sha256] = {}
    """File → hash."""


class EnvironmentResult(Model):
    """What an environment step found missing or too old."""

    type: Literal["environment"] = "environment"
    missing: list[str] = []


StepResult = Annotated[
    EnvironmentResult
    | BuildResult
    | ValidationResult
    | MutantsResult
    | BenchmarkResult
    | TuneResult
    | MinimiseResult
    | ProfileResult
    | SanitiseResult
    | CommandResult,
    Field(discriminator="type"),
]
