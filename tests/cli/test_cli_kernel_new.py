"""``kbtool kernel new``: what it writes is valid, short, and runs at once."""

from __future__ import annotations

import importlib.util
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import assert_passed_or_noisy

from kbtool.model.run import Run
from kbtool.scaffolds import SCAFFOLDS

FEWER_LINES_THAN = 60
NO_TRITON = importlib.util.find_spec("triton") is None


@pytest.fixture
def base(tmp_path: Path, kbtool) -> Path:
    root = tmp_path / "base"
    assert kbtool("init", str(root)).code == 0
    return root


@pytest.mark.slow
@pytest.mark.parametrize("like", SCAFFOLDS)
def test_it_is_valid_and_short(base, kbtool, like):
    done = kbtool("kernel", "new", "soft_cap", "--like", like, root=base)
    assert done.code == 0, done.err
    assert "next: `" in done.err and "run-recipe soft-cap`" in done.err
    assert all((base / name).is_file() for name in done.out.split())
    checked = kbtool("check", root=base)
    assert checked.code == 0, checked.out
    folder = base / "kernels" / "soft_cap"
    lines = [line for path in folder.iterdir() for line in path.read_text().splitlines() if line]
    assert len(lines) < FEWER_LINES_THAN
    assert not [line for line in lines if "my_kernel" in line]
    assert kbtool("run-recipe", "soft-cap", "--dry-run", root=base).code in {0, 3}


@pytest.mark.slow
@pytest.mark.parametrize("like", ["cpu", "python", "cmake"])
def test_it_runs_at_once(base, kbtool, like, build_cache):
    if like == "cmake" and shutil.which("cmake") is None:
        pytest.skip("no cmake")
    kbtool("kernel", "new", "softcap", "--like", like, root=base)
    manifest = base / "kernels" / "softcap" / "kernel.yaml"
    manifest.write_text(manifest.read_text().replace("n: 8388608", "n: 100000"))
    done = kbtool("run-recipe", "softcap", root=base)
    (path,) = base.glob("sessions/*/runs/*.json")
    assert_passed_or_noisy(Run.model_validate_json(path.read_bytes()), done)
    assert "4 of 4 cases right" in done.err


@pytest.mark.slow
@pytest.mark.skipif(NO_TRITON, reason="no triton here")
def test_triton_is_interpreted_where_there_is_no_card(base, kbtool):
    kbtool("kernel", "new", "softcap", "--like", "triton", root=base)
    done = kbtool("run-recipe", "softcap", "--set", "target=interpreted", root=base)
    assert "4 of 4 cases right" in done.err
    assert done.code in {0, 3, 75}  # without a card it is not timed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Soft-Cap", "is no name for a kernel"),
        ("../up", "is no name for a kernel"),
        ("torch", "is a word of Python's, or a module"),
        ("lambda", "is a word of Python's, or a module"),
        ("look", "there is a recipe look already"),
        (
            "there",
            "kernels/there/ is there already; nothing was written: call the kernel otherwise",
        ),
    ],
)
def test_a_name_that_cannot_be_is_refused(base, kbtool, name, message):
    (base / "kernels" / "there").mkdir()
    before = sorted(base.rglob("*"))
    done = kbtool("kernel", "new", name, "--like", "cpu", root=base)
    assert done.code == 2 and message in done.err
    assert sorted(base.rglob("*")) == before


@pytest.mark.slow
def test_the_number_of_the_pattern_is_the_next_one(base, kbtool):
    (base / "patterns" / "P07-broken.yaml").write_text("id: [")
    done = kbtool("kernel", "new", "softcap", "--like", "python", "--json", root=base)
    written = json.loads(done.out)
    assert written["recipe"] == "softcap"
    assert "patterns/P08-softcap.yaml" in written["written"]


@pytest.mark.slow
def test_kernels_that_are_made_at_once_have_patterns_of_their_own(base, kbtool):
    def make(number: int) -> int:
        return kbtool("kernel", "new", f"k{number}", "--like", "python", root=base).code

    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(make, range(10))) == {0}
    checked = kbtool("check", root=base)
    assert checked.code == 0, checked.out
