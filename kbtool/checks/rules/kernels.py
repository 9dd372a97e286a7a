"""Kernels have what their manifests, recipes, mutants and ablations name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kbtool.checks.facts import Facts, Location, fact
from kbtool.checks.tree import Rule, Tree
from kbtool.model.edit import edited
from kbtool.model.finding import Finding
from kbtool.store.includes import includes
from kbtool.store.scan import inside

if TYPE_CHECKING:
    from kbtool.model.cheat import Catalogue
    from kbtool.model.kernel import Kernel
    from kbtool.model.pattern import Pattern
    from kbtool.model.recipe import Recipe
    from kbtool.model.session import Session


class RecipeFacts(NamedTuple):
    """A recipe, with the defaults and the choices of its parameters put in."""

    name: str
    location: Location
    kernel: str | None
    case_sets: list[tuple[Location, str]]
    targets: list[tuple[Location, str]]
    paths: list[tuple[Location, str]]
    cases: list[tuple[Location, tuple[str, list[str]]]]
    """Each with the sets, one of whose cases it may name instead of describing one."""


@fact("pattern", RecipeFacts)
def recipes(pattern: Pattern) -> Iterator[RecipeFacts]:
    """The recipes of a pattern."""
    for index, recipe in enumerate(pattern.recipes):
        yield _needs(recipe, index)


@fact("kernel", empty={})
def offers(kernel: Kernel) -> dict[str, list[str]]:
    """What a kernel offers: ``case_sets``, ``cases`` as SET/NAME, ``targets``, ``variants`` as
    TARGET/VARIANT."""
    return {
        "case_sets": list(kernel.case_sets),
        "cases": [
            f"{name}/{case['name']}" for name in kernel.case_sets for case in kernel.cases(name)
        ],
        "targets": list(kernel.targets),
        "variants": [f"{name}/{one}" for name, t in kernel.targets.items() for one in t.variants],
    }


@fact("kernel", empty={})
def bounds(kernel: Kernel) -> dict[str, list[int | float | None]]:
    """Case field → its minimum and its maximum, of those that have one."""
    return {
        name: [field.minimum, field.maximum]
        for name, field in kernel.case_fields.items()
        if field.minimum is not None or field.maximum is not None
    }


@fact("kernel", empty={})
def divisors(kernel: Kernel) -> dict[str, str]:
    """Case field → the field that it divides, of those that divide one."""
    return {name: field.divides for name, field in kernel.case_fields.items() if field.divides}


class NamedFile(NamedTuple):
    """A file that a manifest names, relative to the kernel's folder."""

    location: Location
    path: str


@fact("kernel", NamedFile)
def files(kernel: Kernel) -> Iterator[NamedFile]:
    """The files that a kernel's manifest names."""
    yield NamedFile(["harness"], kernel.harness)
    if kernel.interface is not None:
        yield NamedFile(["interface"], kernel.interface)
    for name, target in kernel.targets.items():
        lists = {"sources": target.sources, "headers": target.headers}
        for key, paths in lists.items():
            for index, path in enumerate(paths):
                yield NamedFile(["targets", name, key, index], path)
        for architecture, paths in target.architecture_sources.items():
            for index, path in enumerate(paths):
                place: Location = ["targets", name, "architecture_sources", architecture, index]
                yield NamedFile(place, path)


class MutantFacts(NamedTuple):
    """An edit that puts a bug back."""

    location: Location
    id: str
    kernel: str
    target: str
    variant: str | None
    file: str
    find: str


@fact("session", MutantFacts)
def mutants(session: Session) -> Iterator[MutantFacts]:
    """The mutants of a session's bugs."""
    for at, bug in enumerate(session.bugs):
        for index, mutant in enumerate(bug.mutants):
            edit = (getattr(mutant, key) for key in MutantFacts._fields[1:])
            yield MutantFacts(["bugs", at, "mutants", index], *edit)


class AblationFacts(NamedTuple):
    """Edits that take a technique out of a kernel."""

    location: Location
    id: str
    kernel: str
    target: str
    edits: list[tuple[str, str]]
    """The file of each, and the text to find."""
    cases: list[str]


@fact("pattern", AblationFacts)
def ablations(pattern: Pattern) -> Iterator[AblationFacts]:
    """The ablations of a pattern."""
    for index, one in enumerate(pattern.ablations):
        edits = [(edit.file, edit.find) for edit in one.edits]
        location: Location = ["ablations", index]
        yield AblationFacts(location, one.id, one.kernel, one.target, edits, one.cases)


class PlaceFacts(NamedTuple):
    """A place in the sources where a pattern stands."""

    location: Location
    commit: str | None
    kernel: str | None
    file: str
    text: str


@fact("pattern", PlaceFacts)
def places(pattern: Pattern) -> Iterator[PlaceFacts]:
    """Where a pattern stands."""
    for index, one in enumerate(pattern.places):
        yield PlaceFacts(["places", index], one.commit, one.kernel, one.file, one.text)


class CheatFacts(NamedTuple):
    """An edit of a kernel's catalogue of cheats."""

    location: Location
    file: str
    find: str


@fact("cheats", CheatFacts)
def cheats(catalogue: Catalogue) -> Iterator[CheatFacts]:
    """The edits of a catalogue."""
    for index, cheat in enumerate(catalogue.cheats):
        yield CheatFacts(["cheats", index], cheat.file, cheat.find)


def recipes_name_what_is_there(tree: Tree) -> Iterator[Finding]:
    """A recipe's kernel is in the knowledge base and has its targets, case sets and cases; a case
    that it describes is within the bounds of the kernel's fields."""
    for facts in tree.patterns.values():
        for recipe in recipes.of(facts):
            if recipe.kernel is None:
                continue
            kernel = tree.kernels.get(recipe.kernel)
            if kernel is None:
                known = ", ".join(sorted(tree.kernels)) or "none"
                message = f"there is no kernel {recipe.kernel!r}; the kernels are {known}"
                yield tree.at(facts, [*recipe.location, "kernel"], "recipe", message)
                continue
            if not kernel.valid:
                continue
            for location, name in recipe.case_sets:
                if name not in offers.of(kernel)["case_sets"]:
                    known = ", ".join(offers.of(kernel)["case_sets"])
                    message = f"kernel {kernel.id} has no case set {name!r}; it has {known}"
                    yield tree.at(facts, location, "recipe", message)
            for location, name in recipe.targets:
                if name != "auto" and name not in offers.of(kernel)["targets"]:
                    known = ", ".join(["auto", *offers.of(kernel)["targets"]])
                    message = f"kernel {kernel.id} has no target {name!r}; it has {known}"
                    yield tree.at(facts, location, "recipe", message)
            for location, (case, case_sets) in recipe.cases:
                problem = _cannot_take(tree, kernel, case, case_sets)
                if problem is not None:
                    yield tree.at(facts, location, "recipe", problem)


def _cannot_take(tree: Tree, kernel: Facts, case: str, case_sets: list[str]) -> str | None:
    """Why a step cannot take a case, or ``None``. The manifest is read: few recipes fix a case."""
    from kbtool.model.kernel import Kernel
    from kbtool.store.tree import load_record

    loaded = load_record(Path(tree.root, kernel.path), kernel.path, Kernel)
    if isinstance(loaded, list):
        return None  # it has changed meanwhile
    sets = [name for name in case_sets if name in loaded.record.case_sets]
    if any(one["name"] == case for name in sets for one in loaded.record.cases(name)):
        return None
    try:
        loaded.record.case_from(case)
    except ValueError as error:
        return f"{error}; and no case of {', '.join(case_sets)} has that name"
    return None


def commands_stay_inside(tree: Tree) -> Iterator[Finding]:
    """A command step runs, and leaves its products, inside the knowledge base."""
    root = os.path.realpath(tree.root)
    for facts in tree.patterns.values():
        for recipe in recipes.of(facts):
            for location, path in recipe.paths:
                if not _stays(root, path):
                    yield tree.at(facts, location, "path", _LEAVES.format(path, "knowledge base"))


def manifests_name_files(tree: Tree) -> Iterator[Finding]:
    """Every file that a kernel's manifest names is there, inside the kernel's own folder."""
    for facts in tree.kernels.values():
        folder = os.path.realpath(os.path.join(tree.root, os.path.dirname(facts.path)))  # noqa: PTH118, PTH120
        problems: dict[str, tuple[str, str] | None] = {}
        for location, path in files.of(facts):
            if path not in problems:
                problems[path] = _not_there(folder, path)
            if (problem := problems[path]) is not None:
                yield tree.at(facts, location, *problem)


def _not_there(folder: str, path: str) -> tuple[str, str] | None:
    """Rule and message of a file that is not in the kernel's folder."""
    if not _stays(folder, path):
        return "path", _LEAVES.format(path, "kernel's folder")
    if not os.path.isfile(os.path.join(folder, path)):  # noqa: PTH113, PTH118
        return "manifest", f"there is no file {path!r} in the kernel's folder"
    return None


def manifests_list_what_is_included(tree: Tree) -> Iterator[Finding]:
    """Every file of a kernel's folder that a source or header of a target includes is listed by
    that target: a build is named by a hash of what the manifest lists."""
    for facts in tree.kernels.values():
        folder = os.path.join(tree.root, os.path.dirname(facts.path))  # noqa: PTH118, PTH120
        real_folder = os.path.realpath(folder)
        for target in offers.of(facts).get("targets", ()):
            named = dict.fromkeys(
                path for location, path in files.of(facts) if location[:2] == ["targets", target]
            )
            listed = {os.path.normpath(path): path for path in named if _stays(real_folder, path)}
            for name, path in listed.items():
                try:
                    with open(os.path.join(folder, path), "rb") as file:  # noqa: PTH118, PTH123
                        text = file.read()
                except OSError:
                    continue  # the rule before this one tells
                for included in includes(name, text, listed, folder):
                    if included is not None and included not in listed:
                        yield tree.at(
                            facts, ["targets", target, "headers"], "manifest",
                            f"{name} includes {included}, which target {target} does not list;"
                            " add it to the target's headers",
                        )  # fmt: skip


def mutants_edit_what_is_there(tree: Tree) -> Iterator[Finding]:
    """The text that a mutant replaces occurs exactly once in a source or header of its kernel's
    target; the target has the mutant's variant; mutant ids are unique."""
    seen: dict[str, str] = {}
    for facts in tree.sessions.values():
        for mutant in mutants.of(facts):
            if mutant.id in seen:
                message = (
                    f"{seen[mutant.id]} already has a mutant {mutant.id!r}; rename one of them"
                )
                yield tree.at(facts, [*mutant.location, "id"], "unique", message)
            seen.setdefault(mutant.id, facts.path)
            problem = _cannot_edit(tree, mutant)
            if problem is not None:
                key, message = problem
                yield tree.at(facts, [*mutant.location, key], "mutant", message)


def ablations_edit_what_is_there(tree: Tree) -> Iterator[Finding]:
    """The texts that an ablation replaces occur exactly once in a source or header of its kernel's
    target, or in the manifest; the kernel has its cases; ablation ids are unique."""
    seen: dict[str, str] = {}
    for facts in tree.patterns.values():
        for one in ablations.of(facts):
            if one.id in seen:
                message = f"{seen[one.id]} already has an ablation {one.id!r}; rename one of them"
                yield tree.at(facts, [*one.location, "id"], "unique", message)
            seen.setdefault(one.id, facts.path)
            for index, (file, find) in enumerate(one.edits):
                edit = MutantFacts([], one.id, one.kernel, one.target, None, file, find)
                problem = _cannot_edit(tree, edit, ("kernel.yaml",))
                if problem is not None:
                    key, message = problem
                    place = [key] if key in {"kernel", "target"} else ["edits", index, key]
                    yield tree.at(facts, [*one.location, *place], "ablation", message)
            kernel = tree.kernels.get(one.kernel)
            if kernel is None or not kernel.valid:
                continue
            for index, case in enumerate(one.cases):
                name = case.partition("/")[0]
                if name not in offers.of(kernel)["case_sets"]:
                    known = ", ".join(offers.of(kernel)["case_sets"])
                    message = f"kernel {kernel.id} has no case set {name!r}; it has {known}"
                elif case not in offers.of(kernel)["cases"]:
                    message = f"kernel {kernel.id} has no case {case!r}; write SET/NAME"
                else:
                    continue
                yield tree.at(facts, [*one.location, "cases", index], "ablation", message)


def places_are_there(tree: Tree) -> Iterator[Finding]:
    """The text that a pattern names occurs exactly once in its file of the kernel's folder or of
    the repository, as it is or as it was in a commit. In a shallow clone and without git nothing
    is said of commits."""
    every = [(facts, place) for facts in tree.patterns.values() for place in places.of(facts)]
    past = [place.commit for _, place in every if place.commit is not None]
    known: Mapping[str, bool] = {}
    if past:
        from kbtool.store.history import commits_known

        known = commits_known(tree.root, past)
    for facts, place in every:
        kernel = tree.kernels.get(place.kernel) if place.kernel is not None else None
        if kernel is None and place.kernel is not None:
            names = ", ".join(sorted(tree.kernels)) or "none"
            message = f"there is no kernel {place.kernel!r}; the kernels are {names}"
            yield tree.at(facts, [*place.location, "kernel"], "place", message)
            continue
        folder = os.path.dirname(kernel.path) if kernel else ""  # noqa: PTH120
        if place.commit is not None:
            problem = _not_once_in(tree.root, known, folder, place)
        else:
            whose = "kernel's folder" if kernel else "repository"
            problem = _not_once(os.path.join(tree.root, folder), place.file, place.text, whose)  # noqa: PTH118
        if problem:
            key, rule, message = problem
            key = "text" if key == "find" else key
            yield tree.at(facts, [*place.location, key], rule or "place", message)


def _not_once_in(
    root: str, known: Mapping[str, bool], folder: str, place: PlaceFacts
) -> tuple[str, str | None, str] | None:
    """Why a text does not stand exactly once in a file of a commit, or ``None``."""
    from kbtool.store.history import file_at

    if not _stays(os.path.realpath(os.path.join(root, folder)), place.file):  # noqa: PTH118
        return "file", "path", _LEAVES.format(place.file, "repository")
    commit = place.commit or ""
    if commit not in known:
        return None
    if not known[commit]:
        return "commit", None, f"no branch or tag of this repository has commit {commit[:12]}"
    text = file_at(root, commit, f"{folder}/{place.file}" if folder else place.file)
    if text is None:
        return "file", None, f"commit {commit[:12]} has no file {place.file!r}"
    try:
        edited(text, place.text, "")
    except ValueError as error:
        return "find", None, f"{place.file} of commit {commit[:12]}: {error}"
    return None


def cheats_edit_what_is_there(tree: Tree) -> Iterator[Finding]:
    """The text that an edit of a kernel's cheats.yaml replaces occurs exactly once in a file of the
    kernel's folder."""
    for facts in tree.facts:
        folder = os.path.join(tree.root, os.path.dirname(facts.path))  # noqa: PTH118, PTH120
        for cheat in cheats.of(facts):
            if problem := _not_once(folder, cheat.file, cheat.find):
                key, rule, message = problem
                yield tree.at(facts, [*cheat.location, key], rule or "cheat", message)


def _not_once(
    folder: str, path: str, text: str, whose: str = "kernel's folder"
) -> tuple[str, str | None, str] | None:
    """Why ``text`` does not stand exactly once in a file of a folder, or ``None``.

    Returns:
        ``file`` or ``find``, whichever is wrong; the rule, if it is not the caller's; the message.
    """
    if not _stays(os.path.realpath(folder), path):
        return "file", "path", _LEAVES.format(path, whose)
    try:
        with open(os.path.join(folder, path), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            edited(file.read(), text, "")
    except (OSError, ValueError) as error:
        return "find", None, f"{path}: {error}"
    return None


def _cannot_edit(
    tree: Tree, mutant: MutantFacts, more: tuple[str, ...] = ()
) -> tuple[str, str] | None:
    """The key of an edit that is wrong, and what is wrong with it, or ``None``.

    Args:
        tree: the knowledge base.
        mutant: the edit.
        more: files that it may edit besides sources and headers of the target.
    """
    kernel = tree.kernels.get(mutant.kernel)
    if kernel is None:
        known = ", ".join(sorted(tree.kernels)) or "none"
        return "kernel", f"there is no kernel {mutant.kernel!r}; the kernels are {known}"
    if not kernel.valid:
        return None
    if mutant.target not in offers.of(kernel)["targets"]:
        known = ", ".join(offers.of(kernel)["targets"])
        return "target", f"kernel {kernel.id} has no target {mutant.target!r}; it has {known}"
    variant = f"{mutant.target}/{mutant.variant}"
    if mutant.variant is not None and variant not in offers.of(kernel)["variants"]:
        known = ", ".join(offers.of(kernel)["variants"]) or "none"
        return "variant", f"kernel {kernel.id} has no variant {variant}; it has {known}"
    listed = (f for at, f in files.of(kernel) if at[:2] == ["targets", mutant.target])
    if mutant.file not in (*more, *listed):
        return "file", f"{mutant.file!r} is not a source or header of target {mutant.target}"
    try:
        path = os.path.join(tree.root, os.path.dirname(kernel.path), mutant.file)  # noqa: PTH118, PTH120
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            edited(file.read(), mutant.find, "")
    except OSError:
        return None  # the manifest's own finding
    except ValueError as error:
        return "find", f"{mutant.file}: {error}"
    return None


def _stays(folder: str, path: str) -> bool:
    """Whether ``path``, relative, with links followed, stays in ``folder``."""
    if not path or "\0" in path or path.startswith(("/", "~")) or "\\" in path:
        return False
    return inside(folder, os.path.join(folder, path))  # noqa: PTH118


_LEAVES = "{!r} leaves the {}; write a relative path that stays inside"


_CASE_SETS = {"case_sets", "case_set", "profile"}
"""Fields of steps that name case sets, whatever the kind of step."""


def _needs(recipe: Recipe, index: int) -> RecipeFacts:
    """What a recipe needs for any choice of its parameters."""
    from kbtool.model.kinds.base import names_in

    facts = RecipeFacts(recipe.name, ["recipes", index], recipe.kernel, [], [], [], [])
    lists: tuple[list[Any], ...] = (facts.case_sets, facts.targets, facts.paths, facts.cases)
    for bound in _bindings(recipe):
        for place, step in enumerate(bound.steps):
            where = ["recipes", index, "steps", place]
            needed: tuple[list[Any], ...] = ([], [], [], [])
            for key in _CASE_SETS & type(step).model_fields.keys():
                names = names_in(getattr(step, key))
                needed[0].extend(([*where, key], name) for name in names)
            if case := getattr(step, "case", ""):
                case_sets = [name for _, name in needed[0]]
                needed[3].append(([*where, "case"], (case, case_sets)))
            if step.kind == "build":
                needed[1].append(([*where, "target"], step.target))
            elif step.kind == "command":
                needed[2].append(([*where, "cwd"], step.cwd))
                needed[2].extend(
                    ([*where, "produces", i], path) for i, path in enumerate(step.produces)
                )
            for known, new in zip(lists, needed, strict=True):
                known.extend(new)
    for known in lists:
        # Bindings that leave a step as it is need the same of it.
        known[:] = {repr(item): item for item in known}.values()
    return facts


def _bindings(recipe: Recipe) -> list[Recipe]:
    """The recipe with its defaults, then with each other choice of each parameter."""
    bound = [recipe]
    for name, parameter in recipe.parameters.items():
        for choice in parameter.choices:
            if choice != parameter.default:
                try:
                    bound.append(recipe.bind({name: choice})[0])
                except ValueError:
                    continue  # told when it is run; the defaults at least are sound
    return bound


RULES: tuple[Rule, ...] = (
    recipes_name_what_is_there,
    commands_stay_inside,
    manifests_name_files,
    manifests_list_what_is_included,
    mutants_edit_what_is_there,
    ablations_edit_what_is_there,
    places_are_there,
    cheats_edit_what_is_there,
)
