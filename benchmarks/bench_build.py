"""Time of a cold build of an attached kernel, and of loading it when it is built."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from kbtool.gpu.build import build
from kbtool.gpu.build_plan import plan_build
from kbtool.store.tree import KnowledgeBase, find_root

ROUNDS = 3


def main() -> None:
    base = KnowledgeBase(find_root())
    print("build: seconds of a cold build, and of a second load (which runs no compiler)")
    for entry in base.kernels.values():
        kernel = entry.record
        cold, warm = [], []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as cache:
                folder = base.root / "kernels" / kernel.id
                plan = plan_build(kernel, folder, "cpu", Path(cache))
                for times in (cold, warm):
                    started = time.perf_counter()
                    result = build(plan, timeout=600)
                    times.append(time.perf_counter() - started)
                assert result.warm
        print(
            f"  {kernel.id} cpu: {statistics.median(cold):.1f} s cold,"
            f" {statistics.median(warm) * 1e3:.1f} ms when built"
        )


if __name__ == "__main__":
    main()
