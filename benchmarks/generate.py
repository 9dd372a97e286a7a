"""Generate a knowledge base of any size that resembles a real one; always the same for a size."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kbtool.model.run import digest_of_record

SESSION = """\
# yaml-language-server: $schema=../../schemas/session.json
id: {id}
label: S{number}
title: Fix the split reduction for {rows} rows
origin: person
status: complete
{follows}objective: Find why S={splits} differs from the baseline
outcome: The reduction read past the last split; fixed and validated
started: {started}
ended: {ended}
environment:
  card: L4
  driver: 550.54.15
  torch: 2.4.0
repository:
  branch: main
  commit: "{commit}"
  dirty: false
costs:
  - {{kind: gpu, amount: {gpu}, basis: estimated, rate: 0.20 USD/h}}
  - {{kind: ai, amount: {ai}, basis: claimed}}
  - {{kind: engineer, amount: {engineer}, basis: estimated}}
{more}bugs:
  - id: tail
    title: The last split is read past its end
    symptom: NaN in the last query tile
    cause: the bound used BLOCK_KV instead of the remainder
    status: fixed
    minutes_lost: {lost} min
fixes:
  - bug: "#bugs.tail"
    change: bound by min(BLOCK_KV, rest)
    commit: "{commit}"
    confirmed: true
evidence:
  - pattern: P01
    verdict: applied
    note: validated before benchmarking
claims:
  - {{id: total, says: all that it cost, stated: {total} USD, how: sum, of: [{lines}]}}
tags: [split-k, nan]
"""

PATTERN = """\
# yaml-language-server: $schema=../schemas/pattern.json
id: P01
number: 1
title: Validate before measuring
summary: A benchmark of a wrong kernel measures nothing.
stated_status: operational
problem: A wrong kernel is often a fast one.
solution: Validate first.
when_to_use: [always]
when_not: [never]
recipes:
  - name: look
    title: Look at the machine
    steps:
      - {id: look, kind: environment, title: Look, expected: 1 s, timeout: 10 s}
"""

KINDS = ("gpu", "ai", "engineer")
FIRST_DAY = datetime(2010, 1, 1, 9, tzinfo=UTC)
RUNS_EVERY = 20
"""Every how many sessions one has a run."""


def generate(root: Path, sessions: int, lines: int = 3, seed: int = 1) -> None:
    """Write ``sessions`` sessions, of ``lines`` cost lines each, and what they need to ``root``."""
    draw = random.Random(seed)
    (root / "patterns").mkdir(parents=True)
    (root / "sessions").mkdir()
    (root / "patterns" / "P01.yaml").write_text(PATTERN, encoding="utf-8")
    before = None
    for number in range(sessions):
        start = FIRST_DAY + timedelta(hours=13 * number)
        name = f"{start:%Y-%m-%d}-s{number}"
        cost = [draw.randrange(10, 400), draw.randrange(10, 900), draw.randrange(100, 9000)]
        kinds, more = list(KINDS), ""
        for place in range(3, lines):
            kind = KINDS[place % 3]
            kinds.append(f"{kind}-{place}")
            cost.append(draw.randrange(1, 10_000))
            more += (
                f"  - {{kind: {kind}, id: {kinds[-1]}, amount: {cost[-1] / 100}, basis: claimed}}\n"
            )
        folder = root / "sessions" / name
        folder.mkdir()
        text = SESSION.format(
            id=name,
            number=number,
            rows=draw.randrange(1, 4096),
            splits=draw.choice([1, 2, 4, 8]),
            follows=f"follows: {before}\n" if before else "",
            started=f"{start:%Y-%m-%dT%H:%M}Z",
            ended=f"{start + timedelta(minutes=draw.randrange(10, 300)):%Y-%m-%dT%H:%M}Z",
            commit=f"{draw.getrandbits(28):07x}",
            gpu=cost[0] / 100,
            ai=cost[1] / 100,
            engineer=cost[2] / 100,
            more=more,
            total=sum(cost) / 100,
            lines=", ".join(f'"#costs.{kind}"' for kind in kinds),
            lost=draw.randrange(1, 60),
        )
        (folder / "session.yaml").write_text(text, encoding="utf-8")
        if number % 2:
            notes = f"# S{number}\n\n" + "The tail was read; the bound is mended now.\n" * 8
            (folder / "notes.md").write_text(notes, encoding="utf-8")
        if number % RUNS_EVERY == 0:
            (folder / "runs").mkdir()
            run = _run(name, start)
            path = folder / "runs" / f"{run['id']}.json"
            path.write_text(json.dumps(run, indent=1), encoding="utf-8")
        before = name


def _run(session: str, start: datetime) -> dict[str, object]:
    run: dict[str, object] = {
        "id": f"{start:%Y%m%dT%H%M%SZ}-look",
        "session": session,
        "recipe": "look",
        "pattern": "P01",
        "parameters": {},
        "status": "passed",
        "started": start.isoformat(),
        "ended": (start + timedelta(seconds=2)).isoformat(),
        "machine": {
            "python": "3.11.7", "kbtool": "0.1.0", "os": "Linux", "cpu": "a CPU", "cores": 2,
        },
        "repository": {},
        "steps": [
            {
                "id": "look", "kind": "environment", "title": "Look", "status": "passed",
                "started": start.isoformat(), "seconds": 1.5, "expected_seconds": 1,
                "expected_from": "declared", "result": {"type": "environment"},
            }
        ],
    }  # fmt: skip
    return {**run, "digest": digest_of_record(run)}
