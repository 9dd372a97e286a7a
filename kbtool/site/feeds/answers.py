"""How fast each kernel is in every case that was measured, for programs: ``answers.json``, and the
script with the same that the pages of a kernel load."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kbtool.ledger.fastest import RULE, fields
from kbtool.model.kernel import Kernel
from kbtool.model.twin import Answers, MeasuredCase
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.parts import script


def answers(index: Index) -> bytes:
    """``answers.json``: what every kernel has."""
    told = _told(index, index.kernels.values())
    return f"{json.dumps(told, separators=(',', ':'), ensure_ascii=False)}\n".encode()


def scripts(index: Index) -> dict[str, bytes]:
    """For each kernel its part of the answers, and the pages of the runs, as a script."""
    return {
        at.measured_script(kernel.id): script("kbtoolMeasured", _with_pages(index, kernel))
        for kernel in index.kernels.values()
    }


def _told(index: Index, kernels: Iterable[Kernel]) -> dict[str, Any]:
    found = [(kernel, index.measured[kernel.id]) for kernel in kernels]
    every = Answers(
        rule=RULE,
        fields={kernel.id: fields(kernel, results) for kernel, results in found},
        results=[row for _, results in found for row in results],
    )
    told = every.model_dump(mode="json")
    for of, row in zip(every.results, told["results"], strict=True):
        defaults = {field.name: field.default for field in every.fields[of.kernel]}
        row["cases"] = [_short(case, defaults) for case in of.cases]
    return told


def _with_pages(index: Index, kernel: Kernel) -> dict[str, Any]:
    runs = {run for of in index.measured[kernel.id] for run in of.runs}
    pages = {
        run.id: at.published(at.run_page(run.session, run.id))
        for run in index.runs_of(kernel=kernel.id)
        if run.id in runs
    }
    told = {"kernel": kernel.id, "pages": pages, "implementations": kernel.implementations}
    return {**told, **_told(index, [kernel])}


def _short(case: MeasuredCase, defaults: dict[str, Any]) -> dict[str, Any]:
    """A case without what is null, and without the fields that have their defaults."""
    told = case.model_dump(mode="json", exclude_none=True)
    told["case"] = {
        name: value
        for name, value in case.case.items()
        if name not in defaults or value != defaults[name]
    }
    return told
