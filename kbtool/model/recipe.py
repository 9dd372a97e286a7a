"""A recipe: parameters and steps that kbtool executes; it belongs to a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from kbtool.model.base import ExactDuration, KernelId, Model, Slug

Need = Literal["compiler", "ninja", "torch", "gpu", "nvcc", "profiler"]
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
    jobs: Annotated[int, Field(ge=0)] = 0
    """Compilers at once; 0 takes one a core."""


class ValidateStep(StepBase):
    """Hold the built artifact against the float64 reference over case sets."""

    kind: Literal["validate"]
    case_sets: str
    """Case sets of the manifest, separated by commas."""
    seed: int = 0
    """Seed of the inputs; 0 draws a fresh one, which the run records."""


class BenchmarkStep(StepBase):
    """Time the validated artifact beside its peers."""

    kind: Literal["benchmark"]
    case_set: str
    """A case set of the manifest."""
    samples: Annotated[int, Field(ge=5)] = 20
    """Timed samples an arm."""
    threads: Annotated[int, Field(ge=0)] = 0
    """CPU threads; 0 takes one a core."""


class CommandStep(StepBase):
    """Run a program of the knowledge base's own, without a shell."""

    kind: Literal["command"]
    run: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments."""
    cwd: RelativePath = "."
    """Where it runs, inside the tree."""
    env: dict[str, str] = {}
    """Environment variables to add."""
    exit_code: int = 0
    """The exit status that counts as passed."""
    produces: list[RelativePath] = []
    """Files that must be there afterwards, inside the tree."""


StepSpec = Annotated[
    EnvironmentStep | BuildStep | ValidateStep | BenchmarkStep | CommandStep,
    Field(discriminator="kind"),
]

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


class Recipe(Model):
    """Steps that kbtool executes. ``${name}`` in a step stands for a parameter."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    """What `kbtool run-recipe` calls it; unique in the knowledge base."""
    title: Annotated[str, Field(min_length=1)]
    """What it achieves."""
    about: str | None = None
    """What it does, and what it leaves behind."""
    kernel: KernelId | None = None
    """The kernel that build, validate and benchmark steps work on."""
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
            if step.kind in {"build", "validate", "benchmark"} and self.kernel is None:
                raise ValueError(f"step {step.id!r} needs the recipe to name a kernel")
            if step.kind == "validate" and not built:
                raise ValueError(f"step {step.id!r} validates, but no build step comes before it")
            if step.kind == "benchmark" and not validated:
                raise ValueError(
                    f"step {step.id!r} benchmarks, but no validate step comes before it"
                )
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
