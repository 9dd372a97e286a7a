"""``kbtool patterns``: how often patterns were applied, what they saved, which are proved."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from kbtool.cli.common import (
    json_option,
    knowledge_base,
    print_json,
    print_table,
    warn_unreadable,
)
from kbtool.cli.complete import pattern_names
from kbtool.cli.pasted import pasted
from kbtool.model.words import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbtool.ledger.patterns import Account, Span, TimedStep
    from kbtool.model.pattern import Pattern
    from kbtool.store.tree import KnowledgeBase

EPILOG = """\b
Examples:
  kbtool patterns                    every pattern, the best standing first
  kbtool patterns P01                one pattern: its evidence and step times, with path:line
  kbtool patterns --csv > patterns.csv
  kbtool patterns --json | jq '.patterns[] | select(.standing == "disputed") | .id'

\b
Standing, from the evidence of sessions:
  proved        a session proved it and none contradicts it
  applied       sessions applied it without proof, and none contradicts it
  disputed      some sessions support it and some contradict it
  untested      no session says that it was applied
  contradicted  sessions contradict it and none supports it
  superseded    another pattern replaces it
A proof with shown_by counts if `kbtool audit` finds it consistent, else as applied.

\b
Patterns of the same standing are ordered by the number of sessions that proved them, then applied
them, then by minutes saved as claimed, then by step times. The columns saved, lost and money are
claimed by sessions; expected is what they only hoped for. "by steps" is minutes planned minus
minutes taken, over finished steps of sessions that name the pattern. "by runs" is the same over
runs of its recipes: steps that passed with the recipe's default parameters, compared with the time
that the recipe declares, and only if nothing was built before. "gains" is the time without the
technique ÷ the time with it, by the newest quiet run of the recipe ablate on each machine. Unknown
is '–', never zero.

\b
Exit status: 0 done; 1 a record does not load and is not in the figures; 2 usage."""

_WHAT = ("saved_minutes", "lost_minutes", "money")


@click.command(epilog=EPILOG)
@click.argument("pattern", required=False, metavar="[PATTERN]", shell_complete=pattern_names)
@json_option
@click.option(
    "--csv", "as_csv", is_flag=True, default=False, help="Comma-separated, with a header."
)
@click.pass_context
def patterns(ctx: click.Context, pattern: str | None, as_json: bool, as_csv: bool) -> None:
    """Rank patterns by their evidence, or show one PATTERN in full."""
    from kbtool.ledger.patterns import account_json, accounts
    from kbtool.model.errors import UsageError
    from kbtool.store.sources import places_of

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; give one")
    base = knowledge_base(ctx)
    ranked = accounts(
        (entry.record for entry in base.patterns.values()),
        [entry.record for entry in base.sessions.values()],
        [entry.record for entry in base.runs],
    )
    if pattern is not None:
        rank = _rank_of(ranked, pattern)
        ranked, first = [ranked[rank - 1]], rank
    else:
        first = 1
    if as_json:
        shown = [account_json(account, rank) for rank, account in enumerate(ranked, first)]
        if pattern is not None:
            shown[0] |= {
                "path": base.patterns[ranked[0].pattern.id].path,
                "record": ranked[0].pattern.model_dump(mode="json", exclude_defaults=True),
                "places": places_of(base, ranked[0].pattern),
                "lessons": _lessons(base, ranked[0].pattern),
                "evidence": _evidence(base, ranked[0]),
                "steps": _steps(base, ranked[0]),
                "gains": _gains(base, ranked[0]),
            }
        left_out = sorted({finding.path for finding in base.findings})
        print_json({"patterns": shown, "left_out": left_out})
    elif as_csv:
        _print_csv(ranked, first)
    elif pattern is not None:
        _print_one(base, ranked[0], first)
    elif ranked:
        _print_all(base, ranked)
    warn_unreadable(base)
    if not ranked:
        click.echo("kbtool: there are no patterns yet: one YAML file each in patterns/", err=True)
    if base.findings:
        ctx.exit(1)  # the figures lack something


def _rank_of(ranked: Sequence[Account], name: str) -> int:
    from kbtool.model.errors import NotFoundError

    for rank, account in enumerate(ranked, 1):
        if account.pattern.id.lower() == name.lower():
            return rank
    known = ", ".join(sorted(account.pattern.id for account in ranked)) or "none"
    raise NotFoundError(f"there is no pattern {name!r}; there is {known}")


def _print_all(base: KnowledgeBase, ranked: Sequence[Account]) -> None:
    from kbtool.ledger.worth import in_short, worths

    gains = worths(entry.record for entry in base.runs)
    header = [
        "", "pattern", "standing", "proved", "applied", "against", "discovered",
        "saved min", "lost min", "money", "expected", "by steps", "by runs", "gains", "title",
    ]  # fmt: skip
    rows = []
    for rank, account in enumerate(ranked, 1):
        against = account.count("contradicted") + account.count("not_reproduced")
        rows.append(
            [
                str(rank),
                account.pattern.id,
                account.standing,
                *(str(n or "–") for n in (account.count("proved"), account.count("applied"))),
                str(against or "–"),
                str(account.count("discovered") or "–"),
                _span(account.claimed("saved")),
                _span(account.claimed("lost")),
                _money(account.claimed_money()),
                _expected(account),
                _timed(account, of_runs=False),
                _timed(account, of_runs=True),
                in_short(gains.get(account.pattern.id, ())) or "–",
                account.pattern.title,
            ]
        )
    print_table(header, rows, {0, 3, 4, 5, 6, 7, 8, 11, 12})


def _span(span: Span | None) -> str:
    return "–" if span is None else str(span)


def _money(sums: dict[str, Span]) -> str:
    return " + ".join(f"{span} {currency}" for currency, span in sorted(sums.items())) or "–"


def _expected(account: Account) -> str:
    saved = account.claimed("saved", expected=True)
    parts = [f"{saved} min"] if saved else []
    money = account.claimed_money(expected=True)
    return ", ".join([*parts, *([_money(money)] if money else [])]) or "–"


def _timed(account: Account, *, of_runs: bool) -> str:
    from kbtool.ledger.patterns import shown

    saved = account.timed(of_runs=of_runs)
    return "–" if saved is None else shown(saved)


def _print_one(base: KnowledgeBase, account: Account, rank: int) -> None:
    from kbtool.ledger.patterns import STANDINGS, saving_text, time_text

    pattern = account.pattern
    click.echo(f"{pattern.id} {pattern.title}: {account.standing} (rank {rank})")
    click.echo(f"{STANDINGS[account.standing]}")
    _print_text(base, pattern)
    for older in pattern.supersedes:
        click.echo(f"supersedes {older.pattern} since {older.since}")
    if account.superseded_by:
        click.echo(f"superseded by {', '.join(account.superseded_by)}")
    for lesson in _lessons(base, pattern):
        click.echo(f"{lesson['path']}:{lesson['line']}: taught by the lesson: {lesson['lesson']}")
    for reference in pattern.bugs:
        click.echo(f"taught by {reference}")
    if pattern.decisions:
        click.echo(f"decisions (docs/adr/): {', '.join(f'{n:04}' for n in pattern.decisions)}")
    click.echo(
        f"claimed: saved {_span(account.claimed('saved'))} min, lost"
        f" {_span(account.claimed('lost'))} min, money {_money(account.claimed_money())};"
        f" expected {_expected(account)}"
    )
    click.echo(
        f"by step times: {saving_text(account.timed())} ({len(account.counted)} of"
        f" {many(len(account.steps), 'step')} counted), money {account.timed_money_text() or '–'}"
    )
    for gain in _gains(base, account):
        click.echo(
            f"{gain['path']}:1: {gain['ablation']}: without the technique a call takes"
            f" {gain['ratio']} times as long, on {gain['machine']};"
            f" {gain['cases_that_gain']} of {many(len(gain['cases']), 'case')} gain"
            + (f": none any more, {gain['gained_in']} showed a gain" if gain["gained_in"] else "")
        )
    if pattern.ablations:
        command = f"kbtool run-recipe ablate --set patterns={pattern.id}"
        click.echo(pasted(f"to measure it here: {command}"))
    elif pattern.not_ablated:
        click.echo(f"what it gains is not measured: {pattern.not_ablated}")
    for edge in _evidence(base, account):
        figures = [
            f"{name}{' (expected)' if edge['expected'] else ''} {edge[name]}"
            for name in ("saved", "lost", "money")
            if edge[name]
        ]
        suffix = f" [{', '.join(figures)}]" if figures else ""
        label, verdict = edge["session_label"], str(edge["verdict"]).replace("_", " ")
        click.echo(f"{edge['path']}:{edge['line']}: {label} {verdict}{suffix}: {edge['note']}")
        if edge["unproved"]:
            click.echo(f"  {edge['unproved']}")
    for timed, step in zip(account.steps, _steps(base, account), strict=True):
        if timed.saved is None:
            counts = f"not counted: {timed.left_out}"
        else:
            counts = saving_text(timed.saved)
        click.echo(
            f"{step['path']}:{step['line']}: step {timed.step}: planned"
            f" {time_text(timed.planned)}, took {time_text(timed.took)}: {counts}"
        )


def _print_text(base: KnowledgeBase, pattern: Pattern) -> None:
    """What the pattern says."""
    from kbtool.store.sources import places_of

    click.echo(f"record: {base.patterns[pattern.id].path}")
    for title, text in (("problem", pattern.problem), ("solution", pattern.solution)):
        if text:
            click.echo(f"{title}: {' '.join(text.split())}")
    for rule in pattern.rules:
        click.echo(f"rule: {' '.join(rule.text.split())}")
    for title, items in (("when to use", pattern.when_to_use), ("when not", pattern.when_not)):
        for item in items or ():
            click.echo(f"{title}: {' '.join(item.split())}")
    for sign in pattern.signs:
        click.echo(f"sign: {' '.join(sign.split())}")
    if pattern.code:
        click.echo("code:\n" + indent(pattern.code.rstrip("\n"), "  "))
    for place in places_of(base, pattern):
        stood = f"stood here in commit {place['commit']}" if place["commit"] else "stands here"
        click.echo(f"{place['path']}:{place['line'] or 1}: {stood}")
    if pattern.no_places:
        click.echo(f"in no source: {pattern.no_places}")


def _lessons(base: KnowledgeBase, pattern: Pattern) -> list[dict[str, object]]:
    """The lessons that became the pattern, each with its path and line."""
    return [
        {
            "session": one.session,
            "lesson": " ".join(lesson.split()),
            "path": entry.path,
            "line": entry.document.line(["lessons", number]) if entry.document else 1,
        }
        for one in pattern.lessons
        if (entry := base.sessions.get(one.session)) is not None
        for number, lesson in enumerate(entry.record.lessons)
        if one.is_in(lesson)
    ]


def _evidence(base: KnowledgeBase, account: Account) -> list[dict[str, object]]:
    """The evidence of every session, with its path and line."""
    found: list[dict[str, object]] = []
    for edge in account.edges:
        entry, evidence = base.sessions[edge.session.id], edge.evidence
        found.append(
            {
                "session": edge.session.id,
                "session_label": edge.session.label,
                "verdict": edge.verdict,
                "unproved": edge.unproved,
                "note": " ".join(evidence.note.split()),
                **{
                    name: None if (value := getattr(evidence, name)) is None else str(value)
                    for name in ("saved", "lost", "money", "source")
                },
                "expected": evidence.expected,
                "path": entry.path,
                "line": entry.document.line(["evidence", edge.place]) if entry.document else 1,
            }
        )
    return found


def _gains(base: KnowledgeBase, account: Account) -> list[dict[str, Any]]:
    """The newest quiet measurement of each ablation on each machine."""
    from kbtool.ledger.worth import gained_before, newest, worth_json, worths

    paths = {(e.record.session, e.record.id, e.record.attempt): e.path for e in base.runs}
    found = worths(entry.record for entry in base.runs).get(account.pattern.id, [])
    return [
        worth_json(worth)
        | {
            "gained_in": before.run.id if (before := gained_before(found, worth)) else None,
            "path": paths[worth.run.session, worth.run.id, worth.run.attempt],
        }
        for worth in newest(found)
    ]


def _steps(base: KnowledgeBase, account: Account) -> list[dict[str, object]]:
    """Every step that names the pattern, with its path and line."""
    from kbtool.ledger.rollup_json import number

    paths = {(e.record.session, e.record.id, e.record.attempt): e.path for e in base.runs}

    def place(step: TimedStep) -> tuple[str, int]:
        if step.run is not None:
            return paths[step.run.session, step.run.id, step.run.attempt], 1
        entry = base.sessions[step.session]
        return entry.path, entry.document.line(["steps", step.place]) if entry.document else 1

    found: list[dict[str, object]] = []
    for step in account.steps:
        path, line = place(step)
        found.append(
            {
                "session": step.session,
                "run": step.run.id if step.run else None,
                "step": step.step,
                "planned_minutes": number(step.planned),
                "took_minutes": number(step.took),
                "saved_minutes": number(step.saved),
                "left_out": step.left_out,
                "path": path,
                "line": line,
            }
        )
    return found


def _print_csv(ranked: Sequence[Account], first: int) -> None:
    import csv
    import io

    from kbtool.ledger.export.lines import as_text
    from kbtool.ledger.patterns import VERDICTS, account_json

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    claims = [f"{kind}_{what}" for kind in ("claimed", "expected") for what in _WHAT]
    times = ["saved_minutes", "of_sessions", "of_runs", "money", "counted", "left_out"]
    writer.writerow(
        ["rank", "id", "title", "standing", "superseded_by", *VERDICTS, *claims]
        + [f"step_times_{name}" for name in times]
    )
    for rank, account in enumerate(ranked, first):
        figures = account_json(account, rank)
        spans = []
        for expected in (False, True):
            money = account.claimed_money(expected=expected)
            spans += [
                *(account.claimed(what, expected=expected) or "" for what in ("saved", "lost")),
                _money(money) if money else "",
            ]
        timed = dict(figures["step_times"])  # type: ignore[call-overload]
        timed["money"] = " + ".join(f"{amount} {code}" for code, amount in timed["money"].items())
        writer.writerow(
            [
                rank, account.pattern.id, as_text(account.pattern.title), account.standing,
                " ".join(account.superseded_by),
                *(account.count(verdict) for verdict in VERDICTS),
                *spans,
                *("" if timed[name] is None else timed[name] for name in times),
            ]
        )  # fmt: skip
    click.echo(text.getvalue(), nl=False)
