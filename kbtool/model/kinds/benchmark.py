"""The step kind ``benchmark``: time the validated library beside its peers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from kbtool.model.base import HowMany, Model, Name
from kbtool.model.kernel import Case
from kbtool.model.kinds.base import Bytes, Count, Microseconds, ResultBase, Sha256, StepBase
from kbtool.model.kinds.timing import Timing, noise_reason
from kbtool.model.kinds.validate import OutputError
from kbtool.model.metric import FiniteValue, Metric, MetricName


class BenchmarkStep(StepBase):
    """Time the validated artifact beside its peers."""

    does: ClassVar[str] = "benchmarks"
    measures: ClassVar[bool] = True

    kind: Literal["benchmark"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    variants: str = "default"
    """Variants to time, beside the kernel's own choice, which is timed always: as for
    validate, which must have passed them."""
    peers: str = "all"
    """Peers of the harness to time, separated by commas, or all; the one that ratios are taken
    against is timed always."""
    samples: Annotated[int, Field(ge=5, le=100_000)] = 20
    """Timed samples of each implementation."""
    threads: Count = 0
    """CPU threads; 0 takes one a core."""
    energy: bool = False
    """Whether to measure the energy of a call too, where the card tells it: two seconds more for
    each implementation of each case."""


OWN_METRICS = frozenset({
    "time", "time between plain kernels", "host time", "first call", "bandwidth", "arithmetic",
    "arithmetic intensity", "share of read ceiling", "share of arithmetic ceiling",
    "share of bound", "workspace", "peak memory", "energy", "error",
})  # fmt: skip
"""What kbtool measures or derives itself; a harness gives its metrics other names."""


class Bound(NamedTuple):
    """The least time of a case that the measured ceilings of the machine allow."""

    by: Literal["reading", "arithmetic"]
    """The ceiling that takes longest."""
    us: float


class BenchmarkCase(Model):
    """One case of a benchmark: every implementation in turn, over the same inputs."""

    name: Name
    case_set: Name | None = None
    """Null in older records, of steps that timed one set."""
    case: Case
    arms: dict[str, Timing]
    bytes: Bytes
    """Least bytes that the case has to move."""
    flops: HowMany
    """Operations that the case needs."""
    computes_in: Name | None = None
    """The element type of the arithmetic ceiling that the case is compared with: its field `dtype`,
    else the only floating type among its inputs; null where neither tells, and in older records."""
    rechecked: bool
    """Whether the result was right again after timing."""
    refused: str | None = None
    """Why the figures are refused; a refused case proves nothing."""
    absent: dict[str, str] = {}
    """Implementation → why it did not run."""
    workspace_bytes: dict[str, Bytes] = {}
    """Implementation of the library → device or main memory that it needs beside inputs and
    outputs."""
    peers: dict[str, OutputError] = {}
    """Peer → its output against the reference, under the rule of validation."""
    timed: dict[str, OutputError] = {}
    """Implementation of the library → the output of what was timed, likewise; empty in older
    records."""
    suspect: dict[str, str] = {}
    """Implementation of the library → why its times are not what a user would meet."""
    first_call_us: dict[str, Microseconds] = {}
    """Implementation → how long it took to make it and to call it for the first time, in which a
    just-in-time compiler compiles or finds what it compiled before; outside the timed calls, and
    empty in older records."""
    peak_bytes: dict[str, Bytes] = {}
    """Implementation → the most memory of the card that torch allocated during one call beyond what
    it held before, outputs included; empty on the CPU and in older records."""
    energy_j: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Implementation → joules of the whole card a call, idle power included: what the card's own
    counter (NVML) added over two seconds of calls in a chain, ÷ these calls. Empty where it was not
    asked for or the card does not tell."""
    metrics: dict[str, dict[MetricName, FiniteValue]] = {}
    """Implementation → metric of the harness → its value. A metric that is not there is not
    known."""
    plain_us: Microseconds | None = None
    """What the plain kernel of ``between_us`` takes in a chain of its own."""
    sm_clock_mhz: HowMany | None = None
    """The card's multiprocessor clock right after the timed samples; null where there is no card,
    where it does not tell, and in older records."""

    @property
    def dtype(self) -> str | None:
        """The element type, if the case has a field of that name: types are never compared."""
        dtype = self.case.get("dtype")
        return None if dtype is None else str(dtype)

    @property
    def intensity(self) -> float | None:
        """Operations per byte; ``None`` for a case that moves no bytes or computes nothing."""
        return self.flops / self.bytes if self.flops and self.bytes else None

    @model_validator(mode="after")
    def _rechecked_follows(self) -> Self:
        wrong = [arm for arm, output in self.timed.items() if not output.passed]
        if self.rechecked and wrong:
            raise ValueError(f"rechecked, although what was timed as {wrong[0]} is wrong")
        return self


class BenchmarkResult(ResultBase):
    """What a benchmark step measured."""

    type: Literal["benchmark"] = "benchmark"
    sha256: Sha256
    """The library that was timed."""
    device: str
    threads: HowMany
    subject: str
    """The implementation that runs the library."""
    baseline: str
    """The implementation that ratios are taken against."""
    variants: list[str] = []
    """The implementations that run one variant of the library each."""
    own_calls: list[str] = []
    """The implementations that are the library in another call; empty in older records."""
    read_gb_s: Annotated[float, Field(ge=1e-6)]
    """The measured ceiling of memory reads, in 10⁹ bytes a second, same run, same threads."""
    arithmetic_gflop_s: dict[Name, Annotated[float, Field(ge=1e-6)]] = {}
    """Element type → the measured ceiling of arithmetic, in 10⁹ operations a second: a large matrix
    product by torch, same run, same threads. That of a narrower type is float32's at least. Empty
    in older records."""
    protocol: str
    """How it was timed, in words."""
    sm_clocks_mhz: list[HowMany] | None = None
    """The card's multiprocessor clock before each case and after the last, right after reading
    memory; null where there is no card or it does not tell."""
    others_busy: Annotated[float, Field(ge=0)] | None = None
    """Share of the cores that other processes used meanwhile; null where it cannot be told."""
    others_on_card: HowMany | None = None
    """The most other processes that held the card to compute, as asked before each case and after
    the last; null where there is no card or nobody tells."""
    metrics: list[Metric] = []
    """What the harness gives beside time."""
    cases: list[BenchmarkCase]
    not_reached: HowMany = 0
    """Cases that the step did not come to; more than 0 only where it did not end by itself."""

    @model_validator(mode="after")
    def _metrics_are_declared(self) -> Self:
        names = [metric.name for metric in self.metrics]
        if own := sorted(OWN_METRICS.intersection(names)):
            raise ValueError(f"metric {own[0]!r} is kbtool's own: give it another name")
        if len(set(names)) < len(names):
            raise ValueError(f"a metric is declared twice: {', '.join(names)}")
        for case in self.cases:
            for arm, values in case.metrics.items():
                if strange := sorted(values.keys() - set(names)):
                    raise ValueError(f"case {case.name!r}, arm {arm!r}: no metric {strange[0]!r}")
        return self

    @property
    def measured(self) -> tuple[str, list[str | None]]:
        """The library and every variant of it that was run."""
        return self.sha256, [None, *self.variants]

    def ratio(self, case: BenchmarkCase) -> float | None:
        """Baseline time ÷ subject time: above 1 the subject is faster.

        ``None`` without both, and where others were busy: noise can turn which is faster.
        """
        subject, baseline = case.arms.get(self.subject), case.arms.get(self.baseline)
        if self.noise or case.refused or subject is None or baseline is None:
            return None
        return baseline.median_us / subject.median_us

    def ratios(self) -> dict[str | None, list[float]]:
        """Dtype → the :meth:`ratio` of every case of it that has one."""
        found: dict[str | None, list[float]] = {}
        for case in self.cases:
            if (value := self.ratio(case)) is not None:
                found.setdefault(case.dtype, []).append(value)
        return found

    def best_peer(self, case: BenchmarkCase, *, between: bool = False) -> str | None:
        """The fastest implementation of this run that is not the library's and whose output is
        right.

        Of a commit, ``kbtool.ledger.headline`` tells the best peer.

        Args:
            case: of this benchmark.
            between: by the times behind plain kernels.
        """
        right = {
            arm: us
            for arm in self.right_peers(case)
            if (us := case.arms[arm].us(between)) is not None
        }
        return min(right, key=right.__getitem__, default=None)

    def right_peers(self, case: BenchmarkCase) -> list[str]:
        """The implementations that are not the library's, were timed and were right."""
        ours = {self.subject, *self.variants, *self.own_calls}
        return [
            arm
            for arm in case.arms
            if arm not in ours and (arm not in case.peers or case.peers[arm].passed)
        ]

    def ratio_to_best(self, case: BenchmarkCase, *, between: bool = False) -> float | None:
        """The best peer's time ÷ subject time; ``None`` where :meth:`ratio` would be."""
        best = self.best_peer(case, between=between)
        if self.noise or case.refused or best is None or self.subject not in case.arms:
            return None
        peer, subject = (case.arms[arm].us(between) for arm in (best, self.subject))
        return peer / subject if peer and subject else None

    def arithmetic_ceiling(self, case: BenchmarkCase) -> float | None:
        """The measured rate of arithmetic in the type of the case, in 10⁹ operations a second."""
        return self.arithmetic_gflop_s.get(case.computes_in or "")

    def bound(self, case: BenchmarkCase) -> Bound | None:
        """The ceiling that bounds a case, of those that were measured; ``None`` for a case that
        moves no bytes and computes nothing."""
        bounds = []
        if case.bytes:
            bounds.append(Bound("reading", case.bytes / self.read_gb_s / 1e3))
        if (rate := self.arithmetic_ceiling(case)) is not None and case.flops:
            bounds.append(Bound("arithmetic", case.flops / rate / 1e3))
        return max(bounds, key=lambda bound: bound.us, default=None)

    def share_of_ceiling(self, case: BenchmarkCase) -> float | None:
        """The time of the :meth:`bound` ÷ the subject's; ``None`` without both."""
        subject, bound = case.arms.get(self.subject), self.bound(case)
        if case.refused or subject is None or bound is None:
            return None
        return bound.us / subject.median_us

    @property
    def noise(self) -> str | None:
        """Whether others were busy on the same machine meanwhile."""
        return noise_reason(self.others_busy, self.others_on_card)

    @property
    def step_status(self) -> Literal["passed", "noisy", "failed"]:
        """How a step with this result ends that reached all cases.

        A wrong result is wrong on a busy machine too, and so is one that was kept. A figure above
        the measured ceiling is not: the ceiling may have been measured while others used the
        memory.
        """
        refused = [case for case in self.cases if case.refused]
        if any(
            not case.rechecked or case.suspect or self.subject not in case.arms for case in refused
        ):
            return "failed"
        if self.noise:
            return "noisy"
        return "failed" if refused else "passed"
