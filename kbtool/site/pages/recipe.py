"""The table of recipes, and the page of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

from kbtool.markdown.escape import block, code, inline, prose
from kbtool.markdown.figures import many, seconds
from kbtool.markdown.markup import (
    chip,
    facts,
    join,
    muted,
    nothing,
    stacked_table,
)
from kbtool.model.excuses import Forgotten
from kbtool.model.kinds.base import StepBase
from kbtool.model.pattern import Pattern
from kbtool.model.recipe import Recipe
from kbtool.model.run import MachineInfo, Run
from kbtool.runner.history import PAST_RUNS, place, seconds_taken
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.base import Page, Pages, Source
from kbtool.site.pages.run import rows as run_rows
from kbtool.site.parts import backlinks, crumb, page_title, section
from kbtool.store.scan import EXCUSES


def _pages(source: Source) -> Iterator[Page]:
    index = source.index
    yield Page(at.RECIPES, partial(listing, index))
    for pattern, recipe in index.recipes.values():
        yield Page(at.recipe_page(recipe.name), partial(page, index, pattern, recipe))
    for name in index.forgotten.keys() - index.recipes.keys():
        yield Page(at.recipe_page(name), partial(gone, index, name))


PAGES = Pages(_pages, at.RECIPES, "Recipes")


def command(recipe: Recipe) -> str:
    """The command that runs a recipe with its defaults; its parameters have a table."""
    return f"kbtool run-recipe {recipe.name}"


def listing(index: Index) -> str:
    """Every recipe, with the newest run of each."""
    if not index.recipes:
        return join([page_title("Recipes"), nothing(
            "There are no recipes: a recipe is part of a pattern's file."
        ), _forgotten(index)])  # fmt: skip
    rows = []
    for name, (pattern, recipe) in index.recipes.items():
        runs = index.runs_of(recipe=name)
        newest = (
            index.run_link(runs[0], at.RECIPES) + f" {chip(runs[0].outcome)}"
            if runs
            else "never run"
        )
        rows.append(
            [
                index.link(at.recipe_page(name), at.RECIPES, inline(name)),
                inline(recipe.title),
                index.link(at.pattern_page(pattern.id), at.RECIPES),
                index.link(at.kernel_page(recipe.kernel), at.RECIPES) if recipe.kernel else "–",
                str(len(recipe.steps)),
                newest,
            ]
        )
    header = ["Recipe", "What it achieves", "Pattern", "Kernel", "Steps", "Newest run"]
    every = f"[Every run]({at.relative(at.RUNS, at.RECIPES)}), newest first."
    about = (
        "A recipe is a procedure that kbtool runs step by step: `kbtool run-recipe NAME`, and with"
        " `--dry-run` it only says what it would do. Each belongs to a pattern."
    )
    return join(
        [page_title("Recipes"), about, stacked_table(header, rows, {4}), every, _forgotten(index)]
    )


def _forgotten(index: Index) -> str | None:
    """The recipes that were deleted, the last one first."""
    if not index.forgotten:
        return None
    entries = [one for entries in index.forgotten.values() for one in entries]
    rows = [
        [
            index.link(at.recipe_page(one.recipe), at.RECIPES, inline(one.recipe)),
            inline(one.title or ""),
            inline(one.at.day),
            inline(one.reason),
            str(len(_runs_of(index, one))),
        ]
        for one in sorted(entries, key=lambda one: one.at.day, reverse=True)
    ]
    header = ["Recipe", "What it achieved", "Forgotten on", "Why", "Runs"]
    return section("Forgotten recipes", "forgotten", stacked_table(header, rows, {4}))


def _runs_of(index: Index, one: Forgotten) -> list[Run]:
    """The runs of a recipe that was forgotten, newest first."""
    return [run for run in index.runs_of(recipe=one.recipe) if run.pattern in one.patterns]


def gone(index: Index, name: str) -> str:
    """A recipe that was deleted: when, why, and its runs."""
    here = at.recipe_page(name)
    entries = index.forgotten[name]
    runs = index.runs_of(recipe=name)
    return join(
        [
            page_title(inline(entries[-1].title or name)),
            f"<small>{at.link('Recipes', at.RECIPES, here)} › {code(name)}"
            f" · {code(f'sessions/{EXCUSES}')}</small>",
            *(_was_forgotten(index, one, here) for one in entries),
            _runs_section(index, runs, here),
            backlinks(index, here),
        ]
    )  # fmt: skip


def _was_forgotten(index: Index, one: Forgotten, here: str) -> str:
    patterns = (index.link(at.pattern_page(id_), here) for id_ in one.patterns)
    kernels = (index.link(at.kernel_page(id_), here) for id_ in one.kernels)
    return facts(
        [
            ("Forgotten", inline(str(one.at))),
            ("Why", inline(one.reason)),
            ("Pattern", ", ".join(patterns)),
            ("Kernel", ", ".join(kernels)),
        ]
    )


_TYPES = {"str": "text", "int": "whole number", "bool": "true or false", "float": "number"}
"""Types of parameters in the words that the pages of schemas have for them."""


def page(index: Index, pattern: Pattern, recipe: Recipe) -> str:
    """One recipe: parameters, steps, runs."""
    here = at.recipe_page(recipe.name)
    parameters = [
        [
            code(name),
            _TYPES.get(spec.type, inline(spec.type)),
            code(spec.default) if spec.default else "empty",
            ", ".join(code(choice) for choice in spec.choices),
            inline(spec.help),
        ]
        for name, spec in recipe.parameters.items()
    ]
    header = ["Parameter", "Type", "Default", "Choices", "What it sets"]
    runs = index.runs_of(recipe=recipe.name)
    return join(
        [
            page_title(inline(recipe.title)),
            crumb(here, at.RECIPES, "Recipes", recipe.name, index.base.patterns[pattern.id].path),
            facts(
                [
                    ("Recipe", code(recipe.name)),
                    ("Pattern", index.link(at.pattern_page(pattern.id), here)),
                    (
                        "Kernel",
                        index.link(at.kernel_page(recipe.kernel), here) if recipe.kernel else "",
                    ),
                    ("Runs", f"[{len(runs)}](#runs)"),
                ]
            ),
            *(
                join([muted("An earlier recipe of this name was forgotten:"),
                      _was_forgotten(index, one, here)])
                for one in index.forgotten.get(recipe.name, ())
            ),
            prose(recipe.about) if recipe.about else None,
            block(command(recipe)),
            section(
                "Parameters", "parameters",
                stacked_table(header, parameters) if parameters
                else nothing("The recipe has no parameters."),
                f"To set one: {code('--set NAME=VALUE')}." if parameters else None,
            ),
            section("Steps", "steps", *steps(index, recipe, settings=True)),
            _runs_section(index, runs, here),
            backlinks(index, here),
        ]
    )  # fmt: skip


_NEWEST = 50
"""How many runs a recipe's page lists."""


def _runs_section(index: Index, runs: list[Run], here: str) -> str:
    return section(
        "Runs", "runs",
        f"The newest {_NEWEST} of {len(runs)}; [every run]({at.relative(at.RUNS, here)})."
        if len(runs) > _NEWEST else None,
        run_rows(index, runs[:_NEWEST], here) if runs
        else nothing("No data because the recipe was never run in this knowledge base."),
    )  # fmt: skip


_MACHINES = 3
"""The most machines with a column in the table of steps."""


class History(NamedTuple):
    """The runs of a recipe on one machine with the parameters of the newest of them."""

    machine: MachineInfo
    runs: list[Run]


def histories(index: Index, recipe: Recipe) -> list[History]:
    """The runs from which the next run on each machine takes its expected times; the machine that
    ran last comes first."""
    found: dict[object, History] = {}
    for attempts in index.runs.values():
        newest = attempts[-1]
        if newest.recipe != recipe.name:
            continue
        known = found.setdefault(place(newest.machine), History(newest.machine, []))
        if not known.runs or newest.parameters == known.runs[0].parameters:
            known.runs.extend(reversed(attempts))
    return [one._replace(runs=one.runs[:PAST_RUNS]) for one in found.values()]


def steps(index: Index, recipe: Recipe, *, settings: bool) -> list[str]:
    """The steps in order, with their expected times: as declared, and from past runs.

    Args:
        index: the records.
        recipe: the recipe.
        settings: whether to show the settings and needs of each step.
    """
    past = histories(index, recipe)[:_MACHINES]
    seconds = [[seconds_taken(step, one.runs) for step in recipe.steps] for one in past]
    shown = [at for at, times in enumerate(seconds) if any(times)]
    names = _names([one.machine for one in past])
    rows = [
        [
            str(number + 1),
            inline(step.title),
            code(step.kind),
            inline(step.expected),
            *(_median(seconds[at][number]) for at in shown),
            *([inline(step.timeout), inline(", ".join(step.needs)), _settings(step)] * settings),
        ]
        for number, step in enumerate(recipe.steps)
    ]
    header = [
        "No.", "Step", "Kind", "Declared", *(f"Took on {names[at]}" for at in shown),
        *(["Stopped after", "Needs", "Settings"] * settings),
    ]  # fmt: skip
    numeric = {0, *range(3, 5 + len(shown))}
    return [stacked_table(header, rows, numeric), _basis(bool(past), bool(shown))]


def _names(machines: Sequence[MachineInfo]) -> list[str]:
    """Machines by card and cores, and by processor if those are the same."""
    names = [f"{inline(one.card or one.cpu)}, {many(one.cores, 'core')}" for one in machines]
    return [
        name if names.count(name) == 1 else f"{name}, {inline(one.cpu)}"
        for name, one in zip(names, machines, strict=True)
    ]


def _median(times: Sequence[float]) -> str:
    return f"{seconds(median(times))} {muted(f'n = {len(times)}')}" if times else ""


def _basis(ran: bool, timed: bool) -> str:
    """The basis of the expected times."""
    if timed:
        return muted(
            "Took: the median over the newest runs on that machine with the same parameters, which"
            " the next run there will expect; builds that found an existing library do not count."
        )
    why = "no run of it finished a step" if ran else "it was never run here"
    return nothing(f"The times are those that the recipe declares, because {why}.")


def _settings(step: StepBase) -> str:
    settings = []
    for name in type(step).model_fields:
        value = getattr(step, name)
        if name in StepBase.model_fields or name == "kind" or value in ("", [], {}, None):
            continue
        shown = value
        if isinstance(value, list):
            shown = " ".join(value)
        elif isinstance(value, dict):
            shown = ", ".join(f"{key} {item}" for key, item in value.items())
        settings.append(f"{name.replace('_', ' ')} {code(shown)}")
    return f'<span class="kb-wrap">{", ".join(settings)}</span>' if settings else ""
