"""A kernel's manifest: what recipes build, validate and benchmark."""

from __future__ import annotations

import fnmatch
import itertools
import keyword
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from kbtool.model.base import MAX_NAME, KernelId, Model, Name, Slug, Title, Whole

CaseValue = Whole | float | bool | str | list[Whole] | None
Case = dict[str, CaseValue]
"""Field → value, and the case's name."""
GIVEN = "given"
"""The case set, so to speak, of a case that is given as text."""


def without_name(case: Mapping[str, Any]) -> dict[str, Any]:
    """What a case says of its inputs."""
    return {key: value for key, value in case.items() if key != "name"}


class Variant(Model):
    """A version of the kernel that a target offers beside others."""

    architectures: list[str] = []
    """CUDA architectures whose builds have it; all of the target's where empty."""
    not_taken: dict[str, list[str]] = {}
    """Case field → values that it does not take, `*` for any but an absent one; beside those of the
    target."""


class Specialisation(Model):
    """A part of a target that is built in less time than all of it."""

    without: Annotated[list[str], Field(min_length=1)]
    """Patterns of sources that are left out. The kernel has to say so where one is called for."""
    only: dict[str, list[str]]
    """Case field → the values that what is left takes; other cases are left out, and counted."""

    def left_of(self, sources: Sequence[str]) -> list[str]:
        """The sources that are built."""
        return [s for s in sources if not any(fnmatch.fnmatch(s, one) for one in self.without)]


Device = Literal["cpu", "cuda"]
Package = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Target(Model):
    """One solution of the problem: a library for the CPU or for CUDA, or Python modules."""

    sources: Annotated[list[str], Field(min_length=1)]
    """Its C++, CUDA or Python files, inside the kernel's folder; listed, never globbed. C++ and
    CUDA are compiled into a library. Python files are imported in this order, each under its name:
    what one imports from another stands before it."""
    commands: list[Annotated[str, Field(min_length=1)]] = []
    """Programs that build the library in kbtool's place, run without a shell: CMake, make. They run
    in a build folder; `../sources` holds the listed sources and headers and nothing else."""
    produces: str = ""
    """The library that they make, relative to the build folder."""
    device: Device | None = None
    """Where it runs. Default: cuda for a target of that name or with architectures, else cpu."""
    packages: list[Package] = []
    """Installed packages that it needs, such as triton; their versions belong to its hash."""
    env: dict[str, str] = {}
    """Environment variables of the process that runs it."""
    headers: list[str] = []
    """Headers that the sources include; they belong to the artifact's hash."""
    flags: list[str] = []
    """Flags of the C++ compiler, beyond the builder's own."""
    cuda_flags: list[str] = []
    """Flags of nvcc, beyond the builder's own."""
    architectures: list[str] = []
    """CUDA architectures that compile: sm_80, sm_90a. Every source sees KBTOOL_ARCH_SM_80 defined
    in a build for sm_80, and so on."""
    architecture_sources: dict[str, Annotated[list[str], Field(min_length=1)]] = {}
    """CUDA architecture → sources that only a build for it compiles, beside `sources`."""
    link_flags: list[str] = []
    """Flags of the linker, beyond the builder's own."""
    not_taken: dict[str, list[str]] = {}
    """Case field → values that this target does not take, `*` for any but an absent one; such cases
    are left out, and counted."""
    variants: dict[Slug, Variant] = {}
    """The versions that can be asked for by name, simplest first."""
    specialisations: dict[Slug, Specialisation] = {}
    """The parts that can be built alone."""
    only: dict[str, list[str]] = {}
    """Case field → the values that it takes, of a field of which it takes few."""

    @property
    def compiled(self) -> bool:
        """Whether there is a library to build."""
        return bool(self.commands) or len(self.modules) < len(self.sources)

    @property
    def modules(self) -> list[str]:
        """The sources that are imported."""
        return [source for source in self.sources if is_python(source)]

    def takes(self, case: Mapping[str, CaseValue], variant: str | None = None) -> bool:
        """Whether this target, or one variant of it, can run ``case``."""
        refusals = [self.not_taken]
        if variant is not None:
            refusals.append(self.variants[variant].not_taken)
        return all(str(case.get(field)) in values for field, values in self.only.items()) and all(
            str(case.get(field)) not in values and ("*" not in values or case.get(field) is None)
            for refused in refusals
            for field, values in refused.items()
        )

    def variants_for(self, architecture: str) -> list[str]:
        """The variants that a build for ``architecture`` has."""
        return [
            name
            for name, variant in self.variants.items()
            if not variant.architectures or architecture in variant.architectures
        ]

    def sources_for(self, architecture: str) -> list[str]:
        """The sources that a build for ``architecture`` compiles."""
        return [*self.sources, *self.architecture_sources.get(architecture, [])]

    def specialised(self, name: str) -> Target:
        """The target that builds one of its specialisations alone."""
        part = self.specialisations[name]
        of_architectures = {
            architecture: part.left_of(sources)
            for architecture, sources in self.architecture_sources.items()
        }
        return self.model_copy(
            update={
                "sources": part.left_of(self.sources),
                "architecture_sources": {a: left for a, left in of_architectures.items() if left},
                "only": {**self.only, **part.only},
                "specialisations": {},
            }
        )

    @model_validator(mode="after")
    def _specialisations_leave_sources(self) -> Self:
        everything = [*self.sources, *itertools.chain(*self.architecture_sources.values())]
        for name, part in self.specialisations.items():
            for pattern in part.without:
                if not fnmatch.filter(everything, pattern):
                    raise ValueError(f"specialisations.{name}: no source is named like {pattern!r}")
            if not part.left_of(self.sources):
                raise ValueError(f"specialisations.{name}: no source is left")
        return self

    @model_validator(mode="after")
    def _commands_produce(self) -> Self:
        if bool(self.commands) != bool(self.produces):
            raise ValueError("commands and produces belong together: the library that they make")
        path = PurePosixPath(self.produces)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"produces: {self.produces!r} is not inside the build folder")
        for command in self.commands:
            try:
                shlex.split(command)
            except ValueError as error:
                raise ValueError(f"commands: {command!r}: {error}") from None
        for name in ("flags", "cuda_flags", "link_flags", "specialisations"):
            if self.commands and getattr(self, name):
                raise ValueError(f"{name}: the commands build; give it to them")
        return self

    @model_validator(mode="after")
    def _modules_have_names(self) -> Self:
        for of_card in self.architecture_sources.values():
            if any(map(is_python, of_card)):
                raise ValueError("architecture_sources: a Python file belongs into sources")
        names = [PurePosixPath(source).stem for source in self.modules]
        for source, name in zip(self.modules, names, strict=True):
            if not name.isidentifier() or keyword.iskeyword(name):
                raise ValueError(f"sources: {source!r} cannot be imported: no module has its name")
            if names.count(name) > 1:
                raise ValueError(f"sources: two modules are called {name!r}")
        return self

    @model_validator(mode="after")
    def _architecture_sources_are_for_architectures(self) -> Self:
        named = {"architecture_sources": list(self.architecture_sources)}
        for name, variant in self.variants.items():
            named[f"variants.{name}.architectures"] = variant.architectures
        for place, architectures in named.items():
            unknown = [one for one in architectures if one not in self.architectures]
            if unknown:
                known = ", ".join(self.architectures) or "none"
                raise ValueError(
                    f"{place}: {unknown[0]!r} is none of architectures; there is {known}"
                )
        for sources in self.architecture_sources.values():
            twice = sorted(set(sources) & set(self.sources))
            if twice:
                raise ValueError(
                    f"architecture_sources: {twice[0]!r} is among sources too, which every build"
                    " compiles; leave it out of one"
                )
        return self


def is_python(source: str) -> bool:
    """Whether ``source`` is imported, not compiled."""
    return source.endswith(".py")


Bound = Whole | Annotated[float, Field(allow_inf_nan=False)]
_NUMBERS = ("int", "float", "ints")


def numbers_in(value: object) -> list[int | float]:
    """The number that a value of a case is, or those that it lists; a bool is none."""
    items = value if isinstance(value, list) else [value]
    return [one for one in items if isinstance(one, int | float) and not isinstance(one, bool)]


def divides(value: int, multiple: int) -> bool:
    """Whether ``multiple`` is a multiple of ``value``; of 0 only 0 is."""
    return not (multiple % value if value else multiple)


class CaseField(Model):
    """The type of a field that a case may set."""

    type: Literal["int", "float", "bool", "str", "ints"]
    """The type; ints is a list."""
    help: Annotated[str, Field(min_length=1)]
    """What it is, with its unit."""
    default: str | list[str] | None = None
    """The value where a case does not set it; without a default, such a case has null."""
    choices: list[str] = []
    """The values that it takes."""
    minimum: Bound | None = None
    """The least value of a number, or of each in a list of ints."""
    maximum: Bound | None = None
    """The greatest value, likewise."""
    divides: str | None = None
    """A field of ints whose value is always a multiple of this one's, as query heads are of KV
    heads; 0 has no multiple but 0."""

    @model_validator(mode="after")
    def _bounds_hold_something(self) -> Self:
        if self.divides is not None and self.type != "int":
            raise ValueError(f"a field of type {self.type} divides nothing")
        bounds = [bound for bound in (self.minimum, self.maximum) if bound is not None]
        if bounds and self.type not in _NUMBERS:
            raise ValueError(f"a field of type {self.type} has neither minimum nor maximum")
        if bounds != sorted(bounds):
            raise ValueError(f"minimum {self.minimum} is above maximum {self.maximum}")
        if bounds:
            self.simplest("default")
        return self

    def outside(self, name: str, value: CaseValue) -> str | None:
        """Why ``value`` is outside the bounds, or ``None``; an absent value is not."""
        for item in numbers_in(value) if self.type in _NUMBERS else ():
            if self.minimum is not None and not item >= self.minimum:
                return f"{name}: {item} is below the minimum, {self.minimum}"
            if self.maximum is not None and not item <= self.maximum:
                return f"{name}: {item} is above the maximum, {self.maximum}"
        return None

    def simplest(self, name: str) -> CaseValue:
        """The value where a case does not set it: the default, or null."""
        return None if self.default is None else self.parse(name, self.default)

    def parse(self, name: str, value: Any) -> CaseValue:
        """``value``, text as the file has it, in its type; ``ValueError`` names the field."""
        parsed = self._typed(name, value)
        if problem := self.outside(name, parsed):
            raise ValueError(problem)
        return parsed

    def _typed(self, name: str, value: Any) -> CaseValue:
        if self.type == "ints":
            if not isinstance(value, list):
                raise ValueError(f"{name}: write a list of ints")
            return [_int(name, item) for item in value]
        if not isinstance(value, str):
            raise ValueError(f"{name}: {value!r} is not a single value")
        if self.choices and value not in self.choices:
            raise ValueError(f"{name}: {value!r} is none of {', '.join(self.choices)}")
        if self.type == "bool":
            if value not in {"true", "false"}:
                raise ValueError(f"{name}: {value!r} is not a bool; write true or false")
            return value == "true"
        if self.type == "int":
            return _int(name, value)
        if self.type == "float":
            return _float(name, value)
        return value


def _int(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ValueError(f"{name}: {value!r} is not an int") from None


def _float(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{name}: {value!r} is not a float") from None


class CaseSet(Model):
    """Named cases: what a recipe validates or benchmarks together."""

    title: Title
    """What the set covers."""
    about: str | None = None
    """Where it comes from, why it is there."""
    cases: Annotated[list[dict[str, str | list[str]]], Field(min_length=1)]
    """Field → value; `name` names the case."""
    for_each: dict[str, list[str]] = {}
    """Field → values: every case is taken with each of them."""


class Kernel(Model):
    """A kernel attached to the knowledge base."""

    id: KernelId
    """The name of its folder."""
    title: Title
    """Its name in prose."""
    summary: Annotated[str, Field(min_length=1)]
    """What it computes."""
    namespace: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    """The namespace of its operators: torch.ops.NAMESPACE."""
    harness: str
    """The Python file that makes inputs, computes the reference and calls the operator."""
    interface: str | None = None
    """The Python file with fake implementations and the operator's Python face."""
    targets: Annotated[dict[Slug, Target], Field(min_length=1)]
    """Its solutions by name: cpu, cuda, triton. With target `auto`, the first for a card that can
    run here, else the first for the CPU."""
    implementations: dict[Name, Annotated[str, Field(min_length=1)]] = {}
    """What the harness calls an implementation → what it is, in a line: the kernel itself, its
    variants, its peers. It stands beside their times."""
    own_calls: list[Name] = []
    """Implementations that are this kernel in another call: on the same keys without pages, say.
    They are timed like peers and are none: no headline is taken against them."""
    case_fields: dict[str, CaseField]
    """The fields that a case may set, beside its `name`."""
    case_sets: Annotated[dict[Slug, CaseSet], Field(min_length=1)]
    """The case sets, by name."""

    @model_validator(mode="after")
    def _own_calls_are_explained(self) -> Self:
        if strange := [name for name in self.own_calls if name not in self.implementations]:
            raise ValueError(
                f"own_calls: {strange[0]!r} is not among implementations, which say what it is"
            )
        return self

    @model_validator(mode="after")
    def _refusals_name_fields(self) -> Self:
        for name, target in self.targets.items():
            refusals = {
                f"targets.{name}.not_taken": target.not_taken,
                f"targets.{name}.only": target.only,
            }
            for variant, spec in target.variants.items():
                refusals[f"targets.{name}.variants.{variant}.not_taken"] = spec.not_taken
            for part, left in target.specialisations.items():
                refusals[f"targets.{name}.specialisations.{part}.only"] = left.only
            for place, refused in refusals.items():
                unknown = sorted(set(refused) - set(self.case_fields))
                if unknown:
                    raise ValueError(
                        f"{place}: {unknown[0]!r} is no case field; the fields are"
                        f" {', '.join(self.case_fields)}"
                    )
        return self

    @model_validator(mode="after")
    def _multiples_are_ints(self) -> Self:
        for name, field in self.case_fields.items():
            multiple = self.case_fields.get(field.divides or "")
            if field.divides is not None and (multiple is None or multiple.type != "int"):
                raise ValueError(
                    f"case_fields.{name}: divides {field.divides!r}, which is no field of type int"
                )
        return self

    @model_validator(mode="after")
    def _cases_are_typed(self) -> Self:
        problems = []
        for name in self.case_sets:
            try:
                self.cases(name)
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @model_validator(mode="after")
    def _something_is_taken(self) -> Self:
        cases = [case for name in self.case_sets for case in self.cases(name)]
        for name, target in self.targets.items():
            for variant in [None, *target.variants]:
                if cases and not any(target.takes(case, variant) for case in cases):
                    place = f"targets.{name}" + (f".variants.{variant}" if variant else "")
                    raise ValueError(f"{place} takes no case; see not_taken and only")
        return self

    def cases(self, case_set: str) -> list[dict[str, CaseValue]]:
        """The cases of a set, typed, defaults put in, multiplied out; each has a ``name``.

        Raises:
            ValueError: no such set, an unknown field, a value of the wrong type, a name twice.
        """
        if case_set not in self.case_sets:
            known = ", ".join(self.case_sets)
            raise ValueError(f"kernel {self.id} has no case set {case_set!r}; it has {known}")
        spec = self.case_sets[case_set]
        axes = [[(field, value) for value in values] for field, values in spec.for_each.items()]
        cases = [
            self._case(case_set, {**case, **dict(extra)}, [value for _, value in extra])
            for case in spec.cases
            for extra in itertools.product(*axes)
        ]
        names = [str(case["name"]) for case in cases]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"case set {case_set}: two cases are called {twice[0]!r}")
        return cases

    def case_from(self, text: str) -> dict[str, CaseValue]:
        """The case that ``FIELD=VALUE …`` describes, typed, defaults put in; a list is ``1/2/3``.

        Raises:
            ValueError: it is not of that form, an unknown field, a value of the wrong type.
        """
        raw: dict[str, str | list[str]] = {}
        for part in text.split():
            name, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"case {text!r}: {part!r} is not FIELD=VALUE")
            if name in raw:
                raise ValueError(f"case {text!r} gives {name} twice")
            if name in self.case_fields and self.case_fields[name].type == "ints":
                raw[name] = value.split("/") if value else []
            else:
                raw[name] = value
        return self._case(GIVEN, {**raw, "name": text}, [])

    def device_of(self, target: str) -> Device:
        """Where a target runs."""
        spec = self.targets[target]
        return spec.device or ("cuda" if target == "cuda" or spec.architectures else "cpu")

    def outside(self, case: Mapping[str, CaseValue]) -> str | None:
        """Why a field of a case is outside its bounds, or does not divide another; or ``None``."""
        found = (field.outside(name, case.get(name)) for name, field in self.case_fields.items())
        return next(filter(None, found), None) or self._not_divided(case)

    def _not_divided(self, case: Mapping[str, CaseValue]) -> str | None:
        for name, field in self.case_fields.items():
            own, multiple = case.get(name), case.get(field.divides or "")
            if not isinstance(own, int) or not isinstance(multiple, int):
                continue
            if not divides(own, multiple):
                return f"{name}: {own} does not divide {field.divides}, {multiple}"
        return None

    def specialised(self, target: str, name: str) -> Kernel:
        """The kernel with one specialisation of a target in the target's place; all of the target
        where ``name`` is empty.

        Raises:
            ValueError: the target has no such specialisation.
        """
        if not name:
            return self
        known = self.targets[target].specialisations
        if name not in known:
            there = ", ".join(known) or "none"
            raise ValueError(
                f"target {target} of kernel {self.id} has no specialisation {name!r};"
                f" it has {there}"
            )
        narrowed = {**self.targets, target: self.targets[target].specialised(name)}
        return self.model_copy(update={"targets": narrowed})

    def case_text(self, case: Mapping[str, CaseValue]) -> str:
        """``case`` as ``case_from`` reads it: the fields that are set and not at their defaults;
        the first field where all are, since a text is never empty."""
        telling = {
            name: case[name]
            for name, field in self.case_fields.items()
            if case.get(name) is not None and case[name] != field.simplest(name)
        }
        first = next(iter(self.case_fields))
        shown = telling or {first: case[first]}
        return " ".join(f"{name}={value_text(value)}" for name, value in shown.items())

    def _case(
        self, case_set: str, raw: dict[str, str | list[str]], extra: list[str]
    ) -> dict[str, CaseValue]:
        unknown = sorted(set(raw) - set(self.case_fields) - {"name"})
        if unknown:
            raise ValueError(
                f"case set {case_set}: {unknown[0]!r} is no case field;"
                f" the fields are {', '.join(self.case_fields)}"
            )
        given = raw.get("name") or " ".join(
            f"{key}={_short(value)}" for key, value in raw.items() if value not in extra
        )
        called = " ".join([str(given), *extra])
        if len(called) > MAX_NAME:
            raise ValueError(
                f"case set {case_set}: the name {called[:40]!r}… has {len(called):,} characters,"
                f" over {MAX_NAME:,}"
            )
        case: dict[str, CaseValue] = {"name": called}
        for name, field in self.case_fields.items():
            try:
                case[name] = field.parse(name, raw[name]) if name in raw else field.simplest(name)
            except ValueError as error:
                raise ValueError(f"case set {case_set}, {case['name']}: {error}") from None
        if problem := self._not_divided(case):
            raise ValueError(f"case set {case_set}, {case['name']}: {problem}")
        return case


def value_text(value: CaseValue) -> str:
    """A value as a case's text has it; ``absent`` for null."""
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return str(value).lower()
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)


class NamedCase(Protocol):
    """A case in any record."""

    @property
    def name(self) -> str:
        """What the manifest called it."""

    @property
    def case(self) -> Mapping[str, CaseValue]:
        """Its fields."""


def case_label(case: NamedCase) -> str:
    """The name of a case for readers: a bare number in it with its field, as in ``N=4096 M=16``.

    A name that says anything but values of fields, or a number of several fields, stays.
    """
    words = case.name.split()
    given = {word.partition("=")[0] for word in words if "=" in word}
    fields: dict[str, list[str]] = {}
    for field, value in case.case.items():
        if field not in given:
            fields.setdefault(value_text(value), []).append(field)
    bare = [word for word in words if "=" not in word]
    if not given or any(len(fields.get(word, [])) != 1 for word in bare):
        return case.name
    return " ".join(
        f"{fields[word][0]}={word}" if word in bare and word.isdecimal() else word for word in words
    )


def _short(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "/".join(value)
