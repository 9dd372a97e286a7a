"""How long the site takes: this repository's records, and a generated knowledge base.

    python benchmarks/bench_site.py [SESSIONS]

Prints, for each, the pages, and the seconds for records → Markdown, for writing the tree again
unchanged, and for the whole build; then the size of the site and of its search index.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "site"))

import site_trees  # noqa: E402

from kbtool.site.build import build, write_source  # noqa: E402
from kbtool.site.pages import pages  # noqa: E402
from kbtool.store.tree import KnowledgeBase  # noqa: E402


def measure(name: str, root: Path, out: Path) -> None:
    start = time.perf_counter()
    base = KnowledgeBase(root)
    count = len(base.sessions) + len(base.patterns) + len(base.kernels) + len(base.runs)
    load = time.perf_counter() - start
    start = time.perf_counter()
    pages(base)
    markdown = time.perf_counter() - start
    built = build(root, out)
    start = time.perf_counter()
    write_source(root)
    again = time.perf_counter() - start
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    index = (out / "search" / "search_index.json").stat().st_size
    print(
        f"{name}: {count} records, {built.pages} pages; load {load:.2f} s,"
        f" Markdown {markdown:.2f} s,"
        f" unchanged tree {again:.2f} s, build {built.seconds:.1f} s;"
        f" {size / 1e6:.1f} MB, search index {index / 1e6:.1f} MB; {len(built.problems)} problems"
    )


def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        measure("this repository", ROOT, Path(folder) / "real")
        generated = site_trees.make(Path(folder) / "kb", sessions=sessions)
        measure(f"{sessions} generated sessions", generated, Path(folder) / "generated")


if __name__ == "__main__":
    main()
