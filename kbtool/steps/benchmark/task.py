"""What the worker does for ``benchmark``."""

from __future__ import annotations

from typing import Any

from kbtool.gpu.harness import Harness
from kbtool.gpu.task import Send, Task
from kbtool.model.kinds.benchmark import BenchmarkResult


class Benchmark(Task):
    """Time the operator, its variants and its peers on every case."""

    samples: int = 20
    energy: bool = False
    """Whether to measure energy too."""
    variants: list[str] = []
    """Variants to time, besides the operator's own choice."""
    peers: list[str] | None = None
    """Peers to time. Default: all peers of the harness."""
    own_calls: list[str] = []
    """Those that are the library in another call."""
    left_out: list[dict[str, str]] = []
    """For each case, the peers to leave out, and why."""
    expected_s: float
    """The seconds that all cases are expected to take on a quiet machine."""
    known: BenchmarkResult | None = None
    """The result of earlier processes for the first cases; this one continues after them."""

    def run(self, harness: Harness, send: Send) -> Any:
        """The benchmark, as a run records it."""
        from kbtool.gpu.benchmark import benchmark
        from kbtool.gpu.clock import clock_for

        return benchmark(
            harness,
            self.cases,
            clock_for(self.device, self.samples, self.energy),
            sha256=self.sha256,
            threads=self.threads,
            seed=self.seed,
            variants=self.variants,
            peers=self.peers,
            own_calls=self.own_calls,
            left_out=self.left_out,
            known=self.known,
            expected_s=self.expected_s,
            on_peer=lambda name: send("peer", peer=name),
            on_case=self.progress(send),
        ).model_dump(mode="json")
