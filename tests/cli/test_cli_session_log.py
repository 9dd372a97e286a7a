"""``kbtool session bug`` and ``fix``, and the commits made during a session."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime, timedelta

import pytest
from knowledge import LOOK, RUN, from_outside, sealed, validated

from kbtool.store.tree import KnowledgeBase


def record(base, name):
    return KnowledgeBase(base.root).session(name).record


@pytest.mark.slow
def test_the_command_that_bug_names_works_without_a_commit(base, git, kbtool):
    kbtool("session", "new", "Fix the NaN", root=base.root)
    done = kbtool("session", "bug", "NaN in the last tile", root=base.root)
    bare = kbtool("session", "fix", "nan-in-the-last-tile", root=base.root)
    assert bare.code == 2
    for said in (done.err, bare.err):
        (command,) = re.findall("`kbtool ([^`]*)`", said)
        assert command == 'session fix nan-in-the-last-tile "what was changed"'
    assert kbtool(*shlex.split(command), root=base.root).code == 0


@pytest.mark.slow
def test_a_bug_and_its_fix_are_recorded(base, git, kbtool):
    def session(*arguments):
        done = kbtool("session", *arguments, root=base.root)
        assert done.code == 0, done.err
        return done

    session("new", "Fix the NaN", "--label", "N+8")
    done = session("bug", "NaN in the last tile", "--symptom", "16 rows: NaN", "--lost", "40 min")
    assert done.out.endswith(": bug nan-in-the-last-tile: NaN in the last tile\n")
    assert "kbtool session fix nan-in-the-last-tile" in done.err
    git("commit", "--quiet", "--allow-empty", "--message", "Bound the loop")
    sha = git("rev-parse", "HEAD").strip()
    done = session("fix", "nan-in-the-last-tile", "--confirmed", "--note", "the case passes")
    assert f"fix of #bugs.nan-in-the-last-tile: Bound the loop (commit {sha[:7]})" in done.out
    done = session("close")
    assert f"  commit {sha[:7]} Bound the loop\n" in done.out
    written = record(base, "N+8")
    (bug,), (fix,), (commit,) = written.bugs, written.fixes, written.commits
    assert (bug.status, str(bug.minutes_lost), bug.symptom) == ("fixed", "40 min", "16 rows: NaN")
    assert (fix.commit, fix.confirmed, fix.change) == (sha, True, "Bound the loop")
    assert (commit.sha, commit.title, commit.role) == (sha, "Bound the loop", "made")
    assert written.engineer == "Marie"
    git("add", "-A")
    assert kbtool("check", root=base.root).code == 0, kbtool("check", root=base.root).out


def test_a_bug_of_an_earlier_session_is_found_by_its_id(base, git, kbtool):
    base.session(more="bugs: [{id: tail, title: T, status: open}]\n")
    base.session("2025-01-02-b", "follows: 2025-01-01-a\n")
    for named in ("tail", "A#bugs.tail", "2025-01-01-a#bugs.tail"):
        done = kbtool("session", "fix", named, "bound it", "--session", "B", root=base.root)
        assert done.code == 0, done.err
        # HEAD is of no time that the record has: it may hold anything.
        assert done.out.endswith(": fix of 2025-01-01-a#bugs.tail: bound it (in no commit)\n")
        assert "the fix names no commit" in done.err
    kbtool("session", "bug", "Again", "--again", "tail", "--session", "B", root=base.root)
    (again,) = record(base, "B").bugs
    assert again.recurrence_of == "2025-01-01-a#bugs.tail"
    assert record(base, "A").bugs[0].status == "open"
    assert base.findings() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bug", "T", "--lost", "soon"], "minutes_lost: 'soon' is not a quantity"),
        (["bug", "T", "--id", "Bad!"], "id: 'Bad!' is not a name"),
        (["bug", " "], "title"),
        (["bug", "one\ntwo"], "more than one line"),
        (["bug", "ssh 10.0.0.1"], "the text"),
        (["bug", "T", "--id", "tail"], "has 'tail' under bugs; for a new one choose another --id"),
        (["bug", "T", "--again", "none"], "there is no bug 'none'; 2025-01-01-a has tail"),
        (["fix", "none", "c"], "there is no bug 'none'; 2025-01-01-a has tail"),
        (["fix", "B#bugs.none", "c"], "there is no bug 'B#bugs.none'; 2025-01-02-b has race, two"),
        (["fix", "two", "c"], "more than one session has a bug 'two'; say which: .*-b#bugs.two"),
        (["fix", "tail"], "says what was changed"),
        (["fix", "tail", "c", "--commit", "nowhere"], "there is no 'nowhere' in this repository"),
    ],
)
def test_arguments_that_fit_no_bug_or_commit_exit_2(base, git, kbtool, arguments, said):
    path = base.session(more="bugs: [{id: tail, title: T, status: open}]\n")
    two = "{id: two, title: T, status: open}"
    base.session("2025-01-02-b", f"bugs: [{{id: race, title: R, status: open}}, {two}]\n")
    base.session("2025-01-03-c", f"bugs: [{two}]\n")
    before = path.read_bytes()
    done = kbtool("session", *arguments, "--session", "A", root=base.root)
    assert (done.code, done.out) == (2, ""), done
    assert re.search(said, done.err), done.err
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_fix_needs_shown_by_if_the_newest_validation_failed(base, git, kbtool):
    base.pattern(more=LOOK)
    path = base.session(more="bugs: [{id: tail, title: T, status: open}]\n")

    def fix(*arguments):
        return kbtool("session", "fix", "tail", "c", "--session", "A", *arguments, root=base.root)

    passed = base.run(validated(0, kernel="add"))
    failed = base.run(validated(1, kernel="add", passed=False))
    probe = base.run(sealed({**RUN, "id": "20250101T090300Z-look", "attempt": 1}))
    logged = base.run(from_outside())
    before = path.read_bytes()
    for arguments, said in (
        (
            ["--confirmed"],
            rf"found add \({failed}\) wrong. Validate again, name the step that showed",
        ),
        (["--shown-by", f"{failed}#steps.check"], "steps.check did not pass .failed.; name a step"),
        (["--shown-by", f"{probe}#steps.look"], "look looks at the machine and tests no code"),
        (["--shown-by", f"{logged}#steps.log"], "logged, not validated, and tests no code; name"),
        (["--shown-by", f"{failed}#status"], "is not a step of a run; write RUN#steps.ID"),
        (["--shown-by", f"{failed}#steps.none"], "--shown-by: .*none.* lists the runs"),
        (["--shown-by", "20250101T080000Z-look#steps.check"], "there is no run .* lists the"),
        (["--shown-by", "#fixes.f"], "is not a step of a run"),
        (["--shown-by", f"{passed}#steps.check", "--unconfirmed"], "--unconfirmed that none did"),
    ):
        done = fix(*arguments)
        assert (done.code, done.out) == (2, ""), done
        assert re.search(said, done.err), done.err
    assert path.read_bytes() == before
    assert fix().code == 0
    done = fix("--shown-by", f"{passed}#steps.check", "--shown-by", f"{passed}#steps.check")
    assert done.code == 0, done.err
    unsaid, shown = record(base, "A").fixes
    assert (unsaid.confirmed, unsaid.shown_by) == (None, [])
    assert (shown.confirmed, shown.shown_by) == (True, [f"{passed}#steps.check"] * 2)
    done = kbtool("session", "show", "A", root=base.root)
    assert f"confirmed yes, shown by {passed}#steps.check" in done.out
    base.run(validated(2, kernel="add"))
    assert fix("--confirmed").code == 0
    broken = base.write("sessions/2025-01-01-a/runs/20250101T110000Z-look.json", "{")
    done = fix("--confirmed")
    assert done.code != 0 and broken.name in done.err


def test_a_commit_is_named_by_what_git_takes_or_by_its_id(base, git, kbtool):
    base.session(more="bugs: [{id: tail, title: T, status: open}]\n")
    sha = git("rev-parse", "HEAD").strip()
    for given in ("main", sha[:8], "0123abc", "none"):
        done = kbtool("session", "fix", "tail", "c", "--commit", given, "--session", "A",
                      root=base.root)  # fmt: skip
        assert done.code == 0, done.err
    commits = [fix.commit for fix in record(base, "A").fixes]
    assert commits == [sha, sha, "0123abc", None]
    assert [fix.confirmed for fix in record(base, "A").fixes] == [None] * 4


def commit(git, minutes_ago: float, title: str, **env: str) -> None:
    now = datetime.now().astimezone()
    at = (now - timedelta(minutes=minutes_ago)).isoformat(timespec="seconds")
    dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
    git("commit", "--quiet", "--allow-empty", "--message", title, **dates, **env)


def test_close_records_the_users_commits_made_during_the_session(base, git, kbtool):
    commit(git, 90, "too early")
    commit(git, 50, "the first")
    commit(git, 40, "of Bob", GIT_AUTHOR_NAME="Bob", GIT_AUTHOR_EMAIL="bob@example.org")
    commit(git, 30, "password = hunter2hunter2")
    commit(git, 5, "too late")
    kbtool("session", "new", "T", "--at", "1 h ago", root=base.root)
    done = kbtool("session", "close", "--at", "20 min ago", root=base.root)
    assert done.code == 0, done.err
    assert "not recorded, because others made them: 1 commit" in done.err
    (first, second) = record(base, "t").commits
    assert first.title == "the first"
    # What a record may not hold is not taken over; the commit is a fact all the same.
    assert second.title is None and second.sha is not None
    assert base.findings() == []


def test_a_first_paragraph_that_is_too_long_for_a_title_is_cut_off(base, git, kbtool):
    kbtool("session", "new", "T", "--at", "1 h ago", root=base.root)
    commit(git, 30, "word " * 300)
    assert kbtool("session", "close", root=base.root).code == 0
    titles = [one.title for one in record(base, "t").commits]
    assert "word " * 199 + "word" in titles


@pytest.mark.slow
def test_commits_are_recorded_once_and_only_if_wanted(base, git, kbtool):
    def session(*arguments):
        assert kbtool("session", *arguments, root=base.root).code == 0

    session("new", "T", "--at", "1 h ago")
    commit(git, 30, "one")
    session("close", "--no-commits")
    assert record(base, "t").commits == []
    for _ in range(2):
        session("resume", "t")
        session("close", "t")
    assert [one.title for one in record(base, "t").commits] == ["before", "one"]


def test_without_a_repository_there_is_nothing_to_record(base, kbtool):
    kbtool("session", "new", "T", "--engineer", " M. C. ", root=base.root)
    assert kbtool("session", "close", root=base.root).code == 0
    assert (record(base, "t").engineer, record(base, "t").commits) == ("M. C.", [])


@pytest.mark.slow
def test_a_command_picks_the_running_session_of_the_git_user(base, git, kbtool):
    for title, who in (("One", []), ("Two", ["--engineer", "Bob"])):
        kbtool("session", "new", title, *who, root=base.root)
    kbtool("session", "note", "from Marie", root=base.root)
    git("config", "user.name", "Bob")
    kbtool("session", "note", "from Bob", root=base.root)
    for name, said in (("one", "from Marie"), ("two", "from Bob")):
        (notes,) = base.root.glob(f"sessions/*-{name}/notes.md")
        assert notes.read_text().endswith(f"{said}\n")
    listed = json.loads(kbtool("session", "list", "--json", root=base.root).out)["sessions"]
    assert [one["engineer"] for one in listed] == ["Marie", "Bob"]
    git("config", "user.name", "Zoe")
    assert "(Marie), " in kbtool("session", "note", "x", root=base.root).err
