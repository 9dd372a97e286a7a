"""What one sitting takes to type: as Markdown, with the commands of before, and with those of now.

    python benchmarks/bench_sitting.py            run both, and print the table
    python benchmarks/bench_sitting.py --write    write it into docs/guide/sitting.md too

Both scripts are run for real, each in a new knowledge base. Afterwards the two records hold the
same facts, and `kbtool check` finds nothing. Before, there was a command for notes, costs, bugs and
fixes; the rest was typed into session.yaml, and a run was named by its id. Return is a key too.
With Tab, a word is typed as far as the completion needs to know it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "sitting.md"
BEGIN, END = "<!-- counted by benchmarks/bench_sitting.py -->", "<!-- counted -->"

MARKDOWN = """\
# Fix the NaN at S=4

Started 2026-11-25 14:02, paused 15:10 to 15:40, ended 16:25. Budget 2 h.
Machine: AMD EPYC 9554, no GPU, Python 3.11.7, torch 2.9.1, nvcc none. Commit 61e5c02, branch main.

## Notes

- 14:20 S=4 differs by 0.08; the bound of 0.1 hides it
- 14:31 the tail of the last tile is read past its end
- 15:12 it is not the clock: cold and warm agree

## Runs

- 14:05 look: passed, 1 of 1 step, 2 s
- 16:02 look again after the fix: passed, 1 of 1 step, 2 s

## Bug: NaN in the last tile

Symptom: the last 16 rows are NaN. Lost 40 min.
Error: `max error: mismatch (nan)`
Hypotheses:
- the tail is read past its end (80 %, confirmed)
- the merge divides by zero (20 %, rejected)

Fix: bound the loop by the rows that are left (commit 3fa90c1), seen in the second run.

## Measurements

| case | ours | theirs |
| --- | --- | --- |
| S=4096 | 12.5 us | 14 us |
| S=8192 | 25 us | 27 us |

## Decisions

Keep the card until tomorrow? Stop it, or keep it. Stop it: nobody waits for it.

## Patterns

P01 Validate before measuring: applied. It failed at once instead of after the build; saved 20 min,
seen in the second run.

## Steps

| step | planned | took |
| --- | --- | --- |
| Find it | 30 min | 50 min |
| Fix it | 30 min | 25 min |

## Cost

GPU 0.40 USD, billed.

## Next

Merge on the card, 2 h: write it (90 min), time it (30 min).

## Lessons

- Check S=4 before the large cases.

Outcome: fixed, and validated at 1e-3.
"""

BEFORE = """\
$ kbtool session new "Fix the NaN at S=4" --budget-time '2 h'
$ kbtool run-recipe look
$ kbtool session note "S=4 differs by 0.08; the bound of 0.1 hides it"
$ kbtool session note "the tail of the last tile is read past its end"
$ kbtool session bug "NaN in the last tile" --symptom "the last 16 rows are NaN" --lost '40 min'
$ kbtool session pause
$ kbtool session resume
$ kbtool session note "it is not the clock: cold and warm agree"
$ kbtool session pause
$ kbtool session resume
$ git commit -qam "Bound the loop by the rows that are left"
$ kbtool session fix nan-in-the-last-tile --confirmed
$ kbtool run-recipe look
$ vi {record}
    hypotheses:
      - id: tail
        statement: the tail is read past its end
        likelihood: 80%
        verdict: confirmed
      - id: merge
        statement: the merge divides by zero
        likelihood: 20%
        verdict: rejected
measurements:
  - id: latency
    title: Latency
    kind: benchmark
    columns: {{ours: {{title: ours, unit: us}}, theirs: {{title: theirs, unit: us}}}}
    rows:
      - {{id: s4096, case: {{S: 4096}}, values: {{ours: 12.5, theirs: 14}}}}
      - {{id: s8192, case: {{S: 8192}}, values: {{ours: 25, theirs: 27}}}}
decisions:
  - id: keep
    question: Keep the card until tomorrow?
    options: [{{id: stop-it, title: stop it}}, {{id: keep-it, title: keep it}}]
    chosen: stop-it
    reason: nobody waits for it
evidence:
  - pattern: P01
    verdict: applied
    note: it failed at once instead of after the build
    saved: 20 min
    shown_by: [{run}#steps.look]
steps:
  - {{id: find-it, title: Find it, target: 30 min, actual: 50 min, status: done}}
  - {{id: fix-it, title: Fix it, target: 30 min, actual: 25 min, status: done}}
plans:
  - id: merge-on-the-card
    title: Merge on the card
    target: 2 h
    steps:
      - {{id: write-it, title: write it, target: 90 min}}
      - {{id: time-it, title: time it, target: 30 min}}
lessons:
  - Check S=4 before the large cases.
$ kbtool check
$ kbtool session cost gpu 0.40 --basis billed
$ kbtool session close --outcome "fixed, and validated at 1e-3"
$ kbtool session show {session}
"""
"""A line that begins with $ is a command; the others are typed into the record."""

NOW = """\
$ kbtool session new "Fix the NaN at S=4" --budget-time '2 h'
$ kbtool run-recipe look
$ kbtool session note "S=4 differs by 0.08; the bound of 0.1 hides it"
$ kbtool session note "the tail of the last tile is read past its end"
$ kbtool session bug "NaN in the last tile" --symptom "the last 16 rows are NaN" --lost '40 min'
$ kbtool session pause
$ kbtool session note "it is not the clock: cold and warm agree"
$ kbtool session resume
$ git commit -qam "Bound the loop by the rows that are left"
$ kbtool session fix nan-in-the-last-tile --confirmed
$ kbtool run-recipe look
$ kbtool session add -
hypothesis last "the tail is read past its end" --id tail --likelihood 80% --verdict confirmed
hypothesis last "the merge divides by zero" --id merge --likelihood 20% --verdict rejected
measurement Latency ours=12.5us theirs=14us --case S=4096
measurement latency ours=25us theirs=27us --case S=8192
decision "Keep the card until tomorrow?" "stop it" --or "keep it" --because "nobody waits for it" \
--id keep
evidence P01 applied "it failed at once instead of after the build" --saved '20 min' \
--shown-by last#steps.look
step "Find it" --target '30 min' --actual '50 min'
step "Fix it" --target '30 min' --actual '25 min'
plan "Merge on the card" --target '2 h' --step "write it=90 min" --step "time it=30 min"
lesson Check S=4 before the large cases.
cost gpu 0.40 --basis billed
$ kbtool session close --outcome "fixed, and validated at 1e-3"
$ kbtool session show last
"""
"""The same; the lines without $ are typed at the command before them, and end with Control-D."""


class Count(NamedTuple):
    """What a sitting takes to type."""

    commands: int
    lines: int
    """Lines that are no command."""
    keys: int

    @classmethod
    def of(cls, text: str) -> Count:
        """Of a script, or of a document, which has no commands."""
        lines = text.splitlines()
        commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        typed = [line for line in lines if not line.startswith("$ ")]
        keys = sum(len(line) + 1 for line in (*commands, *typed))
        return cls(len(commands), sum(1 for line in typed if line.strip()), keys)


class Sitting(NamedTuple):
    """A script that was run, and the record that it left."""

    text: str
    facts: dict[str, Any]
    with_tab: int


def sat(script: str, folder: Path) -> Sitting:
    """Run a script in a new knowledge base in ``folder``."""
    root = folder / "kb"
    _run(["kbtool", "init", str(root)], folder)
    for arguments in (
        ["init", "-q"], ["config", "user.name", "Ada"], ["config", "user.email", "ada@example.org"],
        ["add", "-A"], ["commit", "-qm", "a knowledge base"],
    ):  # fmt: skip
        _run(["git", *arguments], root)
    typed = []
    tabs = 0
    steps = re.split(r"^\$ ", script, flags=re.M)[1:]
    for step in steps:
        first, _, below = step.partition("\n")
        places = _places(root)
        line, lines = (part.format(**places) for part in (first, below))
        typed.append(f"$ {line}\n{lines}")
        tabs += keys_with_tab(line, root) + sum(len(one) + 1 for one in lines.splitlines())
        words = shlex.split(line)
        if words[0] == "vi":
            _type_into(root / words[1], lines)
        else:
            if words[:2] == ["git", "commit"]:  # the change that is committed
                (root / "kernel.txt").write_text("bounded\n")
                _run(["git", "add", "kernel.txt"], root)
            _run(words, root, lines)
    _run(["kbtool", "check"], root)
    return Sitting("".join(typed), _facts(root), tabs)


def _run(words: list[str], folder: Path, text: str = "") -> str:
    words = [sys.executable, "-m", "kbtool", *words[1:]] if words[0] == "kbtool" else words
    env = {**os.environ, "PYTHONPATH": str(PAGE.parents[2])}
    env.pop("KBTOOL_ROOT", None)
    done = subprocess.run(words, cwd=folder, input=text, env=env, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{shlex.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _places(root: Path) -> dict[str, str]:
    """What the names in braces stand for: the newest run and its session."""
    runs = sorted(root.glob("sessions/*/runs/*.json"), reverse=True)
    records = sorted(root.glob("sessions/*/session.yaml"))
    session = records[-1].parent.name if records else ""
    return {
        "run": runs[0].name.partition(".")[0] if runs else "",
        "session": session,
        "record": f"sessions/{session}/session.yaml",
    }


def _type_into(record: Path, lines: str) -> None:
    """As somebody in an editor: the hypotheses behind their bug, the rest at the end."""
    text = record.read_text()
    hypotheses, rest = lines.split("measurements:", 1)
    in_braces, in_lines = r"  - \{id: nan-in-the-last-tile.*\}", r"  - id: nan(?:.|\n)*?"
    bug = re.search(rf"^bugs:\n({in_braces}|{in_lines})\n(?=\S|\n)", text, re.M)
    assert bug is not None, text
    item = bug[1]
    if "{" in item:  # in braces: as a block, so that a list can stand below it
        pairs = re.findall(r'([a-z_]+): ("[^"]*"|[^,}]+)', item)
        item = "\n".join(f"    {key}: {value}" for key, value in pairs).replace("    ", "  - ", 1)
    text = text.replace(bug[1], f"{item}\n{hypotheses.rstrip()}")
    record.write_text(f"{text.rstrip()}\nmeasurements:{rest}")


def _facts(root: Path) -> dict[str, Any]:
    """What the record says, but for times, machine and commits."""
    from kbtool.store.tree import KnowledgeBase

    session = KnowledgeBase(root).session("fix-the-nan").record
    told = session.model_dump(mode="json", exclude_defaults=True)
    for key in ("started", "ended", "stretches", "environment", "repository", "commits", "unknown"):
        told.pop(key, None)
    for fix in told["fixes"]:
        fix.pop("commit", None)
    for edge in told["evidence"]:  # the id of a run holds its time
        edge["shown_by"] = [one.partition("#")[2] for one in edge["shown_by"]]
    notes = (root / "sessions" / session.id / "notes.md").read_text()
    runs = len(list((root / "sessions" / session.id / "runs").glob("*.json")))
    return {**told, "notes": re.findall(r"^- \S+ (.*)$", notes, re.M), "runs": runs}


def keys_with_tab(line: str, root: Path) -> int:
    """The keys of a line if each word is typed as far as the completion needs."""
    from click.shell_completion import BashComplete

    from kbtool.cli.main import cli

    try:
        words = shlex.split(line)
    except ValueError:
        return len(line) + 1
    if words[0] != "kbtool":
        return len(line) + 1
    given = os.environ.get("KBTOOL_ROOT")
    os.environ["KBTOOL_ROOT"] = str(root)
    complete = BashComplete(cli, {}, "kbtool", "_KBTOOL_COMPLETE")
    try:
        keys = 0
        rest = line
        for place, word in enumerate(words):
            raw = re.match(r"""(?:"[^"]*"|'[^']*'|\S)+\s*""", rest)
            assert raw is not None
            rest = rest[raw.end() :]
            least = len(raw[0].rstrip())
            for typed in range(1, least) if place and raw[0][0] not in "\"'" else ():
                found = complete.get_completions(words[1:place], word[:typed])
                if [one.value for one in found] == [word]:
                    least = typed + 1  # and Tab, which types the space too
                    keys -= bool(rest)
                    break
            keys += least + bool(rest)
    finally:
        os.environ.pop("KBTOOL_ROOT")
        if given is not None:
            os.environ["KBTOOL_ROOT"] = given
    return keys + 1


def table(before: Sitting, now: Sitting) -> str:
    """The counts as Markdown."""
    rows = [
        ("the commands of before, and YAML", Count.of(before.text)),
        ("the commands of now", Count.of(now.text)),
        ("the same, with Tab", Count.of(now.text)._replace(keys=now.with_tab)),
        ("a Markdown file, with nothing checked", Count.of(MARKDOWN)),
    ]
    lines = ["| the sitting with | commands | other lines | keys |", "| --- | --: | --: | --: |"]
    lines += [f"| {name} | {one.commands} | {one.lines} | {one.keys:,} |" for name, one in rows]
    return "\n".join(lines) + "\n"


def both() -> tuple[Sitting, Sitting]:
    """Both sittings, after they were run."""
    with tempfile.TemporaryDirectory(prefix="kbtool-sitting-") as folder:
        done = []
        for name, script in (("before", BEFORE), ("now", NOW)):
            own = Path(folder, name)
            own.mkdir()
            done.append(sat(script, own))
    return done[0], done[1]


def written(page: str, counted: str) -> str:
    """The page with the table in its place."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{counted}\n{END}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    before, now = both()
    if before.facts != now.facts:
        sys.exit(f"the records differ:\n{before.facts}\n{now.facts}")
    counted = table(before, now)
    print(counted, end="")
    if options.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), counted), encoding="utf-8")


if __name__ == "__main__":
    main()
