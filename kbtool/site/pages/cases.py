"""The page of a kernel's manifest: targets, case sets with every case, case fields."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import many
from kbtool.markdown.markup import (
    folded,
    heading,
    join,
    optional,
    slim_table,
    stacked_table,
    yes_no,
)
from kbtool.model.kernel import CaseField, Kernel, Target
from kbtool.site import addresses as at
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.pages.kernel import topics
from kbtool.site.parts import page_title, section


def _pages(source: Source) -> Iterator[Page]:
    for kernel in source.index.kernels.values():
        yield Page(at.cases_page(kernel.id), partial(page, kernel))


PAGES = Pages(_pages)


def page(kernel: Kernel) -> str:
    """The manifest, case by case."""
    here = at.cases_page(kernel.id)
    return join(
        [
            page_title(f"{inline(kernel.title)}: targets and cases"),
            topics(kernel, here),
            section("Targets", "targets", _targets(kernel)),
            section("Case sets", "case-sets", *_case_sets(kernel)),
            section("Case fields", "case-fields", _fields(kernel)),
        ]
    )


def _targets(kernel: Kernel) -> str:
    rows = [
        [
            code(name),
            _sources(target),
            _files(target.headers),
            code(" ".join([*target.flags, *target.cuda_flags, *target.link_flags]) or "none"),
            ", ".join(inline(architecture) for architecture in target.architectures),
        ]
        for name, target in kernel.targets.items()
    ]
    return stacked_table(["Target", "Sources", "Headers", "Flags", "Architectures"], rows)


def _sources(target: Target) -> str:
    groups = {"": target.sources, **target.architecture_sources}
    return " <br>".join(
        (f"only for {inline(architecture)}: " if architecture else "") + _files(sources)
        for architecture, sources in groups.items()
    )


_MANY = 12
"""Files that a cell shows at once."""


def _files(paths: Sequence[str]) -> str:
    """Names of files, folded up where they are many."""
    names = ", ".join(code(path) for path in paths)
    if len(paths) <= _MANY:
        return names
    return f"<details><summary>{len(paths)} files</summary>{names}</details>"


def _case_sets(kernel: Kernel) -> list[str]:
    shown = []
    for name, spec in kernel.case_sets.items():
        count = len(kernel.cases(name))
        shown += [
            heading(3, f"{inline(spec.title)} ({code(name)})", f"case-sets.{name}"),
            optional(spec.about),
            *(
                f"Each case is run with {code(field)} {inline(', '.join(values))}."
                for field, values in spec.for_each.items()
            ),
            folded(many(count, "case"), _case_table(kernel, name)),
        ]
    return shown


def _case_table(kernel: Kernel, name: str) -> str:
    """The cases as written in the manifest, before they are expanded by the values of a field."""
    spec = kernel.case_sets[name]
    fields = [f for f in kernel.case_fields if any(f in raw for raw in spec.cases)]
    times = math.prod(len(values) for values in spec.for_each.values())
    ending = "".join(f" {values[0]}" for values in spec.for_each.values())
    rows = [
        [
            inline(str(case["name"]).removesuffix(ending)),
            *(_value(case[field]) if field in raw else "" for field in fields),
        ]
        for case, raw in zip(kernel.cases(name)[::times], spec.cases, strict=True)
    ]
    return slim_table(["Case", *map(inline, fields)], rows)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return yes_no(value)
    if isinstance(value, list):
        return inline(", ".join(map(str, value)))
    return optional(value)


def _fields(kernel: Kernel) -> str:
    rows = [
        [
            code(name),
            inline(field.type),
            inline("may be absent" if field.default is None else field.default),
            ", ".join(code(choice) for choice in field.choices) or inline(_bounds(field)),
            inline(field.help),
        ]
        for name, field in kernel.case_fields.items()
    ]  # fmt: skip
    return stacked_table(["Field", "Type", "Default", "Values", "What it is"], rows)


def _bounds(field: CaseField) -> str:
    """``1 to 256``, ``from 1``, ``to 256``, ``divides H``, or nothing."""
    least, most = field.minimum, field.maximum
    if least is None:
        span = "" if most is None else f"to {most}"
    else:
        span = f"from {least}" if most is None else f"{least} to {most}"
    return ", ".join(filter(None, (span, field.divides and f"divides {field.divides}")))
