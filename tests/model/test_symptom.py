"""One kind of message: its example, its numbers, its advice."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kbtool.model.symptom import KnownSymptom, Symptoms, Value, filled

KNOWN = {
    "id": "spills",
    "title": "It spills",
    "match": "bytes spill stores",
    "example": "4 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads",
    "source": "ptxas",
    "advice": "Less than ${bytes} bytes.",
    "values": {"bytes": {"before": " bytes spill stores", "at_least": "1"}},
}


def problem(**changed: object) -> str:
    with pytest.raises(ValidationError) as error:
        KnownSymptom.model_validate(KNOWN | changed)
    return str(error.value)


def test_numbers_are_read_from_the_line_and_fill_the_advice():
    symptom = KnownSymptom.model_validate(KNOWN)
    assert symptom.read("0 bytes stack frame, 1,024 bytes spill stores") == {"bytes": "1,024"}
    assert filled(symptom.advice, {"bytes": "1,024"}) == "Less than 1,024 bytes."


@pytest.mark.parametrize("line", ["0 bytes spill stores", "bytes spill stores", "x 0.5 bytes"])
def test_a_line_without_the_number_or_outside_the_bounds_does_not_count(line):
    assert KnownSymptom.model_validate(KNOWN).read(line) is None


def test_a_hexadecimal_number_counts():
    value = Value.model_validate({"after": "data (", "at_least": "49152"})
    assert value.read("shared data (0x20000 bytes") == "0x20000"
    assert value.fits("0x20000")
    assert not value.fits("0x4000")


def test_what_is_refused():
    assert "does not find its own example" in problem(match="spill storeys")
    assert "is no regular expression" in problem(match="spill (stores")
    assert "${words} is no name of a value" in problem(advice="Use ${words}.")
    assert "the example has no number that fits 'bytes'" in problem(
        values={"bytes": {"before": " bytes spill stores", "at_most": "3"}}
    )
    assert "say where the number stands" in problem(values={"bytes": {"at_least": "3"}})
    with pytest.raises(ValueError, match="is no regular expression"):
        Symptoms.model_validate(
            {"id": "tool", "title": "A tool", "prints": "tool (", "symptoms": [KNOWN]}
        )
    assert "is no architecture" in problem(architectures=["Hopper"])
    assert "causes: 'sign (" in problem(causes=[{"sign": "sign (", "advice": "Do it."}])
    assert "${words} is no name of a value" in problem(
        causes=[{"sign": "sign", "advice": "Do it.", "command": "do ${words}"}]
    )
