"""What a harness must define, when it is loaded and when a plan reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbtool.gpu.harness import (
    FUNCTIONS,
    HarnessError,
    load_harness,
    peers_named_in,
    unknown_peer,
)

SOUND = 'SUBJECT = "ours"\nBASELINE_ARM = "torch"\nPEERS = ("torch", "quick")\n' + "".join(
    f"def {name}(*_, **__): ...\n" for name in (*FUNCTIONS, "arms", "workspace_bytes")
)


def written(folder: Path, text: str) -> Path:
    path = folder / "harness.py"
    path.write_text(text)
    return path


def test_a_baseline_that_is_no_peer_is_refused(tmp_path):
    assert load_harness(written(tmp_path, SOUND)).BASELINE_ARM == "torch"
    misspelt = SOUND.replace('ARM = "torch"', 'ARM = "torhc"')
    with pytest.raises(HarnessError, match=r"BASELINE_ARM is 'torhc', .* PEERS: torch, quick"):
        load_harness(written(tmp_path, misspelt))


def test_a_harness_edited_within_a_second_is_read_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    path = written(tmp_path, SOUND)
    load_harness(path)
    before = path.stat()
    path.write_text(SOUND.replace('ARM = "torch"', 'ARM = "torhc"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(HarnessError, match="BASELINE_ARM is 'torhc'"):
        load_harness(path)


@pytest.mark.parametrize("name", ["make_inputs", "work", "PEERS", "arms"])
def test_what_a_harness_lacks_is_named(tmp_path, name):
    with pytest.raises(HarnessError, match=f"lacks {name}"):
        load_harness(written(tmp_path, SOUND.replace(name, "another")))


def test_a_harness_need_not_say_what_follows_from_the_rest(tmp_path):
    text = (
        "def make_inputs(case, *, device, seed): return {'x': 1}\n"
        "def reference(inputs): return {'out': 1.0}\n"
        "def baseline(inputs): return {'out': inputs['x'] + 1}\n"
        "def call(inputs, *, variant=None, poison=True): return {'out': (variant, poison)}\n"
        "def work(case): return {'bytes': 1, 'flops': 1}\n"
    )
    path = written(tmp_path, text)
    harness = load_harness(path)
    assert (path.parent.name, "torch") == (harness.SUBJECT, harness.BASELINE_ARM)
    assert list(harness.PEERS) == peers_named_in(path) == ["torch"]
    made = {
        name: call() if callable(call) else call
        for name, call in harness.arms({"x": 1}, ["fast"], ["torch"]).items()
    }
    assert made == {path.parent.name: (None, False), "fast": ("fast", False), "torch": 2}
    assert harness.workspace_bytes({}) == 0


def test_a_harness_that_defines_terms_is_pointed_to_error_scale(tmp_path):
    old = "def terms(inputs): return {}\n"
    with pytest.raises(HarnessError, match="defines terms; rename it to error_scale"):
        load_harness(written(tmp_path, SOUND + old))
    both = SOUND + old + old.replace("terms", "error_scale")
    assert load_harness(written(tmp_path, both)).BASELINE_ARM == "torch"


@pytest.mark.parametrize(
    ("returned", "taken"),
    [
        ("{'bytes': 12, 'flops': 0}", True),
        ("{'bytes': 12.0, 'flops': 2, 'more': None}", True),
        ("{'flops': 2}", False),
        ("{'bytes': 12}", False),
        ("{'bytes': 1.5, 'flops': 2}", False),
        ("{'bytes': -1, 'flops': 2}", False),
        ("{'bytes': float('inf'), 'flops': 2}", False),
        ("{'bytes': '12', 'flops': 2}", False),
        ("12", False),
        ("None", False),
    ],
)
def test_work_without_its_two_counts_is_refused(tmp_path, returned, taken):
    sound = f"def work(case): return {returned}\n"
    harness = load_harness(written(tmp_path, SOUND + sound))
    if taken:
        assert harness.work({})["bytes"] == 12
    else:
        with pytest.raises(HarnessError, match="work must return bytes and flops, two whole"):
            harness.work({})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (SOUND, ["torch", "quick"]),
        ("raise SystemExit\nPEERS = ['a']\n", ["a"]),  # nothing of it runs
        ("PEERS = tuple(others)\n", None),
        ("PEERS = 3\n", None),
        ("x = 1\n", ["torch"]),
        ("PEERS = (\n", None),
    ],
)
def test_peers_are_read_without_running_the_harness(tmp_path, text, named):
    assert peers_named_in(written(tmp_path, text)) == named


def test_a_harness_that_is_not_there_names_no_peers(tmp_path):
    assert peers_named_in(tmp_path / "harness.py") is None


def test_an_unknown_peer_is_an_error_that_lists_the_peers():
    assert unknown_peer(["a", "x"], ["a", "b"]) == "the harness has no peer 'x'; it has a, b"
    assert unknown_peer([], ["a"]) is unknown_peer(["a"], ["a"]) is None
