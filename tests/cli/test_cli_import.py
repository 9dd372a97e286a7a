"""``kbtool session import``: runs of another machine are all imported, or none is."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from knowledge import LOOK, RUN, Knowledge, sealed

from kbtool.model.run import digest_of_record
from kbtool.runner import intake as intake_module
from kbtool.runner.intake import import_runs, run_files

FIRST, SECOND = "20250101T090000Z-look", "20250101T100000Z-look"


@pytest.fixture
def here(base: Knowledge) -> Knowledge:
    """A knowledge base with the recipe of the runs and two sessions."""
    base.pattern(more=LOOK)
    base.session("2025-01-01-a", 'started: "2025-01-01T08:00Z"\nended: "2025-01-01T12:00Z"\n')
    base.session("2025-01-02-b")
    return base


@pytest.fixture
def there(tmp_path: Path) -> Knowledge:
    """Another machine's knowledge base: nothing but what a test puts there."""
    return Knowledge(tmp_path / "there")


def a_run(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(RUN), **changes}


def put(there: Knowledge, run: dict[str, Any], text: str | None = None) -> Path:
    attempt = f".{run['attempt']}" if run.get("attempt", 1) > 1 else ""
    path = f"sessions/{run['session']}/runs/{run['id']}{attempt}.json"
    return there.write(path, sealed(run) if text is None else text)


def files_of(base: Knowledge) -> dict[str, bytes]:
    folder = base.root / "sessions"
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_a_run_imported_into_its_own_session_keeps_every_byte(here, there, kbtool):
    path = put(there, a_run())
    done = kbtool("session", "import", str(path), root=here.root)
    assert done.code == 0, done.err
    taken = here.root / f"sessions/2025-01-01-a/runs/{FIRST}.json"
    assert taken.read_bytes() == path.read_bytes()
    assert done.out.splitlines()[0] == f"sessions/2025-01-01-a/runs/{FIRST}.json"
    assert "1 imported, 0 here already" in done.err
    assert "kbtool session show 2025-01-01-a" in done.err
    assert here.findings() == []


def test_a_run_imported_into_another_session_keeps_its_first_digest(here, there, kbtool):
    path = put(there, a_run(session="2024-12-31-over-there"))
    done = kbtool("session", "import", str(path), "--session", "B", "--json", root=here.root)
    assert done.code == 0, done.err
    [said] = json.loads(done.out)["taken"]
    taken = here.root / said["path"]
    record = json.loads(taken.read_text())
    before = json.loads(path.read_text())
    assert record["session"] == "2025-01-02-b"
    assert record["taken_in"] == {"session": "2024-12-31-over-there", "digest": before["digest"]}
    assert {k: v for k, v in record.items() if k not in ("session", "taken_in", "digest")} == {
        k: v for k, v in before.items() if k not in ("session", "digest")
    }
    assert here.findings() == []
    shown = kbtool("session", "show", "B", root=here.root)
    assert FIRST in shown.out

    for edit in (
        {"taken_in": {**record["taken_in"], "session": "2024-12-30-elsewhere"}},
        {"status": "interrupted"},
    ):
        edited = {**record, **edit}
        edited["digest"] = digest_of_record(edited)
        taken.write_text(json.dumps(edited))
        [finding] = here.findings()
        assert "its content does not match the digest from before the import" in finding.message


def test_a_run_imported_twice_back_to_its_session_is_the_original_record(here, there, kbtool):
    path = put(there, a_run())
    for session in ("B", "A"):
        done = kbtool("session", "import", str(path), "--session", session, root=here.root)
        assert done.code == 0, done.err
        [taken] = here.root.glob(f"sessions/*/runs/{FIRST}.json")
        path = taken.rename(there.root / f"{session}.json")
    assert "taken_in" not in json.loads(path.read_text()) or (
        json.loads(path.read_text())["taken_in"] is None
    )
    assert json.loads(path.read_text())["digest"] == json.loads(sealed(a_run()))["digest"]


@pytest.mark.slow
def test_a_run_already_here_is_skipped_whatever_its_session(here, there, kbtool):
    path = put(there, a_run())
    more = put(there, a_run(id=SECOND))
    assert kbtool("session", "import", str(path), "--session", "B", root=here.root).code == 0
    before = files_of(here)
    for arguments in ((), ("--session", "A"), ("--session", "B"), ("--new", "Again")):
        done = kbtool("session", "import", str(path), *arguments, root=here.root)
        assert (done.code, files_of(here)) == (0, before), arguments
        assert f"sessions/2025-01-02-b/runs/{FIRST}.json\n  is here already" in done.out
    done = kbtool("session", "import", str(path), str(more), str(more), root=here.root)
    assert "1 imported, 1 here already" in done.err
    # Runs that are here can be imported again, and are here already.
    assert kbtool("session", "import", str(here.root), root=here.root).code == 0


def test_a_session_is_made_from_what_the_runs_say(here, there, kbtool):
    put(there, a_run(id=SECOND, started="2025-01-01T10:00:00Z", ended="2025-01-01T10:05:00Z"))
    put(there, a_run(session="2024-12-31-x"))
    arguments = ("session", "import", str(there.root), "--new", "On the card")
    dry = kbtool(*arguments, "--dry-run", "--json", root=here.root)
    assert len(list((here.root / "sessions").iterdir())) == 2
    done = kbtool(*arguments, "--json", root=here.root)
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert (said["session"], said["made"]) == ("2025-01-01-on-the-card", True)
    assert json.loads(dry.out)["made"] is False
    assert json.loads(dry.out)["taken"] == said["taken"]
    record = json.loads(kbtool("session", "show", said["session"], "--json", root=here.root).out)
    session = record["session"]
    assert (session["origin"], session["status"]) == ("tool", "complete")
    assert session["started"] == "2025-01-01T09:00:00+00:00"
    assert session["ended"] == "2025-01-01T10:05:00+00:00"
    assert session["environment"]["cpu"] == "C"
    assert [run["id"] for run in record["runs"]] == [FIRST, SECOND]
    assert here.findings() == []
    # The next one of that name is another session.
    third = put(there, a_run(id="20250101T110000Z-look"))
    done = kbtool("session", "import", str(third), "--new", "On the card", root=here.root)
    assert "sessions/2025-01-01-on-the-card-2/runs/" in done.out
    assert here.findings() == []


def test_runs_of_two_machines_say_nothing_of_the_machine(here, there, kbtool):
    put(there, a_run())
    put(there, a_run(id=SECOND, machine={**RUN["machine"], "cpu": "D"}))
    kbtool("session", "import", str(there.root), "--new", "Two", root=here.root)
    record = kbtool("session", "show", "two", "--json", root=here.root).out
    assert "environment" not in json.loads(record)["session"]
    assert here.findings() == []


def edited(text: str) -> str:
    return text.replace('"passed"', '"failed"', 1)


def newer(text: str) -> str:
    run = {**json.loads(text), "weather": "fair"}
    run["machine"]["kbtool"] = "99.1.0"
    return sealed({key: value for key, value in run.items() if key != "digest"})


REFUSED: list[tuple[str, dict[str, Any], Callable[[str], str] | None, str]] = [
    ("edited", {}, edited, "status is 'failed'; its steps make it"),
    ("a figure edited", {}, lambda t: t.replace('"cores": 1', '"cores": 2'),
     "its content does not match its digest; runs are written by kbtool and never edited: copy it"),
    ("cut off", {}, lambda t: t[: len(t) // 2], "EOF while parsing"),
    ("empty", {}, lambda _: "", "EOF while parsing"),
    ("no record", {}, lambda _: "[1, 2]", "copy it again from the machine"),
    ("not text", {}, lambda _: "\x00\x01", "copy it again from the machine"),
    ("unsealed", {}, lambda t: json.dumps({**json.loads(t), "digest": None}), "it has no digest"),
    ("a key twice", {}, lambda t: t.replace("{", '{"id": "20250101T090000Z-look", ', 1), "twice"),
    ("newer", {}, newer, "weather: Extra inputs are not permitted: it was written by kbtool 99.1.0,"
     " which is newer than this one"),
    ("an unknown recipe", {"recipe": "sing"}, None, "names recipe 'sing', which no pattern has"),
    ("an unknown pattern", {"pattern": "P77"}, None, "names pattern P77, which does not exist"),
    ("an unknown kernel", {"kernel": "none"}, None, "names kernel none, which does not exist"),
    ("a gap", {"attempt": 3}, None, "is attempt 3, but attempt 2 is missing"),
    ("an address", {"parameters": {"host": "10.1.2.3"}}, None, "holds the address of a machine"),
    ("a secret", {"parameters": {"key": "ghp_" + "a1B2c3D4e5" * 3}}, None, "a GitHub token"),
    ("a stranger", {"session": "2020-01-01-gone"}, None,
     "its session, 2020-01-01-gone, is not here: import into another one with --session"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "edit", "said"), [r[1:] for r in REFUSED],
                         ids=[r[0] for r in REFUSED])  # fmt: skip
def test_one_refused_run_stops_the_whole_import(here, there, kbtool, changes, edit, said):
    run = a_run(**changes)
    bad = put(there, run, edit(sealed(run)) if edit else None)
    good = put(there, a_run(id=SECOND))
    before = files_of(here)
    done = kbtool("session", "import", str(good), str(bad), root=here.root)
    assert done.code == 1, done
    assert f"{bad}:1: " in done.out
    assert said in done.out
    assert "nothing was imported" in done.err
    assert files_of(here) == before


@pytest.mark.parametrize("arguments", [["--dry-run"], ["--session", "B"], ["--new", "New"]])
def test_an_unsound_run_is_refused_for_every_destination(here, there, kbtool, arguments):
    bad = put(there, a_run(recipe="sing"))
    put(there, a_run(id=SECOND))
    before = files_of(here)
    done = kbtool("session", "import", str(there.root), *arguments, "--json", root=here.root)
    said = json.loads(done.out)
    assert (done.code, said["taken"], said["made"]) == (1, [], False)
    assert [finding["path"] for finding in said["refused"]] == [str(bad)]
    assert files_of(here) == before


def test_a_run_of_the_same_name_with_other_content_is_refused(here, there, kbtool):
    first = put(there, a_run())
    other = there.write("other.json", sealed(a_run(parameters={"n": "2"})))
    done = kbtool("session", "import", str(first), str(other), root=here.root)
    assert done.code == 1
    assert f"{other}:1: run: {FIRST} is also {first}, with different content" in done.out
    assert kbtool("session", "import", str(first), root=here.root).code == 0
    before = files_of(here)
    done = kbtool("session", "import", str(other), "--session", "B", root=here.root)
    assert done.code == 1
    assert f"is also sessions/2025-01-01-a/runs/{FIRST}.json, with different" in done.out
    assert files_of(here) == before


def test_import_does_not_overwrite_an_invalid_record(here, there, kbtool):
    path = put(there, a_run())
    put(here, a_run(), edited(sealed(a_run())))
    before = files_of(here)
    done = kbtool("session", "import", str(path), root=here.root)
    assert done.code == 1
    assert "exists here but is not a valid record; `kbtool check` says why" in done.out
    assert files_of(here) == before


def test_an_unsound_session_is_named(here, there, kbtool):
    path = put(there, a_run())
    here.session("2025-01-01-a", "nonsense: 1\n")
    done = kbtool("session", "import", str(path), root=here.root)
    assert "its session, 2025-01-01-a, is here but invalid: correct it first" in done.out


def test_findings_of_other_records_do_not_stop_an_import(here, there, kbtool):
    here.write("sessions/2025-01-02-b/stray.txt", "")
    path = put(there, a_run())
    assert kbtool("session", "import", str(path), root=here.root).code == 0
    assert [finding.rule for finding in here.findings()] == ["stray"]


@pytest.mark.parametrize("arguments", [["--session", "B"], ["--new", "Both at once"]])
def test_two_imports_at_once_import_each_run_once(here, there, kbtool, arguments):
    paths = [put(there, a_run(id=f"20250101T09000{n}Z-look")) for n in range(6)]
    done: list[Any] = []
    both = [
        threading.Thread(
            target=lambda: done.append(
                kbtool("session", "import", *map(str, paths), *arguments, "--json", root=here.root)
            )
        )
        for _ in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert [one.code for one in done] == [0, 0]
    said = [json.loads(one.out) for one in done]
    assert sorted((len(one["taken"]), len(one["known"])) for one in said) == [(0, 6), (6, 0)]
    assert len([name for name in files_of(here) if name.endswith(".json")]) == 6
    assert here.findings() == []


@pytest.mark.parametrize("new", [None, "A new one"])
def test_an_import_that_cannot_be_written_completely_is_undone(here, there, monkeypatch, new):
    files, _ = run_files([put(there, a_run()).parents[3], put(there, a_run(id=SECOND))])
    before = files_of(here)
    real = intake_module.write_new

    def full(path: Path, data: bytes) -> None:
        if SECOND in path.name:
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(intake_module, "write_new", full)
    with pytest.raises(OSError, match="No space"):
        import_runs(here.root, files, new=new)
    assert files_of(here) == before
    assert here.findings() == []
    monkeypatch.undo()
    assert len(import_runs(here.root, files, new=new).imported) == 2


@pytest.mark.slow
def test_import_accepts_a_folder_of_any_level(here, there, kbtool, tmp_path):
    path = put(there, a_run())
    there.write("sessions/2025-01-01-a/session.yaml", "not looked at: [")
    runs = path.parent
    for folder in (runs, runs.parent, runs.parents[1], there.root, path):
        done = kbtool("session", "import", str(folder), "--dry-run", "--json", root=here.root)
        assert [one["file"] for one in json.loads(done.out)["taken"]] == [str(path)], folder
    (tmp_path / "empty").mkdir()
    for wrong, said in ((tmp_path / "empty", "holds no runs"), (tmp_path / "none", "there is no")):
        done = kbtool("session", "import", str(wrong), root=here.root)
        assert (done.code, said in done.err) == (2, True)
    done = kbtool("session", "import", str(path), "--session", "A", "--new", "T", root=here.root)
    assert (done.code, "give one of them" in done.err) == (2, True)
    done = kbtool("session", "import", str(path), "--new", "at 10.0.0.1", root=here.root)
    assert done.code == 2
    (runs / f".{SECOND}.journal").write_text("{}\n")
    done = kbtool("session", "import", str(there.root), root=here.root)
    assert done.code == 0
    assert "is the journal of a run that was cut off: `kbtool recover` on that machine" in done.err


def git(root: Path, *arguments: str) -> str:
    argv = ["git", "-C", str(root), "-c", "user.name=T", "-c", "user.email=t@e.st", *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def built(here: Knowledge, commit: str | None, source: bytes, **state: Any) -> dict[str, Any]:
    step = {
        "id": "build", "kind": "build", "title": "Build", "status": "passed",
        "expected_seconds": 1, "expected_from": "declared",
        "result": {
            "type": "build", "kernel": "add", "target": "cpu", "key": "k", "artifact": "add.so",
            "sha256": "0" * 64, "bytes": 1, "warm": False, "compiler": "c", "flags": [],
            "sources": {"add.cpp": hashlib.sha256(source).hexdigest()},
        },
    }  # fmt: skip
    return a_run(kernel="add", steps=[step], repository={"commit": commit, **state})


@pytest.mark.slow
def test_remarks_say_whether_the_commit_and_the_sources_are_here(here, there, kbtool):
    def remarks(run: dict[str, Any]) -> list[str]:
        put(there, run)
        arguments = ("session", "import", str(there.root), "--dry-run", "--json")
        done = kbtool(*arguments, root=here.root)
        assert done.code == 0, done.out + done.err
        return json.loads(done.out)["taken"][0]["remarks"]  # type: ignore[no-any-return]

    here.kernel()
    source = here.root / "kernels/add/add.cpp"
    source.write_bytes(b"int one;\n")
    [said] = remarks(built(here, "0" * 40, b"int one;\n"))
    assert said == "whether its commit 000000000000 exists cannot be told: no git repository"

    git(here.root, "init", "-q")
    git(here.root, "add", ".")
    git(here.root, "commit", "-qm", "one")
    commit = git(here.root, "rev-parse", "HEAD")
    source.write_bytes(b"int two;\n")  # what the tree holds now says nothing of that commit
    assert remarks(built(here, commit, b"int one;\n", dirty=False)) == []
    [said] = remarks(built(here, commit, b"int two;\n"))
    assert said == (
        "1 of the 1 file that it was built from is not that of"
        f" commit {commit[:12]}: kernels/add/add.cpp"
    )
    said = remarks(built(here, commit, b"int one;\n", dirty=True, changed_during_run=True))
    assert said == [
        "was made on a work tree that differed from its commit",
        "the work tree changed while it ran",
    ]
    [said] = remarks(built(here, "1" * 40, b"int two;\n"))
    assert said.startswith("its commit 111111111111 is not in this repository: push it from")
    first, second = remarks(built(here, None, b"int one;\n"))
    assert first.startswith("names no commit")
    assert second.endswith("is not that of this work tree: kernels/add/add.cpp")


def test_a_run_with_paths_of_its_machine_is_refused_unless_excused(here, there, kbtool):
    path = put(there, a_run(parameters={"out": "/home/ada/x.json"}))
    before = files_of(here)
    done = kbtool("session", "import", str(path), root=here.root)
    assert done.code == 1
    assert "machine-path: holds a path of a machine (/home/ada/x.json)" in done.out + done.err
    assert files_of(here) == before
    excuse = {"run": f"sessions/2025-01-01-a/runs/{FIRST}.json", "rule": "machine-path"}
    line = "# yaml-language-server: $schema=../schemas/excuses.json\n"
    excuses = json.dumps({"excuses": [{**excuse, "reason": "the card was given back"}]})
    here.write("sessions/excuses.yaml", line + excuses)
    assert kbtool("session", "import", str(path), root=here.root).code == 0
    assert here.findings() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"started": "2025-01-01T07:00:00Z", "ended": "2025-01-01T07:01:00Z"},
         "was made before the session began (2025-01-01T08:00Z)"),
        ({"started": "2025-01-01T13:00:00Z", "ended": "2025-01-01T13:01:00Z"},
         "was made after the session ended (2025-01-01T12:00Z)"),
        ({"ended": "2999-01-01T00:00:00Z"},
         "ends at 2999-01-01 00:00 UTC, in the future: one of the clocks is wrong"),
    ],
)  # fmt: skip
def test_a_run_outside_the_time_of_its_session_is_imported_with_a_remark(
    here, there, kbtool, changes, said
):
    put(there, a_run(**changes))
    done = kbtool("session", "import", str(there.root), "--json", root=here.root)
    assert done.code == 0
    [taken] = json.loads(done.out)["taken"]
    assert [remark for remark in taken["remarks"] if "commit" not in remark] == [said]
