"""`kbtool mcp`: the tools over a pipe, with the client of the SDK, and as plain functions."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from knowledge import LOOK, Knowledge, validated

from kbtool.cli.mcp import reading, sums, writing
from kbtool.cli.mcp.answers import outlined
from kbtool.cli.mcp.server import Records
from kbtool.model.errors import UsageError
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]

BUGS = """\
bugs:
  - {id: nan, title: "NaN in the last tile", status: open, symptom: "rows are NaN"}
  - {id: link, title: "Symbol not found", status: fixed}
fixes:
  - {bug: "#bugs.link", change: link libcudart}
costs:
  - {kind: gpu, amount: "0.40", basis: claimed}
"""
HOSTILE = "\x1b[31mred \u202e turned"


def fill(base: Knowledge) -> Knowledge:
    base.running()
    base.session(more=BUGS)
    base.session("2025-01-02-b")
    base.write("sessions/2025-01-02-b/notes.md", HOSTILE)
    base.pattern(more=LOOK)
    base.run(validated(1))
    return base


@pytest.fixture
def small(base: Knowledge) -> KnowledgeBase:
    return KnowledgeBase(fill(base).root)


# The tools as functions ---------------------------------------------------------------------------


@pytest.mark.slow
def test_search_tells_apart_nothing_filtered_and_unknown(base, small):
    found = reading.search(small, "NaN last tile")
    assert found.outcome == "found"
    assert found.hits[0].id == "2025-01-01-a#bugs.nan"
    assert (
        found.records[0].id, found.records[0].path
    ) == ("2025-01-01-a#bugs.nan", "sessions/2025-01-01-a/session.yaml")  # fmt: skip
    nothing = reading.search(small, "zxcvb")
    assert (nothing.outcome, nothing.unknown_words) == ("nothing_found", ["zxcvb"])
    filtered = reading.search(small, "recurs lesson", kind="bug")
    assert filtered.outcome == "filtered_out"
    assert "pattern" in filtered.why
    base.write("sessions/2025-01-03-c/session.yaml", "id: [")
    unknown = reading.search(KnowledgeBase(base.root), "zxcvb")
    assert (unknown.outcome, unknown.unreadable) == (
        "unknown", ["sessions/2025-01-03-c/session.yaml"]
    )  # fmt: skip


def test_a_page_says_what_is_left_out_and_how_to_get_it(small):
    first = reading.search(small, "kernel compiles", limit=2)
    assert first.left_out > 0
    assert first.more == "offset=2 shows the next"
    second = reading.search(small, "kernel compiles", limit=2, offset=2)
    assert second.hits[0].rank == 3
    behind = reading.search(small, "kernel compiles", limit=2, offset=9999)
    assert (behind.outcome, behind.hits) == ("filtered_out", [])


TOO_MUCH = (
    "ptxas error   : Entry function 'k' uses too much shared data (0x1c000 bytes, 0xc000 max)"
)


def test_explain_names_the_symptom_and_its_file(small):
    found = reading.explain(small, text=f"line\n{TOO_MUCH}\n")
    assert found.fits[0].line == 2
    assert found.records[0].path == "symptoms/ptxas.yaml"
    assert found.records[0].id == found.fits[0].name


def test_explain_says_that_the_card_left_nothing(small):
    text = "ptxas info : (C7510) wgmma.mma_async instructions are serialized due to function calls"
    assert reading.explain(small, text=text, card="sm_90").outcome == "found"
    other = reading.explain(small, text=text, card="sm_80")
    assert (other.outcome, "leave card out" in other.why) == ("filtered_out", True)


def test_explain_of_an_unknown_text_and_of_a_run(small):
    nothing = reading.explain(small, text="all is well")
    assert (nothing.outcome, nothing.record is None) == ("nothing_found", False)
    assert reading.explain(small, run="20250101T090100Z-look").records[0].id.endswith("look")
    missing = reading.explain(small, run="20250101T000000Z-none")
    assert (missing.outcome, missing.records) == ("nothing_found", [])
    with pytest.raises(UsageError, match="one of text and run"):
        reading.explain(small)


@pytest.mark.parametrize(
    ("id_", "kind", "path"),
    [
        ("P01", "pattern", "patterns/P01.yaml"),
        ("p01", "pattern", "patterns/P01.yaml"),
        ("A", "session", "sessions/2025-01-01-a/session.yaml"),
        ("2025-01-01", "session", "sessions/2025-01-01-a/session.yaml"),
        ("look", "recipe", "patterns/P01.yaml"),
        ("A#bugs.link", "bug", "sessions/2025-01-01-a/session.yaml"),
        ("ptxas/too-much-shared-memory", "symptom", "symptoms/ptxas.yaml"),
        ("20250101T090100Z-look", "run",
         "sessions/2025-01-01-a/runs/20250101T090100Z-look.json"),
        ("20250101T090100Z-look#steps.check.cases_passed", "part of a run",
         "sessions/2025-01-01-a/runs/20250101T090100Z-look.json"),
    ],
)  # fmt: skip
def test_get_record_finds_every_kind(small, id_, kind, path):
    found = reading.get_record(small, id_)
    assert (found.outcome, found.kind, found.records[0].path) == ("found", kind, path)


def test_a_bug_has_its_status_of_now_and_its_fixes(small):
    bug = reading.get_record(small, "A#bugs.link").record
    assert (bug["status_now"], bug["fixes"][0]["change"]) == ("fixed", "link libcudart")


def test_a_pattern_a_bug_and_a_lesson_name_each_other(base):
    base.session(more=BUGS + "lessons: [Look first., Wait less.]\n")
    base.write("bench.py", "a\nwarm\n")
    base.pattern(
        more="bugs: ['2025-01-01-a#bugs.nan']\nplaces: [{file: bench.py, text: warm}]\n"
        "lessons: [{session: 2025-01-01-a, text: Wait}]\n"
    )
    known = KnowledgeBase(base.root)
    assert reading.get_record(known, "A#bugs.nan").record["became"] == ["P01"]
    assert reading.get_record(known, "A#bugs.link").record["became"] == []
    assert reading.get_record(known, "A").record["lessons_became"] == {2: ["P01"]}
    (place,) = reading.get_record(known, "P01").record["places"]
    assert place == {"path": "bench.py", "commit": None, "line": 2, "text": "warm"}


def test_get_record_says_nothing_or_unknown(base, small):
    nothing = reading.get_record(small, "2025-01-01-aa")
    assert nothing.outcome == "nothing_found"
    assert "2025-01-01-a" in nothing.why
    base.write("sessions/2025-01-03-c/session.yaml", "id: [")
    unknown = reading.get_record(KnowledgeBase(base.root), "2025-01-03-c")
    assert unknown.outcome == "unknown"
    assert "2025-01-03-c" in unknown.why


def test_lists_filter_by_status(small):
    bugs = reading.list_records(small, "bug")
    assert [(one.id, one.status) for one in bugs.listed] == [
        ("2025-01-01-a#bugs.link", "fixed"), ("2025-01-01-a#bugs.nan", "open"),
    ]  # fmt: skip
    assert len(reading.list_records(small, "bug", status="open").listed) == 1
    filtered = reading.list_records(small, "bug", status="unknown")
    assert (filtered.outcome, "fixed, open" in filtered.why) == ("filtered_out", True)
    assert reading.list_records(small, "kernel").outcome == "nothing_found"
    assert [one.id for one in reading.list_records(small, "run").listed] == [
        "20250101T090100Z-look"
    ]


def test_recipes_are_listed_and_planned(small):
    assert reading.list_recipes(small).recipes[0].steps == ["environment"]
    assert reading.list_recipes(small, kernel="add").outcome == "filtered_out"
    plan = reading.plan_recipe(small, "look")
    assert (plan.runs_here, plan.steps[0].kind) == (True, "environment")
    assert "did you mean look" in reading.plan_recipe(small, "lok").why
    with pytest.raises(UsageError, match="no such parameter"):
        reading.plan_recipe(small, "look", {"speed": "high"})


def test_costs_tell_apart_unknown_and_filtered(base, small):
    found = sums.costs(small, session=["A"])
    assert (found.rows[0].gpu, found.rows[0].ai, found.total.total) == ("0.40", None, "0.40")
    assert found.records[0].path == "sessions/2025-01-01-a/session.yaml"
    unknown = sums.costs(small, session=["B"])
    assert (unknown.outcome, unknown.total.total) == ("unknown", None)
    assert sums.costs(small, since="2030-01-01").outcome == "filtered_out"
    assert sums.costs(small, session=["nobody"]).outcome == "nothing_found"
    assert sums.costs(small, by=["month", "kind"]).rows[0].keys == {
        "month": "2025-01",
        "kind": "gpu",
    }
    with pytest.raises(UsageError, match="YYYY-MM-DD"):
        sums.costs(small, since="yesterday")


def test_compare_says_that_there_is_nothing_to_compare(small):
    found = sums.compare(small, "best", "last")
    assert (found.outcome, "no run has a benchmark" in found.why) == ("nothing_found", True)


def test_compare_names_the_runs_of_both_sides(base):
    ids = ("20261125T085029Z-split-k-0a8d", "20261125T084959Z-split-k-1670")
    for id_ in ids:
        (recorded,) = REPOSITORY.glob(f"sessions/*/runs/{id_}.json")
        base.write(recorded.relative_to(REPOSITORY).as_posix(), recorded.read_bytes())
    found = sums.compare(KnowledgeBase(base.root), *ids, limit=2)
    assert sorted(one.id for one in found.records) == sorted(ids)
    assert all(one.path.endswith(f"{one.id}.json") for one in found.records)
    assert (len(found.cases), found.left_out > 0) == (2, True)


def test_what_is_written_is_read_back_and_is_sound(base, small):
    note = writing.add_note(small, "the tail is read past its end")
    assert "the tail" in (base.root / note.path).read_text()
    bug = writing.add_bug(small, "NaN again", symptom="NaN", lost="5 min", again="A#bugs.nan")
    now = KnowledgeBase(base.root)
    assert reading.get_record(now, bug.reference).record["recurrence_of"] == "2025-01-01-a#bugs.nan"
    other = writing.add_bug(now, "Too much", output=f"a line\n{TOO_MUCH}\nmore\n")
    assert other.written["error_text"] == TOO_MUCH
    with pytest.raises(UsageError, match="no line of it reports an error"):
        writing.add_bug(now, "Nothing", output="all is well")
    fix = writing.add_fix(now, "nan-again", "bound the loop", commit="none")
    assert (fix.reference, fix.written["change"]) == (
        "2025-01-05-now#bugs.nan-again",
        "bound the loop",
    )
    now = KnowledgeBase(base.root)
    assert reading.get_record(now, fix.reference).record["status_now"] == "fixed"
    table = writing.add_measurement(
        now, "Latency, by hand", "benchmark",
        columns={"ours": writing.ColumnGiven(title="ours", unit="us")},
        rows=[writing.RowGiven(case={"S": "128, or so"}, values={"ours": "5.50"}),
              writing.RowGiven(case={}, values={}, note="not taken")],
        about="float32; [median]", validated=False,
    )  # fmt: skip
    now = KnowledgeBase(base.root)
    read = now.session("NOW").record.measurements[0]
    assert (str(read.rows[0].values["ours"]), read.validated) == ("5.50", False)
    assert reading.get_record(now, table.reference).record["rows"][0]["case"] == {"S": "128, or so"}
    assert not [f for f in base.findings() if "2025-01-05-now" in f.path and f.rule == "schema"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"theirs": 1}, "theirs"),
        ({"ours": "fast"}, "fast"),
        ({"ours": "10.1.2.3"}, "address of a machine"),
    ],
)
def test_a_measurement_that_is_none_is_refused(base, small, values, said):
    before = (base.root / "sessions/2025-01-05-now/session.yaml").read_bytes()
    with pytest.raises(UsageError, match=said):
        writing.add_measurement(
            small, "T", "benchmark", {"ours": writing.ColumnGiven(title="ours", unit="us")},
            [writing.RowGiven(case={}, values=values)],
        )  # fmt: skip
    assert (base.root / "sessions/2025-01-05-now/session.yaml").read_bytes() == before


def test_what_is_too_large_is_cut_and_named():
    value = {"small": 1, "text": "x" * 5000, "list": [{"n": n} for n in range(1000)]}
    cut_down, cut = outlined(value, 1000)
    assert cut_down["small"] == 1
    assert 0 < len(cut_down["text"]) < 1000
    assert 0 < len(cut_down["list"]) < 100
    assert {place.partition(":")[0] for place in cut} == {"text", "list"}
    assert outlined(value, 100_000) == (value, [])


# The server over a pipe ---------------------------------------------------------------------------


class Server:
    """A running server, and a client of the SDK that is connected to it."""

    def __init__(self, base: Knowledge, client: Any, portal: Any) -> None:
        self.base, self.client, self.portal = base, client, portal

    def call(self, name: str, /, **arguments: Any) -> Any:
        return self.portal.call(self.client.call_tool, name, arguments)

    def answer(self, name: str, /, **arguments: Any) -> Any:
        done = self.call(name, **arguments)
        assert not done.is_error, done.content
        return done.structured_content


def started(
    base: Knowledge, stack: ExitStack, *options: str, env: dict[str, str] | None = None
) -> Server:
    sdk = pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from anyio.from_thread import start_blocking_portal

    parameters = sdk.StdioServerParameters(
        command=sys.executable,
        args=["-m", "kbtool", "--root", str(base.root), "mcp", *options],
        env={"PYTHONPATH": str(REPOSITORY), **(env or {})},
        cwd=base.root,
    )
    portal = stack.enter_context(start_blocking_portal())
    client = stack.enter_context(portal.wrap_async_context_manager(sdk.Client(parameters)))
    return Server(base, client, portal)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    base = fill(Knowledge(tmp_path_factory.mktemp("mcp") / "base"))
    with ExitStack() as stack:
        yield started(base, stack)


@pytest.fixture(scope="module")
def tools(server: Server) -> dict[str, Any]:
    return {tool.name: tool for tool in server.portal.call(server.client.list_tools).tools}


CALLS: dict[str, dict[str, Any]] = {
    "search": {"words": "NaN"},
    "explain": {"text": TOO_MUCH},
    "get_record": {"id": "A"},
    "list_records": {"kind": "bug"},
    "list_recipes": {},
    "plan_recipe": {"recipe": "look"},
    "costs": {"session": ["A"]},
    "add_note": {"text": "it began"},
    "add_bug": {"title": "It hangs"},
    "add_fix": {"bug": "A#bugs.nan", "change": "bound the loop", "commit": "none"},
    "add_measurement": {
        "title": "Sizes",
        "kind": "memory",
        "columns": {"size": {"title": "size", "unit": "KB"}},
        "rows": [{"case": {}, "values": {"size": 3}}],
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_each_answer_has_the_form_of_its_schema_and_names_its_records(server, tools, name):
    answer = server.answer(name, **CALLS[name])
    Draft202012Validator(tools[name].output_schema).validate(answer)
    assert answer.get("outcome", "found") == "found"
    assert answer.get("records") or answer["reference"]


@pytest.mark.parametrize(
    ("name", "arguments", "outcome"),
    [
        ("search", {"words": "zxcvb"}, "nothing_found"),
        ("search", {"words": "recurs lesson", "kind": "bug"}, "filtered_out"),
        ("explain", {"text": "all is well"}, "nothing_found"),
        ("get_record", {"id": "nobody"}, "nothing_found"),
        ("list_records", {"kind": "bug", "status": "worked-around"}, "filtered_out"),
        ("costs", {"session": ["B"]}, "unknown"),
        ("costs", {"since": "2030-01-01"}, "filtered_out"),
        ("compare", {"a": "best", "b": "last"}, "nothing_found"),
    ],
)
def test_each_other_outcome_has_the_form_of_its_schema_too(server, tools, name, arguments, outcome):
    answer = server.answer(name, **arguments)
    Draft202012Validator(tools[name].output_schema).validate(answer)
    assert answer["outcome"] == outcome and answer["why"]


def test_each_tool_says_what_it_does_and_takes_no_other_arguments(tools):
    assert set(tools) - set(CALLS) == {
        "compare",
        "run_recipe",
    }  # they need runs: tests below, above
    for tool in tools.values():
        assert len(tool.description) > 40
        assert tool.input_schema["additionalProperties"] is False
        assert "title" not in tool.input_schema
        assert "base" not in tool.input_schema["properties"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("search", {}, "words: Field required; search takes words, kind, "),
        ("search", {"words": "x", "knd": "bug"}, "; search takes words, kind, "),
        ("list_recipes", {"kind": "x"}, "; list_recipes takes kernel"),
        ("search", {"words": "x", "kind": "song"}, "pattern"),
        ("search", {"words": " "}, "say what to search for"),
        ("search", {"words": "x", "limit": 0}, "limit"),
        ("explain", {}, "give one of text and run"),
        ("explain", {"text": "x", "card": "toaster"}, "write its architecture"),
        ("plan_recipe", {"recipe": "look", "settings": {"a": "b"}}, "no such parameter"),
        ("sing", {}, "sing"),
        ("add_note", {"text": "x", "session": "A.."}, "no session 'A..'"),
        ("add_note", {"text": "the server is at 10.1.2.3"}, "what the machine is"),
        ("add_fix", {"bug": "nobody"}, "kbtool session bug"),
        ("add_bug", {"title": " "}, "title"),
        ("run_recipe", {"recipe": "look"}, "--allow-run"),
    ],
)
def test_bad_arguments_are_an_error_with_the_remedy_and_no_traceback(server, name, arguments, said):
    done = server.call(name, **arguments)
    assert done.is_error
    assert said in done.content[0].text
    assert "Traceback" not in done.content[0].text and "pydantic" not in done.content[0].text
    assert "\n" not in done.content[0].text


def test_text_of_records_steers_nothing(server):
    record = server.answer("get_record", id="B")["record"]
    assert record["notes"] == "\\u001b[31mred \\u202e turned"


def test_a_changed_record_is_read_again(server):
    assert server.answer("get_record", id="2025-01-09-z")["outcome"] == "nothing_found"
    server.base.session("2025-01-09-z")
    assert server.answer("get_record", id="2025-01-09-z")["outcome"] == "found"


def test_a_tool_that_writes_says_so(tools):
    writers = {name for name, tool in tools.items() if not tool.annotations.read_only_hint}
    assert writers == {"add_note", "add_bug", "add_fix", "add_measurement", "run_recipe"}


@pytest.mark.slow
def test_a_recipe_runs_with_progress_and_can_be_cancelled(tmp_path):
    """nvidia-smi stands in for a step that takes long: it says which process waits for it."""
    import anyio

    base = fill(Knowledge(tmp_path / "base"))
    waits, marker = tmp_path / "waits", tmp_path / "slow"
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(f"#!/bin/sh\n[ -e {marker} ] || exit 1\necho $PPID >{waits}\nexec sleep 15\n")
    smi.chmod(0o755)
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, line: str | None) -> None:
        told.append((done, total, line))

    async def cancelled(client: Any) -> int:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "run_recipe", {"recipe": "look"})
            while not waits.exists() or not waits.read_text().strip():
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
        return int(waits.read_text())

    with ExitStack() as stack:
        path = f"{smi.parent}{os.pathsep}{os.environ['PATH']}"
        server = started(base, stack, "--allow-run", env={"PATH": path})
        done = server.portal.call(
            server.client.call_tool, "run_recipe", {"recipe": "look"}, None, progress
        )
        run = done.structured_content
        assert (run["status"], run["session"]) == ("passed", "2025-01-05-now")
        assert (base.root / run["path"]).is_file()
        assert told[-1][:2] == (1, 1)
        assert all(before[0] < after[0] for before, after in itertools.pairwise(told))
        failed = server.call("run_recipe", recipe="lok")
        assert failed.is_error
        assert "did you mean look" in failed.content[0].text
        marker.touch()
        child = server.portal.call(cancelled, server.client)
        server.answer("list_records", kind="run")  # it still answers
        for _ in range(500):
            if not Path(f"/proc/{child}").exists():
                break
            time.sleep(0.02)
        else:
            pytest.fail("the run goes on")


@pytest.mark.slow
def test_a_run_that_is_cancelled_in_a_step_has_a_record_that_says_so(second_kernel_base):
    import anyio

    async def cancelled(client: Any) -> None:
        began = anyio.Event()

        async def progress(done: float, total: float | None, line: str | None) -> None:
            if line and line.startswith("build"):
                began.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "run_recipe", {"recipe": "add"}, None, progress)
            await began.wait()
            assert not (await client.call_tool("list_recipes", {})).is_error  # meanwhile
            tasks.cancel_scope.cancel()

    def runs() -> list[Path]:
        return list(second_kernel_base.glob("sessions/*/runs/*.json"))

    with ExitStack() as stack:
        server = started(Knowledge(second_kernel_base), stack, "--allow-run")
        server.portal.call(cancelled, server.client)
        for _ in range(1500):
            if runs():
                break
            time.sleep(0.02)
        listed = server.answer("list_records", kind="run", status="interrupted")["listed"]
        assert [one["path"] for one in listed] == [
            path.relative_to(second_kernel_base).as_posix() for path in runs()
        ]
        assert len(listed) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_though_stdin_is_open(base, number):
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                   "clientInfo": {"name": "x", "version": "1"}},
    }  # fmt: skip
    command = [sys.executable, "-m", "kbtool", "--root", str(base.root), "mcp"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY
    ) as server:
        server.stdin.write(json.dumps(hello).encode() + b"\n")
        server.stdin.flush()
        assert b'"kbtool"' in server.stdout.readline()
        server.send_signal(number)
        try:
            assert server.wait(60) == 4
        finally:
            server.kill()


def test_without_the_sdk_it_says_what_to_install(base):
    code = (
        "import sys\nsys.modules['mcp'] = None\nfrom kbtool.cli.main import run\n"
        f"sys.exit(run(['--root', {str(base.root)!r}, 'mcp']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          cwd=REPOSITORY)  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    assert "pip install 'kbtool[mcp]'" in done.stderr


@pytest.mark.slow
def test_a_first_search_imports_neither_kinds_of_step_nor_commands(base):
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from kbtool.cli.mcp.server import Records, server_of\n"
        "from kbtool.cli.mcp.reading import search\n"
        f"records = Records(Path({str(base.root)!r}))\nserver_of(records, allow_run=True)\n"
        "assert search(records._current(), 'nvcc').hits\n"
        "print(sorted({'kbtool.steps', 'kbtool.cli.session', 'git', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          cwd=REPOSITORY)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_records_are_read_again_after_a_change_that_keeps_size_and_time(base, monkeypatch):
    monkeypatch.setattr("kbtool.store.cache.SETTLED_NS", -10_000_000_000)
    path = base.session("2025-03-01-otter", "outcome: an otter\n")
    records = Records(base.root)
    first = records._current()
    assert [hit.id for hit in reading.search(first, "otter").hits] == ["2025-03-01-otter"]
    assert records._current() is first
    before = path.stat()
    path.write_text(path.read_text().replace("an otter", "an hyena"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert [hit.text for hit in reading.search(records._current(), "hyena").hits] == ["an hyena"]


def test_records_of_a_file_written_just_now_are_read_at_each_call(base, monkeypatch):
    monkeypatch.setattr("kbtool.store.cache.SETTLED_NS", 3_600_000_000_000)
    base.session("2025-03-01-otter")
    records = Records(base.root)
    assert records._current() is not records._current()
