"""Every text and every whole number of a record has a bound. Pages repeat names, and megabytes of
them take gigabytes; no program reads a number of 400 digits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from knowledge import KERNEL
from pydantic import BaseModel

from kbtool.gpu.profile import parse
from kbtool.model.base import MAX_NAME, MAX_TEXT
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.profile import KernelLaunch
from kbtool.model.run import StepRecord
from kbtool.store.document import parse as parse_yaml
from kbtool.store.load import validate
from soak.fields import FILES


class Bounded(BaseModel, str_max_length=1):
    text: str


told = pytest.mark.skipif(
    "maxLength" not in Bounded.model_json_schema()["properties"]["text"],
    reason="this Pydantic holds texts to the bound of their model, and leaves it out of the schema",
)
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


@pytest.fixture(scope="module")
def every() -> set[type[BaseModel]]:
    """The models of all records."""
    found: set[type[BaseModel]] = set()
    for _, kind in FILES:
        models(kind, found)
    assert {StepRecord, KernelLaunch} <= found
    return found


@told
def test_every_id_name_and_title_of_a_record_has_a_bound(every):
    assert [name for model in every for name in unbounded(model)] == []


@told
def test_every_text_and_whole_number_of_a_record_has_a_bound(every):
    # An example stands in what is read as a figure, a time or an address.
    bounding = {"maxLength", "pattern", "enum", "const", "format", "examples"}

    def open_ends(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            types = node.get("type", [])
            types = types if isinstance(types, list) else [types]
            if "string" in types and not node.keys() & bounding:
                yield "a text"
            if "integer" in types and not node.keys() & {"maximum", "const"}:
                yield "a number"
            for name, below in node.items():
                yield from (f"{name}: {one}" for one in open_ends(below))
        elif isinstance(node, list):
            for below in node:
                yield from open_ends(below)

    found = {}
    for model in every:
        schema = model.model_json_schema()
        for name, stated in {**schema.get("$defs", {}), model.__name__: schema}.items():
            found[name] = list(open_ends(stated.get("properties", {})))
    assert {name: ends for name, ends in found.items() if ends} == {}


def test_a_text_that_is_too_long_is_refused_in_plain_words():
    text = KERNEL.replace("summary:", f"summary: {'s' * MAX_TEXT}", 1)
    (finding,) = validate(parse_yaml(text.encode(), "kernel.yaml"), Kernel)
    assert finding.message == f"summary: {'s' * 40}… has over 200,000 characters"


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
