"""How long ``kbtool search`` takes over 1,000 patterns, with the start of kbtool.

    python benchmarks/bench_search.py --patterns 1000 --repeat 10

The patterns have the texts of this repository's, in turn, under ids of their own.
"""

from __future__ import annotations

import argparse
import string
import sys
import tempfile
from pathlib import Path

from timed import timed

from kbtool.store.dump import dump
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[1]
KEPT = ("title", "summary", "problem", "solution", "when_to_use", "when_not", "code", "tags")
QUESTION = "my CUDA extension compiles for 80 minutes"


def make(root: Path, count: int) -> None:
    """Write ``count`` patterns."""
    own = [entry.record for entry in KnowledgeBase(ROOT).patterns.values()]
    for name in ("patterns", "sessions"):
        (root / name).mkdir()
    for place in range(count):
        number, letter = divmod(place, 26)
        id_ = f"P{number:02}{string.ascii_lowercase[letter]}"
        texts = own[place % len(own)].model_dump(mode="json", include=set(KEPT), exclude_none=True)
        record = {"id": id_, "number": str(number), "stated_status": "unknown",
                  "problem": None, "solution": None, "when_to_use": None, "when_not": None,
                  **texts}  # fmt: skip
        (root / "patterns" / f"{id_}.yaml").write_text(dump(record), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--patterns", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make(root, options.patterns)
        read = KnowledgeBase(root)
        assert len(read.patterns) == options.patterns, read.findings[:3]
        command = [sys.executable, "-m", "kbtool", "--root", folder, "search", QUESTION]
        print(f"  {options.patterns:,} patterns: {timed(command, options.repeat)}")


if __name__ == "__main__":
    main()
