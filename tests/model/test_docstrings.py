"""The docstrings of fields, which are their text in help, schemas and the site."""

from kbtool.model.bug import Bug
from kbtool.model.docstrings import docstrings_of
from kbtool.model.json_schema import json_schema


def test_own_and_inherited_fields_have_docstrings():
    found = docstrings_of(Bug)
    assert found["error_text"] == "The error message, as printed."
    assert found["source"].startswith("Where it stands")
    assert "model_config" not in found


def test_a_schema_has_the_docstrings_of_its_fields():
    bug = json_schema("session")["$defs"]["Bug"]["properties"]
    assert bug["error_text"]["description"] == "The error message, as printed."
    assert bug["source"]["description"] == docstrings_of(Bug)["source"]
