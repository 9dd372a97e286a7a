"""How often `kbtool explain` is right, and how long it takes on a log of 10 MB."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from explained import answers, explain, messages, unrelated
from timed import timed

from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[1]
LINES = 90_000
REPEAT = 5
_COMMAND = """\
[{n}] nvcc -gencode arch=compute_90,code=sm_90 -O3 -std=c++17 -c kernel_{n}.cu -o kernel_{n}.o
kernel_{n}.cu(3): warning #177-D: variable "x{n}" was declared but never referenced
"""
_HEADER = (
    '"ID","Process ID","Kernel Name","Block Size","Section Name","Metric Name","Metric Unit",'
    '"Metric Value"\n'
)
_METRIC = (
    '"{n}","4711","void attention<{kernel}, (bool)1>(Params)","(256, 1, 1)","Occupancy",'
    '"Achieved Occupancy","%","12.31"\n'
)
_REPORT = "ptxas info    : Used {n} registers, 0 bytes spill stores, 0 bytes spill loads\n"


def main() -> None:
    base = KnowledgeBase(ROOT)
    for half in ("develop", "measure"):
        found = list(answers(base, messages(half)))
        right = sum(answer.is_right for answer in found)
        elsewhere = sum(answer.is_for_another_card for answer in found)
        print(
            f"  {half}: right among the first three {right} of {len(found)},"
            f" for another card {elsewhere}"
        )
    texts = unrelated()
    silent = sum(not explain(base, [text.encode()]).fits for text in texts)
    print(f"  texts about something else that get nothing: {silent} of {len(texts)}")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "build.log"
        with log.open("w") as file:
            for n in range(LINES):
                file.write(_COMMAND.format(n=n) if n % 2 else _REPORT.format(n=n % 200))
            file.write('k.cu(3): error: identifier "foo" is undefined\n')
        profile = Path(folder) / "ncu.csv"
        with profile.open("w") as file:
            file.write(_HEADER)
            for n in range(LINES):
                file.write(_METRIC.format(n=n, kernel=n % 300))
        for what, path in (("a log", log), ("a profile", profile)):
            command = [sys.executable, "-m", "kbtool", "--root", str(ROOT), "explain", str(path)]
            print(f"  {what} of {path.stat().st_size / 1e6:.1f} MB: {timed(command, REPEAT)}")


if __name__ == "__main__":
    main()
