"""Small knowledge bases for the tests of the site, made from one template.

The template has every kind of record and fills every free text field through one function, so
that the same tree can be made of plain words or of an attack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbtool.model.run import digest_of_record

Words = Callable[[str], str]

SHA = "ab" * 32


def plain(name: str) -> str:
    return f"words about {name}"


ATTACK = (
    "A{n} <script>alert(1)</script><img src=x onerror=alert(1)> | **b** _i_ `c` ``` ~~~ "
    "[l](javascript:alert(1)) ![i](http://evil.example/i.png) [r]: http://evil.example "
    "<http://evil.example> {{{{ 7*7 }}}} {{% raw %}} {{: onclick=alert(1) .x #y}} # h --- *** "
    "&lt;b&gt; &amp; \\* ]] $x <!-- c --> --8<-- \"q\" 'q' \u200e\u200b</p></td></div> "
    "[TOC] [^1] :smile: http://evil.example $$x$$ <https://evil.example> www.evil.example"
)


def attack(name: str) -> str:
    return ATTACK.format(n=name.replace(" ", "-"))


def make(root: Path, words: Words = plain, sessions: int = 2) -> Path:
    """A knowledge base of so many sessions, each after the other, with runs in the last."""
    (root / "sessions").mkdir(parents=True)
    (root / "patterns").mkdir()
    put(root / "patterns" / "p01.yaml", pattern("P01", words))
    put(
        root / "patterns" / "p02.yaml",
        {
            **pattern("P02", words, recipe=False),
            "supersedes": [{"pattern": "P01", "since": session_id(0), "reason": words("since")}],
        },
    )
    put(root / "kernels" / "copy" / "kernel.yaml", kernel(words))
    (root / "kernels" / "copy" / "README.md").write_text(
        f"# {words('readme')}\n\n{words('about')}\n"
    )
    names = [session_id(number) for number in range(sessions)]
    for number, name in enumerate(names):
        before = names[number - 1] if number else None
        put(root / "sessions" / name / "session.yaml", session(name, number, before, words))
        (root / "sessions" / name / "notes.md").write_text(
            f"# {words('notes')}\n\n{words('note')}\n"
        )
    if names:
        runs = root / "sessions" / names[-1] / "runs"
        put(runs / "one.json", sealed(run(names[-1], 1, "failed", words)))
        put(runs / "two.json", sealed(run(names[-1], 2, "passed", words)))
    return root


def empty(root: Path) -> Path:
    (root / "sessions").mkdir(parents=True)
    (root / "patterns").mkdir()
    return root


def put(path: Path, record: dict[str, Any]) -> None:
    """JSON is YAML too, and needs no writer that knows how to quote an attack."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=True), encoding="utf-8")


def file_name(words: Words) -> str:
    return "".join(c for c in words("file") if c.isprintable() and c not in "/\\")


def sealed(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "digest": digest_of_record(run)}


def session_id(number: int) -> str:
    return f"2025-{1 + number // 28 % 12:02d}-{1 + number % 28:02d}-s{number}"


def session(name: str, number: int, before: str | None, words: Words) -> dict[str, Any]:
    bugs = f"{before or name}#bugs"
    return {
        "id": name, "label": re.sub(r"[/\\#]", "", words(f"label {number}"))[:80],
        "title": words("title"), "origin": "log",
        "sources": {"log": {"file": file_name(words), "about": words("source"),
                            "url": words("url")}},
        "status": "paused", **({"follows": before} if before else {}),
        "objective": words("objective"), "outcome": words("outcome"), "grade": words("grade"),
        "started": "2025-10-12T19:42Z", "ended": "2025-10-12T20:42Z", "duration": "60 min",
        "engineer": words("engineer"),
        "environment": {"card": words("card"), "details": {words("detail"): words("value")},
                        "source": "log:1"},
        "repository": {"branch": words("branch"), "commit": "7e12345", "source": "log:2"},
        "costs": [
            {"kind": "gpu", "amount": "0.35", "basis": "claimed", "note": words("cost"),
             "source": "log:3"},
            {"kind": "ai", "amount": None, "basis": "claimed", "source": "log:3"},
        ],
        "steps": [{"id": "build", "title": words("step"), "target": "25 min", "actual": "75 min",
                   "status": "failed", "note": words("late"), "source": "log:4"}],
        "measurements": [{
            "id": "fa1", "title": words("measurement"), "kind": "benchmark",
            "about": words("conditions"), "artifact": words("artifact"), "source": "log:5",
            "columns": {"ours": {"title": words("column"), "unit": words("us")}},
            "rows": [{"id": "s128", "case": {words("key"): words("case")},
                      "values": {"ours": "1.50"}, "verdict": "pass", "note": words("row")}],
        }],
        "bugs": [
            {"id": "nan", "title": words("bug"), "component": words("component"),
             "symptom": words("symptom"), "cause": words("cause"), "status": "open",
             "minutes_lost": "20 min", "error_text": words("error"), "source": "log:6",
             **({"recurrence_of": f"{bugs}.nan"} if before else {}),
             "hypotheses": [{"id": "h1", "statement": words("hypothesis"), "likelihood": "80 %",
                             "note": words("why"), "source": "log:6"}],
             "mutants": [mutant(words)]},
            {"id": "_odd_.x".lstrip("_"), "title": words("odd"), "status": "open", "cause": None,
             "source": "log:6"},
        ],
        "fixes": [{"bug": f"{bugs}.nan", "change": words("change"), "place": words("place"),
                   "commit": "7e12345", "confirmed": "true", "note": words("fixed"),
                   "source": "log:7"}],
        "commits": [{"id": "c1", "sha": "7e12345", "title": words("subject"),
                     "branch": words("branch"), "insertions": "3", "source": "log:8"}],
        "decisions": [{
            "id": "d1", "question": words("question"), "chosen": "a", "reason": words("reason"),
            "source": "log:9",
            "options": [{"id": "a", "title": words("option"), "detail": words("detail"),
                         "figures": {"cost": "1.50 USD"}, "source": "log:9"},
                        {"id": "b", "title": words("other"), "source": "log:9"}],
        }],
        "evidence": [{"pattern": "P01", "verdict": "proved", "note": words("evidence"),
                      "saved": "20 min", "source": "log:10"},
                     {"pattern": "P02", "verdict": "contradicted", "note": words("against"),
                      "source": "log:10"}],
        "claims": [
            {"id": "total", "says": words("claim"), "stated": "1.35 USD", "how": "sum",
             "of": ["#costs.gpu", f"{before or name}#measurements.fa1.s128.ours", "0.20 USD/h",
                    {"how": "ratio", "of": ["#duration", "#steps.build.actual"]}],
             "note": words("remark"), "source": "log:11"},
        ],
        "plans": [{"id": "next", "title": words("plan"), "for_session": words("later"),
                   "target": "2 h", "budget": "3 USD", "expected": [words("expected")],
                   "steps": [{"id": "s1", "title": words("planned"), "detail": words("how")}],
                   "source": "log:12"}],
        "deliverables": [{"id": "file", "title": words("deliverable"), "about": words("use"),
                          "sizes": {"lines": "316 lines"}, "source": "log:13"}],
        "lessons": [words("lesson")], "tags": ["l4", "true"],
        "unknown": {"costs.ai.amount": words("nobody"), "bugs.odd_.x.cause": words("unseen")},
    }  # fmt: skip


def pattern(name: str, words: Words, recipe: bool = True) -> dict[str, Any]:
    step = {"expected": "5 s", "timeout": "60 s"}
    return {
        "id": name, "number": str(int(name[1:3])), "title": words("pattern"),
        "summary": words("summary"),
        "sources": {"log": {"file": file_name(words), "about": words("source")}},
        "stated_in": [session_id(0)], "stated_status": "operational", "related": [],
        "problem": words("problem"), "solution": None, "when_to_use": [words("when")],
        "when_not": None, "rules": [{"id": "r1", "text": words("rule"), "source": "log:1"}],
        "symptoms": [{"id": "s1", "match": "undefined symbol", "source": "log:1",
                      "example": f"undefined symbol {words('example')}",
                      "advice": words("advice")}],
        "claims": [{"id": "c1", "says": words("claim"), "stated": "20 min", "how": "same",
                    "of": [f"{session_id(0)}#evidence.P01.saved"], "source": "log:1"}],
        "recipes": [{
            "name": "copy", "title": words("recipe"), "about": words("recipe"), "kernel": "copy",
            "parameters": {"seed": {"type": "str", "default": words("seed"),
                                    "help": words("help")}},
            "steps": [
                {"id": "build", "kind": "build", "title": words("build"), **step},
                {"id": "validate", "kind": "validate", "title": words("validate"),
                 "case_sets": "quick", **step},
                {"id": "say", "kind": "command", "title": words("say"),
                 "run": ["echo", words("said")], **step},
            ],
        }] if recipe else [],
        "tags": ["l4"],
        "unknown": {"solution": words("unsolved"), "when_not": words("never")},
    }  # fmt: skip


def mutant(words: Words) -> dict[str, Any]:
    return {"id": "put-back", "kernel": "copy", "target": "cpu", "variant": words("variant"),
            "file": words("source"), "find": words("find"), "put": words("put"),
            "note": words("edit")}  # fmt: skip


def kernel(words: Words) -> dict[str, Any]:
    return {
        "id": "copy", "title": words("kernel"), "summary": words("summary"), "namespace": "copy",
        "harness": words("harness"),
        "targets": {"cpu": {"sources": [words("source")], "flags": [words("flag")]},
                    "cuda": {"sources": [words("source")], "architectures": [words("arch")]}},
        "case_fields": {"S": {"type": "int", "default": "1", "help": words("field")},
                        "kind": {"type": "str", "default": words("kind"), "help": words("kind")}},
        "case_sets": {"quick": {"title": words("set"), "about": words("set"),
                                "cases": [{"name": words("case"), "S": "64"}]}},
    }  # fmt: skip


def run(session: str, attempt: int, status: str, words: Words) -> dict[str, Any]:
    """A run with every kind of result; attempt 1 fails to validate, attempt 2 goes through."""
    step = {"expected_seconds": 5, "expected_from": "declared", "seconds": 4.2}
    passed = status == "passed"
    timing = {"samples_us": [2.0, 3.0], "median_us": 2.5, "low_us": 2.25, "high_us": 2.75,
              "calls_per_sample": 10}  # fmt: skip
    case = {"case_set": words("set"), "name": words("case"), "case": {}, "passed": passed,
            "repeatable": True, "message": words("message"),
            "outputs": {"out": {"passed": passed, "error": 1e-3 if passed else 3e-3,
                                "bound": 2e-3, "torch_error": 1e-3}}}  # fmt: skip
    steps = [
        {"id": "environment", "kind": "environment", "title": words("probe"), "status": "passed",
         "result": {"type": "environment", "missing": [words("missing")]}, **step},
        {"id": "build", "kind": "build", "title": words("build"), "status": "passed",
         "message": words("built"), **step,
         "result": {"type": "build", "kernel": "copy", "target": "cpu", "key": "k",
                    "artifact": words("lib"), "sha256": SHA, "bytes": 10, "warm": False,
                    "compiler": words("compiler"), "flags": [words("flag")], "sources": {}}},
        {"id": "validate", "kind": "validate", "title": words("validate"), "status": status,
         "error": words("error"), "patterns": ["P01"], **step,
         "result": {"type": "validation", "sha256": SHA, "device": words("device"), "seed": 1,
                    "rule": words("rule"), "cases": [case]}},
    ]  # fmt: skip
    if passed:
        steps.append(
            {"id": "time", "kind": "benchmark", "title": words("time"), "status": "passed", **step,
             "result": {"type": "benchmark", "sha256": SHA, "device": words("device"),
                        "threads": 2, "subject": words("ours"), "baseline": words("theirs"),
                        "read_gb_s": 20.0, "protocol": words("protocol"),
                        "cases": [{"name": words("case"), "case": {}, "bytes": 1000, "flops": 10,
                                   "arms": {words("ours"): timing, words("theirs"): timing},
                                   "rechecked": True, "absent": {words("third"): words("gone")}},
                                  {"name": words("fast"), "case": {}, "bytes": 1, "flops": 1,
                                   "arms": {words("ours"): timing}, "rechecked": False,
                                   "refused": words("refused")}]}}
        )  # fmt: skip
        steps.append(
            {"id": "put", "kind": "mutants", "title": words("put back"), "status": "passed", **step,
             "result": {"type": "mutants", "kernel": "copy", "target": "cpu", "sha256": SHA,
                        "device": words("device"), "seed": 1, "rule": words("rule"), "bound": 0.1,
                        "cases": [words("case")], "replaceable": [],
                        "mutants": [{"bug": f"{session}#bugs.nan", "mutant": mutant(words),
                                     "verdict": "killed", "killed_by": [0], "cases_run": 1,
                                     "message": words("noticed")}]}}
        )  # fmt: skip
    steps.append(
        {"id": "say", "kind": "command", "title": words("say"),
         "status": "passed" if passed else "not-run", **step,
         "result": {"type": "command", "argv": ["echo", words("said")], "exit_code": 0,
                    "output_tail": words("output"), "produced": {words("made"): SHA}}}
    )  # fmt: skip
    return {
        "id": "20251121T101010Z-copy", "attempt": attempt, "session": session, "recipe": "copy",
        "pattern": "P01", "kernel": "copy", "parameters": {"seed": words("seed")},
        "status": status, "started": "2025-11-21T10:10:10Z", "ended": "2025-11-21T10:11:10Z",
        "machine": {"card": None, "python": words("python"), "kbtool": "0.1.0", "os": words("os"),
                    "cpu": words("cpu"), "cores": 2},
        "repository": {"commit": "7e12345", "branch": words("branch"), "dirty": True,
                       "changed_during_run": True},
        "steps": steps,
        "identity": {"problem": {words("harness"): SHA}, "libraries": {words("library"): SHA},
                     "packages": {words("package"): words("version")}},
    }  # fmt: skip
