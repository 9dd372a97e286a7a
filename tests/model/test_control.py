"""Control characters in text are shown, and never reach the terminal."""

from __future__ import annotations

import io
import json

import pytest

from kbtool.cli.common import print_json
from kbtool.cli.main import run as kbtool
from kbtool.model.control import visible
from kbtool.runner.terminal import Guarded, unguarded


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31mred\x1b]0;title\x07", "\\u001b[31mred\\u001b]0;title\\u0007"),
        ("a\r\nb\rc", "a\nb\\u000dc"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("1 \u00d7 \u8868", "1 \u00d7 \u8868"),
    ],
)
def test_control_characters_are_escaped(text, shown):
    assert visible(text) == shown


def test_a_guarded_stream_escapes_what_is_written():
    stream = io.StringIO()
    print("\x1b[2J", file=Guarded(stream))
    assert stream.getvalue() == "\\u001b[2J\n"
    assert unguarded(Guarded(stream)) is stream
    assert unguarded(stream) is stream


def test_json_shows_them_as_escapes_of_the_same_text(capsys):
    print_json({"a": "\u202e\x85\x1b\u00d7"})
    printed = capsys.readouterr().out
    assert "\\u202e" in printed and "\u00d7" in printed
    assert json.loads(printed) == {"a": "\u202e\x85\x1b\u00d7"}


def test_a_command_prints_no_control_character_of_an_argument(capsys, tmp_path):
    assert kbtool(["--root", str(tmp_path), "session", "show", "\x1b[31m"]) != 0
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed
