"""A recipe: parameters and steps that kbtool executes; it belongs to a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, ValidationInfo, model_validator

from kbtool.model.base import MAX_ID, KernelId, Model, Title
from kbtool.model.kinds import StepSpec
from kbtool.model.kinds.build import BuildStep
from kbtool.model.kinds.validate import ValidateStep


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


_BOUND = {"values": "put in"}
"""The context of a validation after which no placeholder is left."""

_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


class Recipe(Model):
    """Steps that kbtool executes. ``${name}`` in a step stands for a parameter."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=MAX_ID)]
    """What `kbtool run-recipe` calls it; unique in the knowledge base."""
    title: Title
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
    def _bind_defaults(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """Steps are typed, placeholders are text: validate them with the defaults put in."""
        if not isinstance(data, Mapping):
            return handler(data)
        bound = info.context is _BOUND
        recipe = handler(data if bound else _substituted(data, _defaults(data)))
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
            builds = isinstance(step, BuildStep)
            does = f"step {step.id!r} {step.does}"
            if (step.does or builds) and self.kernel is None:
                raise ValueError(f"step {step.id!r} needs the recipe to name a kernel")
            if step.does and not built:
                raise ValueError(f"{does}, but no build step comes before it")
            if step.measures and not validated:
                raise ValueError(f"{does}, but no validate step comes before it")
            if builds:
                built, validated = True, False
            validated = validated or isinstance(step, ValidateStep)
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
        # A value that looks like a placeholder stays as it was given.
        return Recipe.model_validate(_substituted(self._raw, bound), context=_BOUND), bound


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
