"""The table of recipes, and the page of each."""

from __future__ import annotations

from kbtool.model.pattern import Pattern
from kbtool.model.recipe import Recipe, StepBase
from kbtool.site import addresses as at
from kbtool.site.escape import block, code, inline, prose
from kbtool.site.index import Index
from kbtool.site.markup import chip, facts, join, nothing, slim_table, table
from kbtool.site.pages.run import rows as run_rows
from kbtool.site.parts import backlinks, crumb, page_title, section


def command(recipe: Recipe, values: dict[str, str] | None = None) -> str:
    """The command that runs a recipe, with these parameters, or with its defaults."""
    from shlex import quote

    bound = {name: spec.default for name, spec in recipe.parameters.items()}
    bound.update(values or {})
    settings = [f"--set {quote(f'{name}={value}')}" for name, value in bound.items()]
    return " ".join([f"kbtool run-recipe {recipe.name}", *settings])


def listing(index: Index) -> str:
    """Every recipe, with the newest run of each."""
    if not index.recipes:
        return join([page_title("Recipes"), nothing(
            "There are no recipes yet: a recipe is part of a pattern's file."
        )])  # fmt: skip
    rows = []
    for name, (pattern, recipe) in index.recipes.items():
        runs = index.runs_of(recipe=name)
        newest = (
            index.link(at.run_page(runs[0].session, runs[0].id), at.RECIPES, code(runs[0].id))
            + f" {chip(runs[0].status)}"
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
    return join([page_title("Recipes"), table(header, rows, {4}), every])


def page(index: Index, pattern: Pattern, recipe: Recipe) -> str:
    """One recipe: parameters, steps, runs."""
    here = at.recipe_page(recipe.name)
    parameters = [
        [
            code(name),
            inline(spec.type),
            code(spec.default),
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
            prose(recipe.about) if recipe.about else None,
            block(command(recipe)),
            section(
                "Parameters", "parameters",
                slim_table(header, parameters) if parameters
                else nothing("The recipe has no parameters."),
            ),
            section("Steps", "steps", steps_table(recipe)),
            section(
                "Runs", "runs",
                run_rows(index, runs, here) if runs
                else nothing("No data because the recipe was never run in this knowledge base."),
            ),
            backlinks(index, here),
        ]
    )  # fmt: skip


def steps_table(recipe: Recipe) -> str:
    """The steps in order, with the time that each should take."""
    rows = [
        [
            str(number),
            inline(step.title),
            code(step.kind),
            inline(step.expected),
            inline(step.timeout),
            inline(", ".join(step.needs)),
            _settings(step),
        ]
        for number, step in enumerate(recipe.steps, 1)
    ]
    header = ["No.", "Step", "Kind", "Expected", "Stopped after", "Needs", "Settings"]
    return slim_table(header, rows, {0, 3, 4})


def _settings(step: StepBase) -> str:
    said = []
    for name in type(step).model_fields:
        value = getattr(step, name)
        if name in StepBase.model_fields or name == "kind" or value in ([], {}, None):
            continue
        shown = value
        if isinstance(value, list):
            shown = " ".join(value)
        elif isinstance(value, dict):
            shown = ", ".join(f"{key} {item}" for key, item in value.items())
        said.append(f"{name.replace('_', ' ')} {code(shown)}")
    return ", ".join(said)
