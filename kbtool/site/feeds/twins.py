"""A JSON twin for every record page, and an index of them, in the shape of ``model.twin``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbtool.ledger.patterns import VERDICTS
from kbtool.ledger.rollup import KINDS
from kbtool.model.base import Model
from kbtool.model.prose import plain
from kbtool.model.run import Run
from kbtool.model.session import Session
from kbtool.model.session_costs import SessionCosts
from kbtool.model.twin import (
    BugDerived,
    Graded,
    KernelDerived,
    Kind,
    Listed,
    Mentioned,
    PatternDerived,
    RecipeDerived,
    RunDerived,
    SessionDerived,
    Sums,
    SweepDerived,
    Twin,
    TwinIndex,
)
from kbtool.runner.words import headline
from kbtool.site import addresses as at
from kbtool.site.index import BugCase, Index
from kbtool.site.sums import rollups


def paths(index: Index) -> list[str]:
    """The paths of the twins and of their index. The page of a recipe that was forgotten has none:
    its record is gone."""
    gone = {at.recipe_page(name) for name in index.forgotten.keys() - index.recipes.keys()}
    return [at.twin(page) for page in (at.HOME, *index.titles) if page not in gone]


def files(index: Index) -> dict[str, bytes]:
    """The twins and their index: path → JSON, one object a file."""
    made: dict[str, bytes] = {}
    listed = []
    for twin in _twins(index):
        made[twin.twin] = _json(twin)
        listed.append(Listed(**{name: getattr(twin, name) for name in Listed.model_fields}))
    return {at.twin(at.HOME): _json(TwinIndex(records=listed)), **made}


def _json(value: Model) -> bytes:
    return f"{value.model_dump_json()}\n".encode()


def _twins(index: Index) -> Iterator[Twin]:
    claims: dict[str, list[Graded]] = {}
    for item in index.audit.items:
        graded = Graded(
            where=item.where, grade=item.grade, derived=index.audit.computation(item).derived
        )
        claims.setdefault(item.record, []).append(graded)
    runs_in: dict[str, list[str]] = {}
    for session_id, run_id in index.runs:
        runs_in.setdefault(session_id, []).append(run_id)
    for session in index.sessions.values():
        yield _twin(
            index, "session", session.id, f"{session.label}: {session.title}",
            at.session_page(session.id), session,
            SessionDerived(
                totals=_totals(index.costs.sessions[session.id]),
                claims=claims.get(session.id, []),
                bugs={bug.id: index.bugs[session.id, bug.id].status for bug in session.bugs},
                followed_by=[follower.id for follower in index.followers.get(session.id, [])],
                runs=runs_in.get(session.id, []),
            ),
            date=session.day, status=session.status,
        )  # fmt: skip
    for pattern in index.patterns.values():
        account = index.accounts[pattern.id]
        yield _twin(
            index, "pattern", pattern.id, pattern.title, at.pattern_page(pattern.id), pattern,
            PatternDerived(
                standing=account.standing,
                superseded_by=account.superseded_by,
                verdicts={verdict: account.count(verdict) for verdict in VERDICTS},
                claims=claims.get(pattern.id, []),
            ),
            status=account.standing,
        )  # fmt: skip
    for kernel in index.kernels.values():
        recipes = [name for name, (_, r) in index.recipes.items() if r.kernel == kernel.id]
        verdict = index.verdicts.get(kernel.id)
        yield _twin(
            index, "kernel", kernel.id, kernel.title, at.kernel_page(kernel.id), kernel,
            KernelDerived(
                recipes=recipes,
                runs=_runs(index, kernel=kernel.id),
                verdict=verdict.sentence(kernel.title) if verdict else None,
                results=index.measured[kernel.id],
            ),
        )  # fmt: skip
    for case in index.bugs.values():
        yield _twin(
            index, "bug", _reference(case.session, case.bug.id), case.bug.title, case.page,
            case.bug, _bug(case), date=case.session.day, status=case.status,
        )  # fmt: skip
    for owner, recipe in index.recipes.values():
        yield _twin(
            index, "recipe", recipe.name, recipe.title, at.recipe_page(recipe.name), recipe,
            RecipeDerived(pattern=owner.id, runs=_runs(index, recipe=recipe.name)),
        )  # fmt: skip
    for (session_id, run_id), attempts in index.runs.items():
        run = attempts[-1]
        yield _twin(
            index, "run", run_id, index.run_title(run), at.run_page(session_id, run_id), run,
            RunDerived(headline=headline(run), attempts=len(attempts)),
            date=day_of(run), status=run.outcome,
        )  # fmt: skip
    for sweep in index.sweeps.values():
        yield _twin(
            index, "sweep", sweep.id, f"Sweep {sweep.id}", at.sweep_page(sweep.session, sweep.id),
            sweep,
            SweepDerived(
                counts=sweep.counts, reused=sum(cell.reused for cell in sweep.cells),
                held_s=sweep.held_s, busy_s=sweep.busy_s,
            ),
            date=sweep.started.date().isoformat(), status=sweep.status,
        )  # fmt: skip


def day_of(run: Run) -> str:
    """YYYY-MM-DD on which a run began, in the zone that it was recorded in."""
    return run.started.date().isoformat()


def _twin(
    index: Index,
    kind: Kind,
    name: str,
    title: str,
    page: str,
    record: Model,
    derived: Any,
    date: str | None = None,
    status: str | None = None,
) -> Twin:
    mentions = [
        Mentioned(page=at.published(mention.source), why=mention.why)
        for mention in index.mentions.get(page, [])
    ]
    return Twin(
        kind=kind, id=name, title=plain(title), page=at.published(page), twin=at.twin(page),
        date=date, status=status, record=record, derived=derived, mentioned_by=mentions,
    )  # fmt: skip


_COLUMNS = ("minutes", *KINDS)


def _totals(session: SessionCosts) -> list[Sums]:
    totals = []
    for rollup in rollups([session], "session"):
        row = rollup.total
        figures = {column: getattr(row, column) for column in (*_COLUMNS, "total")}
        unknown = [column for column in _COLUMNS if row.unknown.get(column)]
        estimated = bool(row.estimated)
        totals.append(
            Sums(currency=rollup.currency, unknown=unknown, gpu_estimated=estimated, **figures)
        )
    return totals


def _bug(case: BugCase) -> BugDerived:
    return BugDerived(
        session=case.session.id,
        status=case.status,
        open=case.is_open,
        fixed_in=[session.id for session, _ in case.fixes],
        met_again=[_reference(session, bug.id) for session, bug in case.recurrences],
    )


def _reference(session: Session, bug: str) -> str:
    return f"{session.id}#bugs.{bug}"


def _runs(index: Index, **wanted: str) -> list[str]:
    return [run.id for run in index.runs_of(**wanted)]
