"""The page of a kernel: its results beside its peers, its history, its variants, its files."""

from __future__ import annotations

import copy
import hashlib
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import site_trees as trees
from hypothesis import given
from site_html import fragment
from test_site_charts import parsed, places
from test_site_escape import TEXT

from kbtool.markdown.plot import WIDTH
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import kernel as kernel_page
from kbtool.site.pages import pages, source
from kbtool.site.pages.session import page as session_page
from kbtool.store.sources import kernel_file
from kbtool.store.tree import KnowledgeBase

KERNEL = {
    "id": "copy", "title": "Copy", "summary": "Copies.", "namespace": "copy",
    "harness": "harness.py",
    "targets": {
        "cpu": {"sources": ["copy.cpp"], "headers": ["copy.h"]},
        "cuda": {
            "sources": ["copy.cpp", "cuda/copy.cu"], "headers": ["gone.h"],
            "architectures": ["sm_90a"], "variants": {"plain": {}, "vector": {}},
        },
    },
    "implementations": {"base": "what came <b>before</b>", "never": "was not timed"},
    "case_fields": {"S": {"type": "int", "default": "1", "help": "size"},
                    "dtype": {"type": "str", "default": "float32", "help": "type"}},
    "case_sets": {"small": {"title": "Small", "cases": [{"name": "s", "S": "64"}],
                            "for_each": {"dtype": ["float32", "float16"]}},
                  "large": {"title": "Large", "cases": [{"S": "4096"}, {"S": "8192"}]}},
}  # fmt: skip

CHARTS = at.topic_page("copy", "charts")

README = (
    "# Copy\n\nSee [the header](copy.h), `cuda/copy.cu` and [what is not there](gone.h).\n\n"
    "[Why](DESIGN.md) it is so.\n\n"
    "## How\n\n$x_j$\n\n![how it copies](how.svg)\n\n![another](evil.svg)\n"
)
DESIGN = "# Design\n\n## Why\n\nIt is as [simple](copy.h) as that.\n"
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><title>How it copies</title>'
    '{}<rect width="3"/></svg>'
)
COPY = '#include "copy.h"\n\n// <b>not bold</b>\nint main() { return 0; }\n'


def timing(median: float) -> dict[str, Any]:
    samples = [median * 0.9, median, median * 1.1]
    return {"samples_us": samples, "median_us": median, "low_us": median * 0.95,
            "high_us": median * 1.05, "calls_per_sample": 1}  # fmt: skip


def run(
    number: int, cases: dict[str, dict[str, float]], card: str | None, **more: Any
) -> dict[str, Any]:
    """A run of so many cases: name → arm → microseconds."""
    step = {"expected_seconds": 5, "expected_from": "declared", "seconds": 4.2, "status": "passed"}
    checked = [
        {"case_set": "small", "name": name, "variant": variant, "case": {}, "passed": True}
        for name in ("s float32", "s float16")
        for variant in (None, *more.get("variants", []))
    ]
    timed = [
        {"name": name, "case": {}, "case_set": more.get("case_set"), "bytes": 3_000_000 * at_,
         "flops": 1, "rechecked": True, "arms": {arm: timing(us) for arm, us in arms.items()},
         "absent": more.get("absent", {}), "peers": more.get("peers", {})}
        for at_, (name, arms) in enumerate(cases.items(), 1)
    ]  # fmt: skip
    target = "cuda" if card else "cpu"
    return {
        "id": f"20251121T1010{number}Z-copy", "attempt": 1, "session": trees.session_id(0),
        "recipe": "copy", "pattern": "P01", "kernel": "copy", "parameters": {"seed": str(number)},
        "status": "passed", "started": f"2025-11-21T10:10:{number}Z",
        "ended": f"2025-11-21T10:11:{number}Z",
        "machine": {"card": card, "python": "3.11", "kbtool": "0.1.0", "os": "Linux",
                    "cpu": "a processor", "cores": 2},
        "repository": {"commit": f"{number}" * 20, "branch": "main", "dirty": number == 12,
                       "changed_during_run": False},
        "steps": [
            {"id": "build", "kind": "build", "title": "Build", **step,
             "result": {"type": "build", "kernel": "copy", "target": target, "key": "k",
                        "artifact": "lib", "sha256": trees.SHA, "bytes": 10, "warm": False,
                        "compiler": "c", "flags": [], "sources": {}}},
            {"id": "validate", "kind": "validate", "title": "Validate", **step,
             "result": {"type": "validation", "sha256": trees.SHA, "device": "d", "seed": 1,
                        "rule": "r", "cases": checked}},
            {"id": "time", "kind": "benchmark", "title": "Time", **step,
             "result": {"type": "benchmark", "sha256": trees.SHA, "device": target, "threads": 2,
                        "subject": "ours", "baseline": "base", "read_gb_s": 1000.0,
                        "variants": more.get("variants", []), "protocol": "p", "cases": timed}},
        ],
    }  # fmt: skip


def make(root: Path, *runs: dict[str, Any]) -> dict[str, str]:
    """Every page of a tree with the kernel and so many runs of it."""
    trees.make(root, sessions=1)
    folder = root / "kernels" / "copy"
    trees.put(folder / "kernel.yaml", KERNEL)
    (folder / "README.md").write_text(README)
    (folder / "DESIGN.md").write_text(DESIGN)
    (folder / "how.svg").write_text(SVG.format(""))
    (folder / "evil.svg").write_text(SVG.format("<script>alert(1)</script>"))
    (folder / "cuda").mkdir()
    for name in ("copy.cpp", "copy.h", "cuda/copy.cu"):
        (folder / name).write_text(COPY)
    (folder / "harness.py").write_text("def make():\n    return None\n")
    for old in (root / "sessions" / trees.session_id(0) / "runs").glob("*.json"):
        old.unlink()
    for record in runs:
        path = root / "sessions" / trees.session_id(0) / "runs" / f"{record['id']}.json"
        trees.put(path, trees.sealed(record))
    base = KnowledgeBase(root)
    made = pages(Index(base))
    assert not base.findings
    return made


def plain(markup: str) -> str:
    return re.sub(r"<[^>]*>", "", markup)


def topics(made: dict[str, str]) -> dict[str, str]:
    """What the pages of the kernel say of each topic, headings below it."""
    pages = {
        topic.had.split()[0]: made[at.topic_page("copy", topic.name)]
        for topic in kernel_page.TOPICS
        if topic.name in {"results", "history", "variants"}
    }
    found = {name: unescape(page).replace("\n## ", "\n### ") for name, page in pages.items()}
    for page in ("correctness", "about"):
        found |= sections(made[at.topic_page("copy", page)])
    return found | sections(made[at.kernel_page("copy")])


def sections(page: str, level: int = 2) -> dict[str, str]:
    """Anchor of a heading → what stands below it, character references resolved."""
    parts = re.split(rf"^#{{{level}}} .*{{#(.+)}}$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], map(unescape, parts[2::2]), strict=True))


OLD = run(11, {"s float32": {"ours": 10, "base": 10}, "s float16": {"ours": 10, "base": 40}}, "H1")
NEW = run(
    12,
    {"s float32": {"ours": 5, "base": 10, "peer": 20, "plain": 10, "vector": 5},
     "s float16": {"ours": 5, "base": 40, "plain": 20, "vector": 5}},
    "H1", variants=["plain", "vector"], absent={"peer": "it takes no halves"},
)  # fmt: skip
LARGE = run(13, {"S=4096": {"ours": 4, "base": 2}}, "H1", case_set="large")
CPU = run(14, {"s float32": {"ours": 100, "base": 300}}, None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make(tmp_path_factory.mktemp("kernel") / "kb", OLD, NEW, LARGE, CPU)


@pytest.fixture(scope="module")
def page(made: dict[str, str]) -> dict[str, str]:
    return topics(made)


@pytest.mark.slow
def test_the_newest_run_of_each_case_set_counts(page: dict[str, str]) -> None:
    results = page["results"]
    machine = results.partition("### H1")[2].partition("### ")[0]
    small, each = (line for line in machine.splitlines() if line.startswith("| Small |"))
    # 10/5 and 40/5: geometric mean 4; the old run had 1 and 4.
    assert "| not measured | 4.00 least 2.00; 0 of 2 lost | best of base and peer |" in plain(small)
    assert "| 4.00 2.00–8.00 | 4.00 4.00–4.00 1 of 2 cases |" in plain(each)  # base, the peer
    assert "6 of 6" in small  # right in the same run
    large, each = (line for line in machine.splitlines() if line.startswith("| Large |"))
    assert "| 0.500 least 0.500; 1 of 1 lost | base, the only peer timed |" in plain(large)
    assert "| 0.500 0.500–0.500 |" in plain(each)
    # 3,000,000 bytes at 1000 GB/s take 3 µs of 4.
    assert "| 75.0 % " in plain(large)


def test_it_says_why_a_figure_is_missing(page: dict[str, str], tmp_path: Path) -> None:
    results = page["results"]
    assert "- peer: it takes no halves: Small (1 case)" in results
    assert "peer: the run did not time it" not in results, "a dash says it"
    assert "A dash: no run of the build timed the peer there, unless" in results
    alone = topics(make(tmp_path / "kb"))["validation"]
    assert "no data because the kernel was never run here" in alone


def test_the_command_that_measured_a_table_is_below_it(page: dict[str, str]) -> None:
    results = page["results"]
    assert "# No known commit holds what was measured." in results  # its work tree was changed
    assert "kbtool run-recipe copy --set seed=13" in results
    assert "kbtool run-recipe copy --set seed=11" not in results  # nothing shown is from it
    told = [line for line in results.splitlines() if "</span>Small: run of" in line]
    assert "<code>1212121+</code> and uncommitted changes" in "".join(told)
    assert all("compare.html#b=" in line for line in told)


def test_charts_have_every_case_and_arm(page: dict[str, str]) -> None:
    drawn = page["results"]
    for said in ("s float32, ours: 5.00 µs (4.75–5.25)", "s float16, base: 40.0 µs (38.0–42.0)",
                 "S=4096, ours: 4.00 µs (3.80–4.20)", "read ceiling, 1,000 GB/s"):  # fmt: skip
        assert f"<title>{said}</title>" in drawn, said
    assert "peer: 4.00 × our time" in drawn


def test_the_table_of_variants_has_the_speedup_of_each(page: dict[str, str]) -> None:
    ladder = page["ladder"]
    vector = next(line for line in ladder.splitlines() if line.startswith("| <code>vector"))
    # 10/5 and 20/5: geometric mean 2.83.
    assert "| 2.83 2.00–4.00 |" in plain(vector)
    assert "2 of 2 cases" in vector and "| 1.00 1.00–1.00 |" in plain(vector)


def test_case_sets_are_as_the_manifest_has_them(page: dict[str, str], made: dict[str, str]) -> None:
    counted = page["cases"]
    assert "| [Small](cases.md#case-sets.small) | <code>small</code> | 2 |" in counted
    cases = sections(made[at.cases_page("copy")])["case-sets"]
    assert "Each case is run with <code>dtype</code> float32, float16." in cases
    assert "<summary>2 cases</summary>" in cases and "| s | 64 |" in cases


def test_a_kernel_has_a_page_for_each_topic(made: dict[str, str]) -> None:
    names = ["", *(f"/{topic.name}" for topic in kernel_page.TOPICS), "/cases"]
    told = {}
    for name in names:
        shown = made[f"kernels/copy{name}.md"]
        headings = re.findall(r"^(#+) (.*) \{#(.*)\}$", shown, re.MULTILINE)
        told[name] = [(len(level), plain(words)) for level, words, _ in headings]
        others = re.findall(r"\]\(([\w/.]+)\)\{ data-kb-had", shown)
        here = f"kernels/copy{name}.md"
        assert {at.relative(f"kernels/copy{other}.md", here) for other in names} == {
            *others, at.relative(here, here),
        }  # fmt: skip
    machines = [(2, "a processor, 2 threads, cpu"), (2, "H1, cuda")]
    assert told == {
        "": [(1, "Copy"), (2, "Beside its peers"), (2, "Use and limits"), (3, "How")],
        "/fastest": [(1, "Copy: fastest for your shape"), (2, "How it is found"),
                     (2, "Every measured case")],
        "/charts": [(1, "Copy: charts"), (2, "Ratios, shape by peer")],
        "/results": [(1, "Copy: results"), *machines],
        "/history": [
            (1, "Copy: history"), (2, "Times by commit"), (2, "Commits that changed a case"),
            (2, "Every run"), *((3, name) for _, name in machines),
        ],
        "/variants": [(1, "Copy: variants"), (2, "cuda"), (3, "Small (2 cases), H1")],
        "/correctness": [(1, "Copy: correctness"), (2, "Validation"), (2, "Cases"),
                         (2, "Newest runs")],
        "/about": [(1, "Copy: about"), (2, "Design"), (3, "Why"), (2, "Files"),
                   (2, "Mentioned by")],
        "/cases": [(1, "Copy: targets and cases"), (2, "Targets"), (2, "Case sets"),
                   (3, "Small (small)"), (3, "Large (large)"), (2, "Case fields")],
    }  # fmt: skip
    assert "### How {#about-2}" in made[at.kernel_page("copy")]


def test_the_first_page_has_the_verdict_and_each_peer(made: dict[str, str]) -> None:
    """H1 has two builds: of 12, with three times of peers, and of 13, with one."""
    shown = unescape(made[at.kernel_page("copy")])
    assert (
        "Copy, H1, in a chain of its own calls: 4.00 times the speed of the best peer in Small"
        " (2.00 to 8.00). [Measure it again](copy/results.md#again.2"
    ) in shown
    assert "<small>Peers: base and peer. Measured on 2025-" in shown
    (anchor,) = set(re.findall(r"results\.md#(again\.[^)]*)", shown))
    assert f'id="{anchor}"' in unescape(made[at.topic_page("copy", "results")])
    (row,) = (line for line in shown.splitlines() if line.startswith("| Small"))
    assert [plain(cell).strip() for cell in row.strip("| ").split(" | ")] == [
        "Small 2 cases", "4.00 2.00–8.00", "4.00 2.00–8.00", "4.00 4.00–4.00 1 of 2 cases",
    ]  # fmt: skip
    assert shown.count('class="kb-chart') == 2


def test_a_kernel_that_no_quiet_run_timed_has_no_verdict(tmp_path: Path) -> None:
    made = topics(make(tmp_path / "kb"))
    assert "No data because no quiet run timed it beside a peer." in made["peers"]
    for name in ("results", "history"):
        assert "No data because the kernel was never run here." in made[name]


def test_readme_links_files_and_shows_drawings(page: dict[str, str]) -> None:
    about = page["about"]
    assert '<a href="copy/src/copy.h.html">the header</a>' in about
    assert '<a href="copy/src/cuda/copy.cu.html"><code>cuda/copy.cu</code></a>' in about
    assert '<span class="kb-file" title="gone.h">what is not there</span>' in about
    assert "<math" in about
    assert 'aria-label="How it copies"' in about and "<rect" in about
    assert "<script" not in about and "[image: another, evil.svg]" in about


def test_the_readme_links_the_design(page: dict[str, str]) -> None:
    assert '<a href="copy/about.html#design">Why</a>' in page["about"]
    assert '<a href="src/copy.h.html">simple</a>' in page["design"]


def test_times_are_drawn_over_the_size_that_varies_most(tmp_path: Path) -> None:
    sized = copy.deepcopy(NEW)
    first, second = sized["steps"][2]["result"]["cases"]
    first["case"], second["case"] = {"S": 64, "H": 8, "seed": 0}, {"S": 4096, "H": 9, "seed": 7}
    results = topics(make(tmp_path / "kb", sized))["results"]
    assert "over the bytes that it has to move, on H1" in results
    assert "Time of a call over S, size, on H1" in results
    assert ">S, size, log scale</text>" in results and "H, log" not in results


def test_a_size_that_does_not_vary_is_no_axis(tmp_path: Path) -> None:
    alone = copy.deepcopy(LARGE)
    alone["steps"][2]["result"]["cases"][0]["case"] = {"S": 4096}
    results = topics(make(tmp_path / "kb", alone))["results"]
    assert "over the bytes that it has to move" in results
    assert results.count("Time of a call over") == 1


def test_each_source_has_a_page_with_lines_that_can_be_linked(tmp_path: Path) -> None:
    made = make(tmp_path / "kb", NEW)
    page = made[at.source_page("copy", "cuda/copy.cu")]
    shown = fragment(page.partition("<div")[2].partition(">")[2])
    assert {"L1", "L2", "L3", "L4"} <= shown.ids and "L5" not in shown.ids
    assert {"#L1", "#L4"} <= set(shown.links)
    assert "// <b>not bold</b>" in shown.text
    assert "exclude: true" in page.partition("\n---\n")[0]  # the search does not find it
    assert at.source_page("copy", "copy.h", 3) == at.source_page("copy", "copy.h") + "#L3"
    # What the manifest names and is not there has none, and none is listed.
    assert at.source_page("copy", "gone.h") not in made
    assert "gone.h" not in topics(made)["files"]


@given(TEXT)
def test_a_source_file_is_escaped(text: str) -> None:
    for name in ("a.cpp", "a.py", "a.yaml", "a.unheard-of"):
        shown = fragment(source.numbered(name, text))
        assert {tag for tag, _ in shown.elements} <= {"div", "pre", "a", "b", "i"}
        assert all(link.startswith("#L") for link in shown.links)
        for _, given_attributes in shown.elements:
            assert set(given_attributes) <= {"class", "id", "href", "tabindex"}


@pytest.mark.parametrize("path", ["../../secret", "/etc/passwd", "link", "sub", "a\0b", "bytes"])
def test_no_file_outside_the_kernel_is_read(tmp_path: Path, path: str) -> None:
    make(tmp_path / "kb")
    (tmp_path / "kb" / "secret").write_text("secret")
    folder = tmp_path / "kb" / "kernels" / "copy"
    (folder / "link").symlink_to(tmp_path / "kb" / "secret")
    (folder / "sub").mkdir()
    (folder / "bytes").write_bytes(b"\xff\xfe")
    base = KnowledgeBase(tmp_path / "kb")
    assert kernel_file(base, "copy", path) is None
    assert kernel_file(base, "copy", "copy.h") == COPY


@pytest.mark.parametrize("path", ["../x.h", "a b.h", "é.h", "x" * 200, "/x", "a/../b", "index", ""])
def test_the_page_of_a_source_with_an_odd_path_has_a_plain_address(path: str) -> None:
    page = at.source_page("copy", path)
    assert re.fullmatch(r"kernels/copy/src/[A-Za-z0-9._-]+\.md", page)
    assert at.is_source_page(page) and not at.is_source_page(at.kernel_page("copy"))


def test_a_file_names_the_bugs_that_its_edits_put_back(tmp_path: Path) -> None:
    root = trees.make(tmp_path / "kb")
    (root / "kernels" / "copy" / "words about source").write_text("one\nwords about find\n")
    index = Index(KnowledgeBase(root))
    made = unescape(pages(index)[at.source_page("copy", "words about source")])
    listed = made.partition("puts back: ")[2].partition("</details>")[0]
    assert listed.startswith("2<") and listed.count("\n- [2](#L2): [<code>put-back</code>](") == 2
    assert f"{trees.session_id(1)}/nan.md#mutants.put-back)" in listed


def newest_of(made: dict[str, str]) -> list[list[str]]:
    """The cells of the table of newest runs, as text."""
    lines = topics(made)["results.newest"].splitlines()
    rows = [line for line in lines if line.startswith("|") and "](" in line]
    return [[plain(cell).strip() for cell in row.strip("|").split("|")] for row in rows]


def of_tool(
    number: int, tool: str, status: str = "passed", target: str = "H1", **more: Any
) -> dict[str, Any]:
    """A run of one tool, that has no benchmark and may have been interrupted."""
    made = run(number, {}, target, **more)
    made["parameters"] = {"tools": tool}
    made["status"] = status
    made["steps"] = made["steps"][:2]
    if status != "passed":
        made["steps"][1] |= {"status": status, "message": "stopped", "result": None}
    return made


def test_the_newest_run_of_a_recipe_does_not_hide_what_was_run_otherwise(tmp_path: Path) -> None:
    runs = (
        of_tool(11, "memory"), of_tool(12, "races", "interrupted"), of_tool(13, "values"),
        of_tool(14, "memory"), of_tool(15, "values", "interrupted"),
        of_tool(16, "values", "interrupted"),
    )  # fmt: skip
    found = newest_of(make(tmp_path / "kb", *runs))
    assert [(row[0].partition("Z-copy")[0][-2:], row[2], row[4]) for row in found] == [
        ("16", "tools=values", "interrupted"),
        ("13", "tools=values", "passed"),
        ("14", "tools=memory", "passed"),
        ("12", "tools=races", "interrupted"),
    ]


def test_the_date_of_a_run_is_not_cut_into_lines(tmp_path: Path) -> None:
    page = topics(make(tmp_path / "kb", of_tool(11, "memory")))["results.newest"]
    assert re.search(r'\| <span class="kb-nowrap">\[[-\d]+ [\d:]+ UTC\]\([^)]*\)</span> \|', page)


def test_numeric_parameters_do_not_split_the_history(tmp_path: Path) -> None:
    root = trees.make(tmp_path / "first", sessions=1)
    base = KnowledgeBase(root)
    (pattern, recipe) = base.recipes()["copy"]
    assert recipe.parameters["seed"].type == "str"
    index = Index(base)
    seed = recipe.parameters["seed"].model_copy(update={"type": "int", "default": "0"})
    recipe = recipe.model_copy(update={"parameters": {"seed": seed}})
    index.recipes["copy"] = (pattern, recipe)
    (newest, *_) = index.runs_of(kernel="copy")
    assert kernel_page._set(index, newest.model_copy(update={"parameters": {"seed": "9"}})) == []
    other = newest.model_copy(update={"parameters": {"seed": "9", "target": "cpu", "tools": "x"}})
    assert kernel_page._set(index, other) == [("tools", "x")]


def built(number: int, **sources: str) -> dict[str, Any]:
    made = copy.deepcopy(run(number, {"s float32": {"ours": 5, "base": 10}}, "H1"))
    made["steps"][0]["result"]["sources"] = {
        name.replace("_", "."): hashlib.sha256(text.encode()).hexdigest()
        for name, text in sources.items()
    }
    return made


@pytest.mark.parametrize(
    ("sources", "older"),
    [
        ({}, False),  # a record without hashes says nothing
        ({"copy_cu": COPY, "copy_cpp": COPY, "copy_h": COPY}, True),  # a file that is gone
        ({"copy_cpp": COPY, "copy_h": "before"}, True),
        ({"copy_h": COPY}, True),  # a source that the manifest did not have
        ({"copy_cpp": COPY, "copy_h": COPY, "cuda/copy_cu": COPY}, False),
    ],
)
def test_a_run_of_other_sources_is_marked(
    tmp_path: Path, sources: dict[str, str], older: bool
) -> None:
    made = make(tmp_path / "kb", built(11, **sources))
    told = topics(made)
    # Said once above a table where it is so of every row, and of the commit that was checked.
    assert told["results"].count("older than the sources") == older
    for name in ("validation", "results.newest"):
        assert told[name].count("The sources have changed since all of these") == older
        assert "older than the sources" not in told[name]
    assert (
        "the newest validation checked commit <code>11111111</code>." in told["validation"]
    ) == older
    assert [row[4] for row in newest_of(made)] == ["passed"]


def test_where_one_of_two_runs_is_of_other_sources_its_row_is_marked(tmp_path: Path) -> None:
    old = built(11, copy_cpp=COPY, copy_h="before")
    new = built(12, copy_cpp=COPY, copy_h=COPY, **{"cuda/copy_cu": COPY})
    new["machine"]["cpu"] = "another processor"
    new["machine"]["card"] = "another card"
    made = make(tmp_path / "kb", old, new)
    told = topics(made)["validation"]
    assert "The sources have changed" not in told
    assert told.count("older than the sources") == 2  # its validation and its benchmark
    ages = sorted(row[4] for row in newest_of(made))
    assert ages == ["passed", "passed older than the sources"]


@pytest.mark.parametrize(("before", "said"), [(COPY, "4 of 4"), ("before", "2 of 2")])
def test_the_widest_validation_of_the_newest_sources_counts(
    tmp_path: Path, before: str, said: str
) -> None:
    """Each build makes a library of its own, of the same sources too."""
    wide = run(11, {"s float32": {"ours": 5, "base": 10}}, "H1", variants=["plain"])
    wide["steps"][0]["result"] = built(11, copy_h=before)["steps"][0]["result"]
    narrow = built(12, copy_h=COPY, copy_cpp=COPY)
    for step in narrow["steps"]:
        step["result"]["sha256"] = "1" * 64
    made = make(tmp_path / "kb", wide, narrow)
    assert f"{said} cases passed" in topics(made)["validation"]


def test_the_workspace_of_each_variant_stands_with_it(tmp_path: Path) -> None:
    needs = copy.deepcopy(NEW)
    first, second = needs["steps"][2]["result"]["cases"]
    first["workspace_bytes"] = {"ours": 0, "plain": 4096, "vector": 0}
    second["workspace_bytes"] = {"ours": 1024, "plain": 65536, "vector": 0}
    made = topics(make(tmp_path / "kb", needs))
    ladder = {
        line.split("</code>")[0].rpartition(">")[2]: plain(line).rstrip(" |").rpartition("| ")[2]
        for line in made["ladder"].splitlines()
        if line.startswith("| <code>")
    }
    assert ladder == {"plain": "4,096–65,536", "vector": "0"}
    rows = [x for x in made["results"].splitlines() if x.startswith("| s float16 |")]
    assert rows[0].endswith("| 1,024 |")


def test_a_fix_in_a_file_that_is_shown_leads_to_it(tmp_path: Path) -> None:
    root = trees.make(tmp_path / "kb")
    (root / "kernels" / "copy" / "words about source").write_text("one\n")
    index = Index(KnowledgeBase(root))
    session = index.sessions[trees.session_id(0)]
    (fix,) = session.fixes
    for place, links in (("words about source", True), ("line 464", False)):
        changed = session.model_copy(update={"fixes": [fix.model_copy(update={"place": place})]})
        made = unescape(session_page(index, changed)).partition("{#fixes}")[2].split("## ")[0]
        assert f"<code>{place}</code>" in made
        assert (f"[<code>{place}</code>](../kernels/copy/src/" in made) is links


def test_a_roofline_has_both_measured_ceilings(tmp_path: Path) -> None:
    """1000 GB/s and 2000 GFLOP/s meet at 2 FLOP/B; the cases move 3 and 6 MB."""
    record = copy.deepcopy(NEW)
    result = record["steps"][-1]["result"]
    result["arithmetic_gflop_s"] = {"float32": 2000.0}
    for case, flops in zip(result["cases"], (3_000_000, 60_000_000), strict=True):
        case |= {"computes_in": "float32", "flops": flops}
    made = make(tmp_path / "kb", record)
    results, charts = topics(made)["results"], unescape(made[CHARTS])
    (chart,) = [line for line in charts.splitlines() if "Roofline in float32 on H1" in line]
    svg = parsed(chart.strip())
    reads = "s float32, ours: 600 GFLOP/s, 1.00 FLOP/B, 60.0 % of the reading ceiling"
    computes = "s float16, ours: 12,000 GFLOP/s, 10.0 FLOP/B, 600 % of the arithmetic ceiling"
    marks = places(svg)
    assert {reads, computes} <= set(marks)
    limit = "read 1,000 GB/s, matrix product 2,000 GFLOP/s"
    (line,) = [one for one in svg.iter("polyline") if (one.find("title").text or "") == limit]  # type: ignore[union-attr]
    (x0, y0), (ridge, top), (x1, y1) = (
        tuple(map(float, point.split(","))) for point in line.get("points", "").split()
    )
    assert x0 > 0 and x1 < WIDTH  # all of it is in the chart
    assert top == y1 and y0 > top and x0 < marks[reads][0] < ridge < marks[computes][0] < x1
    on_roof = y0 + (top - y0) * (marks[reads][0] - x0) / (ridge - x0)
    assert marks[reads][1] > on_roof and marks[computes][1] < top  # below it, and above it
    assert "| 600 % <small>arithmetic</small> |" in results
    (link,) = {one.get("href") for one in svg.iter("a")}
    assert link == f"../../runs/{trees.session_id(0)}/{record['id']}.html"
    old = make(tmp_path / "old", NEW)
    assert "Roofline" not in old[CHARTS] and "<small>reading</small>" not in topics(old)["results"]
    loud = copy.deepcopy(record)
    loud["steps"][-1]["result"]["others_busy"] = 0.35
    assert "Roofline" not in make(tmp_path / "loud", loud)[CHARTS]


def test_the_page_of_a_run_has_what_was_measured_beside_time(tmp_path: Path) -> None:
    record = copy.deepcopy(NEW)
    result = record["steps"][-1]["result"]
    result["metrics"] = [{"name": "co<b>sine", "unit": "1", "better": "higher"}]
    result["cases"][0]["metrics"] = {"ours": {"co<b>sine": 0.25}, "base": {"co<b>sine": 0.5}}
    result["cases"][1]["peak_bytes"] = {"ours": 4096}
    shown = make(tmp_path / "kb", record)[at.run_page(trees.session_id(0), record["id"])]
    lines = [plain(line) for line in unescape(shown).splitlines() if line.startswith("| s float")]
    assert "| s float32 | cosine | 1 | higher | 0.250 | 0.500 |" in lines, lines
    assert "| s float16 | peak memory | B | lower | 4,096 | – |" in lines, lines
    assert "co<b>sine" not in shown
    without = make(tmp_path / "old", NEW)[at.run_page(trees.session_id(0), NEW["id"])]
    assert "Beside time" in shown and "Beside time" not in without
