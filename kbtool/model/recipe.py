"""A recipe: parameters and steps that kbtool executes; it belongs to a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from kbtool.model.base import ExactDuration, KernelId, Model, Quantity, Slug

Need = Literal["compiler", "ninja", "torch", "gpu", "nvcc", "profiler", "sanitiser"]
RelativePath = Annotated[str, Field(min_length=1)]


class Parameter(Model):
    """A value that the user may set: ``--set NAME=VALUE``."""

    type: Literal["str", "int", "float", "bool", "choice"]
    """The type of the value."""
    default: str
    """The value without ``--set``."""
    choices: list[str] = []
    """The values that a choice takes."""
    help: Annotated[str, Field(min_length=1)]
    """What it sets."""

    @model_validator(mode="after")
    def _default_is_valid(self) -> Self:
        if (self.type == "choice") != bool(self.choices):
            raise ValueError("a parameter has choices if, and only if, its type is choice")
        self.parse("default", self.default)
        return self

    def parse(self, name: str, value: str) -> str:
        """``value`` in its canonical spelling; ``ValueError`` says what the parameter takes."""
        try:
            if self.type == "int":
                return str(int(value))
            if self.type == "float":
                return repr(float(value))
        except ValueError:
            raise ValueError(f"{name}: {value!r} is not {_ARTICLE[self.type]}") from None
        if self.type == "bool":
            if value.lower() not in _BOOLS:
                raise ValueError(f"{name}: {value!r} is not a bool; write true or false")
            return _BOOLS[value.lower()]
        if self.type == "choice" and value not in self.choices:
            raise ValueError(f"{name}: {value!r} is none of {', '.join(self.choices)}")
        return value


_ARTICLE = {"int": "an int", "float": "a float"}
_BOOLS = {"true": "true", "yes": "true", "1": "true", "false": "false", "no": "false", "0": "false"}


def names_in(listed: str) -> list[str]:
    """The names in a comma-separated list."""
    return [name.strip() for name in listed.split(",") if name.strip()]


class StepBase(Model):
    """What every step has, whatever its kind."""

    kind: str
    """The kind of step."""
    id: Slug
    """A name: used by --resume, in run records and in progress lines."""
    title: Annotated[str, Field(min_length=1)]
    """What it does."""
    expected: ExactDuration
    """How long it should take, until there are past runs to tell."""
    timeout: ExactDuration
    """When it is stopped."""
    needs: list[Need] = []
    """What the machine must have."""


class EnvironmentStep(StepBase):
    """Probe the machine: card, driver, compilers, versions; refuse what is too old."""

    kind: Literal["environment"]
    minimum: dict[str, str] = {}
    """Least versions: {python: 3.11, torch: 2.10, nvcc: 12.0}."""


class BuildStep(StepBase):
    """Build a kernel for a target with ninja."""

    kind: Literal["build"]
    target: str = "auto"
    """A target of the manifest; auto takes cuda where there are a card, nvcc and CUDA sources."""
    specialisation: str = ""
    """A specialisation of the target, to be built alone; all of the target where empty. Later steps
    leave out cases that it does not take."""
    jobs: Annotated[int, Field(ge=0)] = 0
    """Compilers at once; 0 takes one a core."""


class ValidateStep(StepBase):
    """Hold the built artifact against the float64 reference over case sets."""

    kind: Literal["validate"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    variants: str = "default"
    """Variants of the target to hold against it, separated by commas: default for the kernel's own
    choice, or names; all for both that and every variant that the build has."""
    seed: int = 0
    """Seed of the inputs; 0 draws a fresh one, which the run records."""


class BenchmarkStep(StepBase):
    """Time the validated artifact beside its peers."""

    kind: Literal["benchmark"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    variants: str = "default"
    """Variants to time, an arm each, beside the kernel's own choice, which is timed always: as for
    validate, which must have passed them."""
    peers: str = "all"
    """Peers of the harness to time, separated by commas, or all; the one that ratios are taken
    against is timed always."""
    samples: Annotated[int, Field(ge=5)] = 20
    """Timed samples an arm."""
    threads: Annotated[int, Field(ge=0)] = 0
    """CPU threads; 0 takes one a core."""


class TuneStep(StepBase):
    """Time the validated artifact's own choice of a setting beside every other, and write the table
    that it chooses by."""

    kind: Literal["tune"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    case: str = ""
    """One case instead of all: `FIELD=VALUE …`, or the name of a case of the sets."""
    variants: str
    """Variants of the target to tune, by name, separated by commas; validate must have passed
    them."""
    samples: Annotated[int, Field(ge=5)] = 20
    """Timed samples a setting."""
    write: bool = True
    """Whether to write the table; else the run record alone has what was measured."""


class MutantsStep(StepBase):
    """Put each known bug back, one at a time, and see whether validation finds it."""

    kind: Literal["mutants"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    mutants: str = "all"
    """Ids of mutants, separated by commas; or all those of the target that was built."""
    bound: Annotated[float, Field(ge=0)] = 0.0
    """A fixed bound to compare the rule with: which bugs would it let through? 0 compares none."""
    limit: ExactDuration = Quantity("2 min")
    """How long one mutant may take; after that it hangs and counts as found, unless case after case
    had come to its end: then it is judged again, alone."""
    jobs: Annotated[int, Field(ge=0)] = 0
    """Compilers at once; 0 takes one a core."""
    at_once: Annotated[int, Field(ge=0)] = 0
    """Mutants validated at once; 0 takes one a core, and no more than 6 a card."""
    seed: int = 0
    """Seed of the inputs; 0 draws a fresh one, which the run records."""
    profile: str = ""
    """Case sets whose errors are recorded by index along `profile_axis`; none where empty."""
    profile_axis: int = 0
    """An axis of the first output: 2 is the query in (B, H, Sq, D)."""


class MinimiseStep(StepBase):
    """From a case that fails: the smallest that still fails, the boundary, the part at fault."""

    kind: Literal["minimise"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    case: str = ""
    """One case instead of all: `FIELD=VALUE …`, or the name of a case of the sets."""
    variant: str = "default"
    """The variant of the target to look at; default is the kernel's own choice."""
    seed: int = 0
    """Seed of the inputs; 0 draws a fresh one, which the run records."""
    draws: Annotated[int, Field(ge=1)] = 100
    """The most inputs drawn for a case before it counts as passing; fewer for large cases."""
    probes: Annotated[int, Field(ge=1)] = 600
    """The most cases tried."""
    limit: ExactDuration = Quantity("1 min")
    """How long one case may take; after that it hangs, and so fails."""


class ProfileStep(StepBase):
    """Nsight Compute metrics of the validated artifact, down to a named bottleneck."""

    kind: Literal["profile"]
    case_set: str
    """A case set of the manifest."""
    case: str = ""
    """One case instead of all: `FIELD=VALUE …`, or the name of a case of the set."""
    arm: str = ""
    """A variant, or another arm of the harness; empty takes the library with its own choice."""


class SanitiseStep(StepBase):
    """Run the built artifact under tools of compute-sanitizer, with no caching allocator."""

    kind: Literal["sanitise"]
    tools: str = "memcheck,racecheck,initcheck,synccheck"
    """The tools, separated by commas. Each runs, whatever the one before it found."""
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    case: str = ""
    """One case instead of all: `FIELD=VALUE …`, or the name of a case of the sets."""
    variants: str = "all"
    """Variants of the target to run, as for validate."""


class CommandStep(StepBase):
    """Run a program of the knowledge base's own, without a shell."""

    kind: Literal["command"]
    run: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments. python3 is the one that runs kbtool, with its packages."""
    cwd: RelativePath = "."
    """Where it runs, inside the tree."""
    env: dict[str, str] = {}
    """Environment variables to add."""
    exit_code: int = 0
    """The exit status that counts as passed."""
    produces: list[RelativePath] = []
    """Files that must be there afterwards, inside the tree."""


StepSpec = Annotated[
    EnvironmentStep
    | BuildStep
    | ValidateStep
    | MutantsStep
    | BenchmarkStep
    | TuneStep
    | MinimiseStep
    | ProfileStep
    | SanitiseStep
    | CommandStep,
    Field(discriminator="kind"),
]

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
_DOES = {
    "validate": "validates",
    "mutants": "validates mutants",
    "benchmark": "benchmarks",
    "tune": "tunes",
    "minimise": "minimises",
    "profile": "profiles",
    "sanitise": "sanitises",
}
"""The kinds that work on a built artifact → what one says of such a step."""
_MEASURES = frozenset({"benchmark", "tune", "profile"})
"""The kinds whose figures count only for an artifact that passed validation."""


class Recipe(Model):
    """Steps that kbtool executes. ``${name}`` in a step stands for a parameter."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    """What `kbtool run-recipe` calls it; unique in the knowledge base."""
    title: Annotated[str, Field(min_length=1)]
    """What it achieves."""
    about: str | None = None
    """What it does, and what it leaves behind."""
    kernel: KernelId | None = None
    """The kernel that the steps build and work on."""
    parameters: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Parameter] = {}
    """What the user may set."""
    steps: Annotated[list[StepSpec], Field(min_length=1)]
    """The steps, in order."""

    _raw: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _bind_defaults(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Steps are typed, placeholders are text: validate them with the defaults put in."""
        if not isinstance(data, Mapping):
            return handler(data)
        recipe = handler(_substituted(data, _defaults(data)))
        recipe._raw = dict(data)
        return recipe

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ids = [step.id for step in self.steps]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"two steps are called {twice[0]!r}")
        built = validated = False
        for step in self.steps:
            does = _DOES.get(step.kind)
            if (does or step.kind == "build") and self.kernel is None:
                raise ValueError(f"step {step.id!r} needs the recipe to name a kernel")
            if does and not built:
                raise ValueError(f"step {step.id!r} {does}, but no build step comes before it")
            if step.kind in _MEASURES and not validated:
                raise ValueError(f"step {step.id!r} {does}, but no validate step comes before it")
            if step.kind == "build":
                built, validated = True, False
            validated = validated or step.kind == "validate"
        return self

    def bind(self, values: Mapping[str, str]) -> tuple[Recipe, dict[str, str]]:
        """This recipe with ``values`` in place of the placeholders, and every parameter's value.

        Raises:
            ValueError: a value of the wrong type, or a name that is no parameter.
        """
        bound = {name: parameter.default for name, parameter in self.parameters.items()}
        for name, value in values.items():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise ValueError(
                    f"{name}: recipe {self.name} has no such parameter; it has {known}"
                )
            bound[name] = self.parameters[name].parse(name, value)
        return Recipe.model_validate(_substituted(self._raw, bound)), bound


def _defaults(data: Mapping[str, Any]) -> dict[str, str]:
    parameters = data.get("parameters")
    if not isinstance(parameters, Mapping):
        return {}
    return {
        str(name): str(spec["default"])
        for name, spec in parameters.items()
        if isinstance(spec, Mapping) and "default" in spec
    }


def _substituted(data: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    def put(node: Any) -> Any:
        if isinstance(node, str):
            return _PLACEHOLDER.sub(value_of, node)
        if isinstance(node, Mapping):
            return {key: put(value) for key, value in node.items()}
        if isinstance(node, list):
            return [put(item) for item in node]
        return node

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in values:
            known = ", ".join(values) or "none"
            raise ValueError(f"${{{match[1]}}} is no parameter of the recipe; it has {known}")
        return values[match[1]]

    return {**data, "steps": put(data["steps"])} if "steps" in data else dict(data)
