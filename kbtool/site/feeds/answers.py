"""How fast each kernel is in every case that was measured, for programs: rows of ``answers.json``
and of a kernel's twin, by the rule of ``ledger.headline``."""

from __future__ import annotations

from collections.abc import Iterator

from kbtool.ledger.headline import Headline, headlines
from kbtool.ledger.measured import Machine, groups
from kbtool.model.kernel import Kernel
from kbtool.model.twin import Answers, MeasuredCase, MeasuredSet
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.run import commands


def answers(index: Index) -> bytes:
    """``answers.json``: what every kernel has."""
    every = Answers(
        results=[row for kernel in index.kernels.values() for row in measured(index, kernel)]
    )
    return f"{every.model_dump_json()}\n".encode()


def measured(index: Index, kernel: Kernel) -> Iterator[MeasuredSet]:
    """The case sets of a kernel that a quiet run timed, by machine and element type."""
    for machine, every in groups(index.runs_of(kernel=kernel.id), kernel).items():
        for one in headlines(every):
            if not one.newest.noise_reason:
                yield _set(index, kernel, machine, one)


def _set(index: Index, kernel: Kernel, machine: Machine, one: Headline) -> MeasuredSet:
    newest, leading = one.newest, one.leading
    best = leading.best if leading else {}
    cases = [
        MeasuredCase(
            name=case.name,
            case=case.case,
            us=case.arms[newest.subject].median_us,
            between_us=case.arms[newest.subject].between_us,
            best_peer=best[case.name][0] if case.name in best else None,
            ratio=best[case.name][1] if case.name in best else None,
        )
        for case in one.cases
    ]
    measure = None if leading is None else "between" if one.between else "chain"
    return MeasuredSet(
        kernel=kernel.id,
        page=at.published(at.topic_page(kernel.id, "results")),
        target=machine.target,
        machine=machine.name,
        case_set=newest.case_set,
        dtype=newest.dtype,
        commit=newest.run.repository.commit,
        runs=[group.run.id for group in one.pooled],
        commands=commands(index, newest.run) if newest.run.recipe else [],
        measure=measure,
        mean=leading.mean if leading else None,
        least=leading.least if leading else None,
        lost=leading.lost if leading else None,
        against=one.against,
        cases=cases,
    )
