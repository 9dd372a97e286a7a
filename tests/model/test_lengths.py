"""Ids, names and titles have a bound: pages repeat them, and megabytes of them take gigabytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from knowledge import KERNEL
from pydantic import BaseModel

from kbtool.gpu.profile import parse
from kbtool.model.base import MAX_NAME
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.profile import KernelLaunch
from kbtool.model.run import StepRecord
from kbtool.store.document import parse as parse_yaml
from soak.fields import FILES

NAMES = {"id", "name", "title", "kernel", "recipe"}


def models(kind: Any, seen: set[type[BaseModel]]) -> set[type[BaseModel]]:
    """The models that an annotation names, with those inside of them."""
    if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
        seen.add(kind)
        for field in kind.model_fields.values():
            models(field.annotation, seen)
    for argument in get_args(kind):
        models(argument, seen)
    return seen


def unbounded(model: type[BaseModel]) -> Iterator[str]:
    """The names and titles of a model that may be of any length."""
    schema = model.model_json_schema()
    if "$ref" in schema:
        schema = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    for name in NAMES & schema["properties"].keys():
        stated = schema["properties"][name]
        for form in (stated, *stated.get("anyOf", [])):
            pattern = form.get("pattern", "*")
            if form.get("type") == "string" and "maxLength" not in form and "*" in pattern:
                yield f"{model.__name__}.{name}"


def test_every_id_name_and_title_of_a_record_has_a_bound():
    every: set[type[BaseModel]] = set()
    for _, kind in FILES:
        models(kind, every)
    assert {StepRecord, KernelLaunch} <= every
    assert [name for model in every for name in unbounded(model)] == []


def test_the_name_of_a_case_fits_into_the_record_of_a_run():
    text = KERNEL.replace("{n: 2}", f"{{n: 2, name: {'c' * MAX_NAME}}}")
    assert Kernel.model_validate(parse_yaml(text.encode(), "kernel.yaml").data)
    longer = text.replace("{n: 1}", f"{{n: 1, name: {'d' * (MAX_NAME + 1)}}}")
    with pytest.raises(ValueError, match=r"small: the name 'd{40}'… has 10,001 characters, over"):
        Kernel.model_validate(parse_yaml(longer.encode(), "kernel.yaml").data)


def test_the_end_of_a_kernel_name_that_is_too_long_is_cut_off():
    lines = [
        '"ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum"',
        '"","","","","us"',
        f'"0","{"k" * (MAX_NAME + 1)}","(128, 1, 1)","(264, 1, 1)","1.5"',
    ]
    (launch,) = parse(lines)
    assert launch.kernel == "k" * MAX_NAME
