"""``kbtool bisect``: commits whose times are drawn, and the runs of them kept as real ones are."""

from __future__ import annotations

import hashlib
import json
import math
import random
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from knowledge import KERNEL, Knowledge, sealed

from kbtool.cli import main
from kbtool.gpu.probe import probe_machine
from kbtool.runner.intake import import_runs
from kbtool.runner.pairs import Measured
from kbtool.store.edit import end_run_session
from kbtool.sweeps import bisect as bisection
from kbtool.sweeps.bisect import Search, most_steps

RECIPE = """\
recipes:
  - name: time
    title: Build, validate and time
    kernel: add
    parameters:
      samples: {type: int, default: "5", help: samples an arm}
    steps:
      - {id: build, kind: build, title: Build, expected: 1 s, timeout: 5 min}
      - {id: check, kind: validate, title: C, expected: 1 s, timeout: 1 min, case_sets: small}
      - {id: time, kind: benchmark, title: T, expected: 8 s, timeout: 1 min, case_sets: small,
         samples: "${samples}"}
"""
SOURCE = "kernels/add/add.cpp"
FILES = ("add.cpp", "kernel.yaml", "harness.py")
JUMPS = (0.3, -0.3, 0.3, -0.3, 0.0)
"""The logarithms by which the times of a commit lie apart that says that it jumps."""
GIT = ("git", "-c", "user.name=Marie", "-c", "user.email=marie@example.org")


class Rig:
    """A knowledge base in git. A commit says in its source what a call takes; to measure it writes
    the records of such runs, with a spread of 0.5 %."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.knowledge = Knowledge(folder / "base")
        self.root = self.knowledge.root
        self.knowledge.kernel(KERNEL.replace("{n: 1}, {n: 2}", "{name: one, n: 1}"))
        self.knowledge.pattern("P01", RECIPE)
        self.random = random.Random(seed)
        self.clock = datetime.now(UTC) - timedelta(days=1)
        self.measured: list[tuple[str, int]] = []
        """Each measurement: its commit and pairs."""
        self.busy: Callable[[str], bool] = lambda commit: False
        """Whether others are busy while a commit is run."""
        self.stop_after: int | None = None
        """After so many runs more it is interrupted."""
        self.ran: list[str] = []
        self.machine = probe_machine().model_dump(mode="json")
        self.known: dict[str, dict[str, str]] = {}
        self.git("init", "--quiet", "--initial-branch=main")
        self.knowledge.write(".gitignore", ".kbtool/\n")
        self.first = self.commit(10.0)

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            [*GIT, *arguments], cwd=self.root, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, takes: float | str | None, title: str = "change it") -> str:
        """A commit that takes so many µs, that is ``broken`` or whose times are apart (``jumps``);
        ``None`` changes nothing that runs."""
        if takes is None:
            self.knowledge.write("kernels/add/README.md", f"{self.clock} {title}\n")
        else:
            self.knowledge.write(SOURCE, f"// {takes}\n// {self.random.random()}\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", title)
        return self.git("rev-parse", "HEAD")

    def measure_pairs(
        self, root: Path, commits: tuple[str, str], recipe: list[str], *, pairs: int,
        session: str | None, title: str, tell: Callable[[int, int], None],
    ) -> Measured:  # fmt: skip
        assert recipe == ["time"]
        self.measured.append((commits[1], pairs))
        measured, files = Measured(session), []
        for number in range(2 * pairs):
            side = (number + number // 2) % 2
            tell(number, side)
            if self.stop_after is not None:
                if self.stop_after == 0:
                    measured.stopped, measured.last = 4, (side, None)
                    break
                self.stop_after -= 1
            run = self.run(commits[side])
            files.append(self.knowledge.write(f".kbtool/made/{run['id']}.json", sealed(run)))
            measured.sides[side].append(run["id"])
            measured.last = side, run["id"]
            if run["status"] == "failed":
                measured.stopped = 1
                break
        if files:
            intake = import_runs(root, files, session=session, new=None if session else title)
            assert not intake.refused, intake.refused
            measured.session = intake.session
            path = self.root / "sessions" / str(intake.session) / "session.yaml"
            for one in intake.imported:
                end_run_session(path, one.run.started.astimezone(), one.run.ended.astimezone())
        return measured

    def files_of(self, commit: str) -> dict[str, str]:
        if commit not in self.known:
            text = {name: self.git("show", f"{commit}:kernels/add/{name}") for name in FILES}
            self.known[commit] = {name: of + "\n" * (of != "") for name, of in text.items()}
        return self.known[commit]

    def run(self, commit: str) -> dict[str, Any]:
        """The record of a run that begins now."""
        files = self.files_of(commit)
        digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
        takes = files["add.cpp"].split("\n")[0].removeprefix("// ")
        began = self.clock
        self.clock += timedelta(seconds=20)
        common = {"status": "passed", "expected_seconds": 1, "expected_from": "declared",
                  "started": began.isoformat(), "seconds": 5.0}  # fmt: skip
        sha = hashlib.sha256(files["add.cpp"].encode()).hexdigest()
        built = {
            "type": "build", "kernel": "add", "target": "cpu", "key": "k", "artifact": "add.so",
            "sha256": sha, "bytes": 1, "warm": False, "reused": 0, "compiler": "c", "flags": [],
            "sources": {"add.cpp": digests["add.cpp"]}, "linked": {}, "packages": {},
        }  # fmt: skip
        steps: list[dict[str, Any]] = [
            {**common, "id": "build", "kind": "build", "title": "Build", "result": built},
            {**common, "id": "check", "kind": "validate", "title": "C", "result": {
                "type": "validation", "sha256": sha, "device": "cpu", "seed": 1, "rule": "R",
                "cases": [{"case_set": "small", "name": "one", "case": {"n": 1}, "passed": True,
                           "outputs": {"out": {"passed": True, "error": 1.0, "bound": 2.0,
                                               "torch_error": 1.0}}}],
            }},
            {**common, "id": "time", "kind": "benchmark", "title": "T"},
        ]  # fmt: skip
        if takes == "broken":
            steps[0] |= {"status": "failed", "error": "error: 'x' was not declared", "result": None}
            for step in steps[1:]:
                step |= {"status": "not-run", "result": None, "started": None, "seconds": None}
        else:
            jump = JUMPS[self.ran.count(commit) % len(JUMPS)]
            us = 10.5 if takes == "jumps" else float(takes)
            us *= math.exp(jump if takes == "jumps" else self.random.gauss(0, 0.005))
            self.ran.append(commit)
            others = 0.9 if self.busy(commit) else 0.0
            steps[2] |= {
                "status": "noisy" if others else "passed",
                "result": timed(us, sha, others),
            }
        status = next((s["status"] for s in steps if s["status"] != "passed"), "passed")
        problem = {f"kernels/add/{name}": digests[name] for name in ("kernel.yaml", "harness.py")}
        return {
            "id": f"{began:%Y%m%dT%H%M%SZ}-time-{self.random.randrange(16**4):04x}", "attempt": 1,
            "session": "2025-01-01-elsewhere", "recipe": "time", "pattern": "P01", "kernel": "add",
            "parameters": {"samples": "5"}, "status": status, "started": began.isoformat(),
            "ended": (began + timedelta(seconds=18)).isoformat(), "machine": self.machine,
            "repository": {"commit": commit, "branch": None, "dirty": False,
                           "changed_during_run": False},
            "steps": steps, "identity": {"problem": problem},
        }  # fmt: skip


def timed(us: float, sha: str, others: float) -> dict[str, Any]:
    times = {"samples_us": [us] * 5, "median_us": us, "low_us": us, "high_us": us,
             "calls_per_sample": 1}  # fmt: skip
    return {
        "type": "benchmark", "sha256": sha, "device": "cpu", "threads": 1, "subject": "add",
        "baseline": "add", "read_gb_s": 10.0, "protocol": "p", "others_busy": others,
        "cases": [{"name": "one", "case_set": "small", "case": {"n": 1}, "arms": {"add": times},
                   "bytes": 1000, "flops": 1, "rechecked": True}],
    }  # fmt: skip


def drawn() -> int:
    """A seed; a test that fails shows it."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    return seed


@pytest.fixture
def rig(tmp_path, monkeypatch) -> Rig:
    made = Rig(tmp_path, 1)
    attach(made, monkeypatch)
    return made


def attach(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisection, "measure_pairs", rig.measure_pairs)
    monkeypatch.chdir(rig.root)
    monkeypatch.delenv("KBTOOL_ROOT", raising=False)


@pytest.fixture
def said(capsys) -> Callable[..., dict[str, Any]]:
    """What ``kbtool bisect --json`` says of small/one from the first commit on."""

    def ask(*arguments: str, code: int = 0, commits: str = "main~8..main") -> dict[str, Any]:
        capsys.readouterr()
        status = main.run(["bisect", "one", commits, "--json", *arguments])
        out = capsys.readouterr()
        assert status == code, out.out + out.err
        told: dict[str, Any] = json.loads(out.out)
        return {**told, "progress": out.err}

    return ask


@pytest.mark.slow
def test_it_finds_the_commit_that_made_it_slower(tmp_path, monkeypatch, said):
    rig = Rig(tmp_path, drawn())
    attach(rig, monkeypatch)
    count = rig.random.randrange(8, 14)
    slow = rig.random.randrange(1, count + 1)
    ids = [rig.commit(10.0 if n < slow else 10.7) for n in range(1, count + 1)]
    told = said(commits=f"{rig.first}..")
    assert told["outcome"] == "found", told
    assert told["first"]["id"] == ids[slow - 1]
    steps = told["steps"]
    assert steps[0]["id"] == ids[-1]
    assert len(steps) <= 1 + math.ceil(math.log2(count))
    assert all(len(one["runs"]["good"]) == len(one["runs"]["commit"]) >= 5 for one in steps)
    # It costs nothing to ask again, and what is said again is the same.
    again = said(commits=f"{rig.first}..")
    assert len(rig.measured) == len({commit for commit, _ in rig.measured}) == len(steps)
    assert again["answer"] == told["answer"] and again["session"] is None
    assert [one["made"] for one in again["steps"]] == [0] * len(steps)
    assert rig.knowledge.findings() == []


@pytest.mark.slow
def test_commits_that_change_nothing_that_runs_are_not_looked_at(rig, said):
    prose = [rig.commit(None, f"prose {n}") for n in range(3)]
    slow = rig.commit(12.0)
    prose += [rig.commit(None, f"more {n}") for n in range(3)]
    rig.knowledge.write("patterns/P01.yaml", (rig.root / "patterns/P01.yaml").read_text().replace(
        "It recurs.", "It recurs often."))  # fmt: skip
    prose += [rig.commit(None, "of the pattern")]
    told = said("--dry-run", commits=f"{rig.first}..")
    assert [one["id"] for one in told["commits"]] == [slow]
    assert told["others"] == len(prose) == 7
    assert (told["steps_at_most"], told["runs_at_most"]) == (1, 10)
    assert told["expected_s"] == 100  # 10 runs; the recipe says 10 s each
    assert not rig.measured
    assert "1 commit in " in told["progress"] and "; 7 others cannot" in told["progress"]
    assert said(commits=f"{rig.first}..")["first"]["id"] == slow
    none = said(commits=f"{slow}..")
    assert none["outcome"] == "unchanged" and "no commit in A..B changes" in none["answer"]


def all_of(rig: Rig, *takes: float | str) -> list[str]:
    return [rig.commit(one) for one in takes]


@pytest.mark.slow
@pytest.mark.parametrize("takes", [10.05, 8.0])
def test_an_end_that_is_not_slower_is_told_and_ends_it(rig, said, takes):
    all_of(rig, 12.0, 12.0, takes)
    told = said(commits=f"{rig.first}..")
    assert told["outcome"] == "unchanged" and told["first"] is None and told["in_question"] == []
    assert (
        "B is not slower than A: " + ("the same" if takes > 10 else "faster by") in told["answer"]
    )
    assert len(rig.measured) == 1


@pytest.mark.slow
def test_it_goes_on_where_it_was_interrupted(rig, said):
    ids = all_of(rig, 10.0, 10.0, 12.0, 12.0)
    rig.stop_after = 10 + 7
    told = said(code=4, commits=f"{rig.first}..")
    assert told["outcome"] == "interrupted" and "the same command goes on" in told["answer"]
    assert [one["id"] for one in told["steps"]] == [ids[-1]]
    assert rig.measured == [(ids[3], 5), (ids[1], 5)]
    rig.stop_after = None
    # Seven runs in turn are three pairs: two are left.
    told = said(commits=f"{rig.first}..")
    assert told["first"]["id"] == ids[2]
    assert rig.measured[2:] == [(ids[1], 2), (ids[2], 5)]
    assert "slower by" in told["progress"] and ", by runs that were there" in told["progress"]
    assert rig.knowledge.findings() == []


@pytest.mark.slow
def test_what_does_not_build_is_skipped_and_nothing_is_guessed(rig, said):
    ids = all_of(rig, 10.0, "broken", "broken", 12.0, 12.0, "broken", 12.0)
    told = said(code=1, commits=f"{rig.first}..")
    assert told["outcome"] == "between" and told["first"] is None
    assert [one["id"] for one in told["in_question"]] == ids[1:4]
    assert "may be any of 3 commits after " in told["answer"]
    skipped = [one for one in told["steps"] if one["verdict"] == "skipped"]
    assert {one["id"] for one in skipped} == set(ids[1:3])
    assert all(one["why"] == "build failed: error: 'x' was not declared" for one in skipped)
    runs = len(rig.ran)
    again = said(code=1, commits=f"{rig.first}..")
    assert len(rig.ran) == runs
    assert all("(from run " in one["why"] for one in again["steps"] if one["id"] in ids[1:3])
    # A broken commit outside of what is in question changes nothing.
    assert said(commits=f"{ids[3]}~4..{ids[0]}", code=0)["outcome"] == "unchanged"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["A", "B"])
def test_an_end_that_gives_no_time_is_a_wrong_name(rig, said, end):
    broken = rig.commit("broken")
    commits = f"{broken}..{rig.commit(10.0)}" if end == "A" else f"{rig.first}..{broken}"
    told = said(code=2, commits=commits)
    assert told["error"]["message"].startswith(f"{end} gives no time: build failed: error: 'x'")
    assert told["error"]["remedy"] == f"name another commit as {end}"


@pytest.mark.slow
def test_what_is_too_noisy_is_measured_so_often_and_then_told(rig, said):
    ids = all_of(rig, 10.0, "jumps", 40.0, 40.0)
    told = said("--tries", "2", code=75, commits=f"{rig.first}..")
    assert told["outcome"] == "undecided"
    assert [one["id"] for one in told["in_question"]] == ids[1:3]
    assert "undecided between " in told["answer"]
    assert [pairs for commit, pairs in rig.measured if commit == ids[1]] == [5, 5]
    (step,) = [one for one in told["steps"] if one["verdict"] == "too_noisy"]
    assert (step["id"], step["why"]) == (ids[1], "runs of the same code may differ as much")
    assert len(step["runs"]["commit"]) == 10
    # What is said of it does not change by asking again; more tries measure more.
    before = len(rig.measured)
    said("--tries", "2", code=75, commits=f"{rig.first}..")
    assert len(rig.measured) == before
    said("--tries", "3", code=75, commits=f"{rig.first}..")
    assert rig.measured[before:] == [(ids[1], 5)]


@pytest.mark.slow
def test_a_machine_that_is_too_busy_ends_it_and_it_goes_on_later(rig, said):
    ids = all_of(rig, 10.0, 10.0, 12.0, 12.0)
    rig.busy = lambda commit: commit == ids[1]
    told = said(code=75, commits=f"{rig.first}..")
    assert told["outcome"] == "undecided"
    assert "0 of 5 pairs of runs are quiet" in told["steps"][-1]["why"]
    assert rig.measured == [(ids[3], 5), (ids[1], 5)]
    rig.busy = lambda commit: False
    assert said(commits=f"{rig.first}..")["first"]["id"] == ids[2]


@pytest.mark.slow
def test_what_is_too_noisy_where_others_are_busy_too_is_passed_over(rig, said):
    ids = all_of(rig, 10.0, "jumps", 40.0, 40.0)
    rig.busy = lambda commit: commit == ids[1] and rig.ran.count(commit) > 5
    told = said("--tries", "2", code=75, commits=f"{rig.first}..")
    (step,) = [one for one in told["steps"] if one["id"] == ids[1]]
    assert (step["verdict"], step["made"]) == ("too_noisy", 20)
    assert step["why"] == "runs of the same code may differ as much"
    assert len(step["runs"]["commit"]) == 5
    assert [one["id"] for one in told["in_question"]] == ids[1:3]


@pytest.mark.slow
def test_a_commit_that_solves_another_problem_is_skipped(rig, said):
    ids = all_of(rig, 10.0)
    rig.knowledge.write("kernels/add/harness.py", "SEED = 2\n")
    ids.append(rig.commit(10.0))
    rig.knowledge.write("kernels/add/harness.py", "")
    ids += all_of(rig, 12.0, 12.0)
    told = said(code=1, commits=f"{rig.first}..")
    assert [one["id"] for one in told["in_question"]] == ids[1:3]
    assert {one["why"] for one in told["steps"] if one["id"] == ids[1]} == {"another problem"}


@pytest.mark.slow
def test_runs_count_that_were_made_in_turn(rig, said):
    bad = rig.commit(12.0)
    made = Measured()
    for side in (0,) * 5 + (1,) * 5:
        run = rig.run((rig.first, bad)[side])
        path = rig.knowledge.write(f".kbtool/made/{run['id']}.json", sealed(run))
        made.session = import_runs(
            rig.root, [path], session=made.session, new=None if made.session else "One by one"
        ).session
    plan = said("--dry-run", commits=f"{rig.first}..")
    assert [one["known"] for one in plan["commits"]] == [None]
    said(commits=f"{rig.first}..")
    assert rig.measured == [(bad, 4)]  # the last of A and the first of B were a pair
    plan = said("--dry-run", commits=f"{rig.first}..")
    assert [one["known"] for one in plan["commits"]] == ["slower"]
    assert plan["steps_at_most"] == plan["runs_at_most"] == plan["expected_s"] == 0
    rig.clock = datetime.now(UTC) + timedelta(seconds=5)
    said("--again", commits=f"{rig.first}..")
    assert rig.measured[1:] == [(bad, 5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("one", "main"), "'main' is no range of commits; write A..B"),
        (("one", "..main"), "'..main' is no range of commits; write A..B"),
        (("one", "main...main"), "'main...main' is no range of commits; write A..B"),
        (("one", "nobody..main"), "git knows no commit 'nobody'; A..B names two commits"),
        (("two", "first..main"), "a recipe times no case 'two'; it times small/one"),
        (("one", "main..first"), "is not before "),
        (("one", "side..main"), "is not before "),
        (("one", "first..main", "--set", "n=1"), "n: recipe time has no such parameter"),
        (("one", "first..main", "--measure", "look"), "there is no recipe 'look'"),
    ],
)
def test_what_cannot_be_bisected_is_refused(rig, capsys, arguments, message):
    rig.git("tag", "first")
    rig.git("checkout", "--quiet", "-b", "side")
    rig.commit(10.0)
    rig.git("checkout", "--quiet", "main")
    rig.commit(11.0)
    rig.git("merge", "--quiet", "--no-edit", "--strategy=ours", "side")
    assert main.run(["bisect", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not rig.measured


def test_a_case_that_several_recipes_or_sets_have_has_to_be_named(rig, capsys):
    rig.git("tag", "first")
    path = rig.root / "patterns/P01.yaml"
    path.write_text(
        path.read_text() + RECIPE.partition("\n")[2].replace("name: time", "name: other")
    )
    kernel = rig.root / "kernels/add/kernel.yaml"
    kernel.write_text(kernel.read_text() + "  large: {title: L, cases: [{name: one, n: 9}]}\n")
    rig.commit(11.0)
    assert main.run(["bisect", "one", "first..main"]) == 2
    assert "recipes time, other time one; name one with --measure" in capsys.readouterr().err
    path.write_text(path.read_text().replace("case_sets: small,\n", 'case_sets: "small, large",\n'))
    assert main.run(["bisect", "one", "first..main", "--measure", "other"]) == 2
    assert "'one' may be small/one or large/one; write one of them" in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 2, 3, 8, 13])
def test_the_search_ends_at_the_first_slower_commit_in_as_few_steps_as_it_says(count):
    worst = 0
    for first in range(count):
        search, steps = Search(-1, count - 1), 0
        while (number := search.next) is not None:
            search, steps = search.after(number, "slower" if number >= first else "same"), steps + 1
        assert (search.good, search.bad) == (first - 1, first)
        worst = max(worst, steps)
    assert worst == most_steps(Search(-1, count - 1), {}) == math.ceil(math.log2(count))


def test_commits_without_a_verdict_are_searched_around():
    draw = random.Random(drawn())
    for _ in range(200):
        count = draw.randrange(1, 40)
        first = draw.randrange(count)
        silent = {n for n in range(count - 1) if draw.random() < 0.4}
        search, looked = Search(-1, count - 1), []
        while (number := search.next) is not None:
            looked.append(number)
            verdict = "slower" if number >= first else "same"
            search = search.after(number, "skipped" if number in silent else verdict)
        assert len(looked) == len(set(looked))
        # What is left are the first, and commits without a verdict right before it.
        assert search.good < first <= search.bad
        assert set(range(search.good + 1, search.bad)) == set(search.between) <= silent


def test_what_is_known_takes_no_step():
    assert most_steps(Search(-1, 7), {3: "slower"}) == 2
    assert most_steps(Search(-1, 7), {3: "slower", 1: "same", 2: "skipped"}) == 0


@pytest.mark.slow
def test_a_commit_whose_runs_are_as_those_of_the_good_one_is_the_same(rig, said):
    """Of what no run reads, such as the list of cheats, runs of both commits stand for both."""
    rig.knowledge.write("kernels/add/notes.txt", "read by no run\n")
    ids = [rig.commit(None), rig.commit(12.0)]
    told = said(commits=f"{rig.first}..")
    assert told["first"]["id"] == ids[1]
    assert [(one["id"], one["verdict"]) for one in told["steps"]][1:] == [(ids[0], "same")]
    assert rig.measured == [(ids[1], 5), (ids[0], 5)]


@pytest.mark.slow
def test_runs_that_lie_an_hour_apart_were_not_made_in_turn(rig, said):
    rig.knowledge.running()
    bad = rig.commit(12.0)
    rig.stop_after = 3
    said(code=4, commits=f"{rig.first}..")
    left = sorted(rig.root.glob("sessions/*/runs/*.json"))[-1].stem
    rig.clock += timedelta(hours=1)
    rig.stop_after = None
    told = said(commits=f"{rig.first}..")
    assert rig.measured == [(bad, 5), (bad, 4)]
    assert len(told["steps"][0]["runs"]["commit"]) == 5
    # Of A B B, and A B B A … an hour later, the second B has no A beside it.
    assert left not in told["steps"][0]["runs"]["commit"]
    assert "running" in (rig.root / "sessions/2025-01-05-now/session.yaml").read_text()
