"""``kbtool export`` from outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from knowledge import LOOK, RUN, sealed, validated

REPOSITORY = Path(__file__).parents[2]
FORMATS = ("focus", "beancount", "jsonl", "parquet", "corpus")
TEXT = ("focus", "beancount", "jsonl", "corpus")
PIPE = 1 << 16
"""Bytes that a pipe holds: only more than that meets a reader that has gone away for certain."""


@pytest.fixture
def three(base):
    cost = "costs: [{{kind: gpu, amount: {}, basis: claimed}}]\n"
    base.session("2025-01-01-a", cost.format("0.10"), label="N")
    base.session("2025-02-01-b", "follows: 2025-01-01-a\n" + cost.format("0.20"), label="N+1")
    base.session("undated-c", "follows: 2025-02-01-b\n" + cost.format("0.40"), label="N+2")
    return base


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_written_whole_and_said_on_stderr(three, kbtool, tmp_path, form):
    file = tmp_path / "out"
    file.write_bytes(b"before")
    done = kbtool("export", form, "-o", str(file), root=three.root)
    assert (done.code, done.out) == (0, "")
    assert file.read_bytes()[:6] != b"before"
    assert re.search(rf"\d (cost lines|records) of [23] sessions written to {file}", done.err)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_stdout_has_the_same_bytes_and_nothing_else(three, tmp_path, kbtool, form):
    kbtool("export", form, "--output", str(tmp_path / "out"), root=three.root)
    argv = [sys.executable, "-m", "kbtool", "--root", str(three.root), "export", form]
    piped = subprocess.run(argv, capture_output=True, check=True, cwd=REPOSITORY)
    assert piped.stdout == (tmp_path / "out").read_bytes()


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "openmetrics"])
def test_what_runs_measured_is_written_in_each_format(base, kbtool, form):
    base.session("2025-01-01-a")
    base.run(validated(0))
    done = kbtool("export", "runs", "--format", form, "-o", "out", "--json", root=base.root)
    assert done.code == 0 and json.loads(done.out)["written"] == 1
    assert "1 figure of 1 session written to out" in done.err
    data = (base.root.parent / "out").read_bytes()
    begins = {
        "jsonl": b'{"run": ', "csv": b"run,attempt,", "parquet": b"PAR1",
        "openmetrics": b"# TYPE kbtool_error_high_ratio gauge\n",
    }  # fmt: skip
    assert data.startswith(begins[form])


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["head -c 10 >/dev/null", "true"])
@pytest.mark.parametrize("form", TEXT)
def test_a_closed_pipe_is_no_error(base, kbtool, form, reader):
    line = f"{{kind: gpu, amount: 0.10, basis: claimed, note: {'x' * 200}}}"
    base.session("2025-01-01-a", f"costs: [{', '.join([line] * 600)}]\n")
    kbtool("export", form, "-o", "out", root=base.root)
    assert (base.root.parent / "out").stat().st_size > 2 * PIPE
    command = f"{sys.executable} -m kbtool --root {base.root} export {form} | {reader}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("arguments", "sessions"),
    [
        (["--session", "N+1..N+2"], 2),
        (["--session", "N"], 1),
        (["--since", "2025-01-02"], 1),
        (["--until", "2025-01-01"], 1),
    ],
)
def test_exports_take_the_filters_of_costs(three, kbtool, form, arguments, sessions):
    done = kbtool("export", form, "-o", "out", *arguments, root=three.root)
    assert done.code == 0
    if form in {"focus", "beancount"} and arguments[-1] == "N+1..N+2":
        sessions = 1  # the other has no date
    assert f"of {sessions} session{'s' * (sessions > 1)} written" in done.err
    assert ("left out: 1 session without a date" in done.err) == (arguments[0] != "--session")


@pytest.mark.parametrize(
    ("form", "lines", "sessions"), [("focus", 2, 2), ("beancount", 2, 2), ("jsonl", 3, 3)]
)
def test_sessions_without_a_date_are_reported(three, kbtool, form, lines, sessions):
    done = kbtool("export", form, root=three.root)
    assert f"{lines} cost lines of {sessions} sessions written" in done.err
    assert ("--undated YYYY-MM-DD enters them at a day" in done.err) == (form != "jsonl")
    if form != "jsonl":
        done = kbtool("export", form, "--undated", "2025-01-31", root=three.root)
        assert "3 cost lines of 3 sessions written" in done.err
        assert "2025-01-31" in done.out


def test_a_session_belongs_to_the_patterns_whose_recipes_it_ran(three, kbtool):
    three.pattern("P01", LOOK)
    three.write("sessions/2025-01-01-a/runs/20250101T090000Z-look.json", sealed(RUN))
    first = kbtool("export", "jsonl", root=three.root).out.splitlines()[0]
    assert json.loads(first)["patterns"] == ["P01"]
    assert ",P01," in kbtool("export", "focus", root=three.root).out
    assert 'patterns: "P01"' in kbtool("export", "beancount", root=three.root).out


def test_unknown_amounts_are_reported(base, kbtool):
    base.session("2025-01-01-a", "costs: [{kind: ai, amount: null, basis: claimed}]\n")
    for form in ("focus", "beancount"):
        done = kbtool("export", form, root=base.root)
        assert "left out: 1 cost line whose amount no record states" in done.err
    assert json.loads(kbtool("export", "jsonl", root=base.root).out)["amount"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["jsonl", "--session", "N+9"], r"there is no session 'N\+9'"),
        (["jsonl", "--since", "yesterday"], "--since: 'yesterday' is no day; write YYYY-MM-DD"),
        (["focus", "--undated", "20250101"], "--undated: '20250101' is no day; write YYYY-MM-DD"),
        (["focus", "--provider", "gpu"], "write KIND=NAME, where KIND is gpu, ai, other"),
        (["focus", "--provider", "engineer=us"], "where KIND is gpu, ai, other"),
        (["focus", "--provider", "ai=A", "--provider", "ai=B"], "two for ai: A and B; give one"),
        (["focus", "--account", " "], "--account is empty"),
        (["jsonl", "-o", "no/where/out"], "there is no folder no/where; make it first"),
        (["jsonl", "-o", "."], "is a folder; name a file in it"),
        (["xml"], "No such command 'xml'"),
    ],
)
def test_invalid_arguments_exit_2(three, kbtool, arguments, said):
    done = kbtool("export", *arguments, root=three.root)
    assert (done.code, done.out) == (2, "")
    assert re.search(said, done.err), done.err


def test_without_pyarrow_it_says_what_to_install(three):
    code = (
        "import sys\nsys.modules['pyarrow'] = None\nfrom kbtool.cli.main import run\n"
        f"sys.exit(run(['--root', {str(three.root)!r}, 'export', 'parquet']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "pip install 'kbtool[parquet]'" in done.stderr


def test_a_refused_export_leaves_what_was_there(base, kbtool, tmp_path):
    base.session("2025-01-01-a", "outcome: the key is AKIAABCDEFGHIJKLMNOP\n")
    file = tmp_path / "out"
    file.write_bytes(b"before")
    done = kbtool("export", "corpus", "-o", str(file), root=base.root)
    assert done.code == 1
    assert "nothing was exported" in done.err
    assert file.read_bytes() == b"before"


def test_a_record_that_does_not_load_is_reported(three, kbtool):
    three.session("2025-03-01-d", "nonsense: 1\n")
    done = kbtool("export", "jsonl", root=three.root)
    assert done.code == 1
    assert "left out: sessions/2025-03-01-d/session.yaml" in done.err


def test_an_empty_knowledge_base_says_so(base, kbtool):
    for form in FORMATS:
        done = kbtool("export", form, "-o", "out", root=base.root)
        assert done.code == 0
        assert "there are no sessions yet" in done.err


def test_reading_many_records_prints_progress(base, kbtool):
    for number in range(1000):
        (base.root / "sessions" / f"2025-01-01-s{number}").mkdir()
    assert "reading 1,000 sessions" in kbtool("export", "jsonl", root=base.root).err
