"""``kbtool doctor``."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from knowledge import KERNEL, KERNEL_LINE, LOOK, RECIPE

from kbtool.gpu.doctor.facts import Compiler, Facts
from kbtool.model.diagnosis import Diagnosis
from kbtool.model.run import MachineInfo
from kbtool.runner import doctor
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[2]

MACHINE = MachineInfo(
    compiler="c++ 12", ninja="1.13", torch="2.13.0+cpu", numpy="2.4", python="3.11.7",
    kbtool="0.1.0", os="Linux", cpu="EPYC", cores=2,
)  # fmt: skip


@pytest.fixture
def path_without_compiler(tmp_path):
    """A PATH that leads to Python and git alone."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    git = shutil.which("git")
    assert git is not None
    (folder / "git").symlink_to(git)
    return str(folder)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a card")
def test_on_a_machine_without_a_card_recipes_of_the_cpu_can_start(base, started_kbtool):
    pytest.importorskip("torch")
    base.pattern(more="tags: [environment]\n")
    done = started_kbtool("doctor", root=base.root)
    assert done.code == 0, done.out
    assert "missing: card: no card: no NVIDIA driver answers\n" in done.out
    assert "can start: recipes of target cpu" in done.out
    assert "cannot start: recipes of target cuda (card)\n" in done.out
    found = started_kbtool("doctor", "--json", root=base.root)
    assert found.code == 0
    diagnosis = Diagnosis.model_validate_json(found.out)
    (card,) = [check for check in diagnosis.checks if check.name == "card"]
    assert (card.level, card.stops) == ("missing", ["cuda", "profile", "sanitise"])
    assert card.pattern == "P01"
    assert not (base.root / ".kbtool").exists()  # nothing is written


@pytest.mark.slow
def test_without_a_compiler_it_says_what_to_install(base, started_kbtool, path_without_compiler):
    base.pattern()
    env = {"PATH": path_without_compiler}
    done = started_kbtool("doctor", root=base.root, env=env)
    assert done.code == 3
    assert "missing: compiler: no C++ compiler\n" in done.out
    assert "do: install g++ or clang++" in done.out
    assert "cannot start: recipes of target cpu (compiler" in done.out
    if Path("/etc/debian_version").exists():
        assert "apt-get install -y g++\n" in done.out


@pytest.mark.slow
def test_the_paths_of_tools_are_shown_with_verbose_alone(base, started_kbtool):
    base.pattern()
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    plain, wordy = (started_kbtool("doctor", *more, root=base.root) for more in ([], ["-v"]))
    assert compiler not in plain.out
    assert f"({compiler})" in wordy.out
    for secret in (str(base.root), str(Path.home()), os.uname().nodename):
        found = [line for line in plain.out.splitlines() if secret in line and "run:" not in line]
        assert not found or secret == "/"


@pytest.fixture
def facts(monkeypatch):
    """The facts, instead of those of this machine."""
    made = Facts(machine=MACHINE, compiler=Compiler(works=True))

    def of_base(base, error=None, site_missing=None):
        found = made
        if base is not None:
            found = replace(made, base=doctor.Base(writable=True, kernels=kernels_of(base)))
        return replace(found, base_error=error, site_missing=site_missing)

    monkeypatch.setattr(doctor, "facts_of", of_base)


def kernels_of(base: KnowledgeBase) -> dict:
    return {name: entry.record for name, entry in base.kernels.items()}


def said(capsys, *arguments: str) -> tuple[int, str, str]:
    from kbtool.cli.main import run

    code = run(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_without_a_knowledge_base_no_recipe_can_start(tmp_path, monkeypatch, capsys, facts):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KBTOOL_ROOT", raising=False)
    code, out, _ = said(capsys, "doctor")
    assert code == 3
    assert "missing: base: no knowledge base in this folder or above" in out
    assert "init\n" in out
    assert "cannot start: recipes of target cpu (base)\n" in out


def test_a_recipe_of_the_machine_alone_can_start(base, capsys, facts):
    base.pattern(more=LOOK)
    code, out, _ = said(capsys, "--root", str(base.root), "doctor", "--for", "look")
    assert code == 0, out
    assert out.endswith("recipe look: can start\n")


def test_a_recipe_that_wants_a_newer_version_cannot(base, capsys, facts):
    more = LOOK.replace("timeout: 9 s", "timeout: 9 s, minimum: {torch: 2.14}")
    base.pattern(more=more)
    code, out, _ = said(capsys, "--root", str(base.root), "doctor", "--for", "look")
    assert code == 3
    assert "recipe look: cannot start\n  look: torch is 2.13.0+cpu; 2.14 or newer" in out


def test_a_recipe_for_the_card_cannot_start_without_one(base, capsys, facts):
    needs = "sources: [add.cpp], architectures: [sm_90]"
    kernel = KERNEL.replace("cpu: {sources: [add.cpp]}", f"cuda: {{{needs}}}")
    base.write("kernels/add/kernel.yaml", KERNEL_LINE + kernel)
    base.write("kernels/add/add.cpp", "")
    base.write("kernels/add/harness.py", "")
    base.pattern(more=RECIPE.replace("kind: build,", "kind: build, target: cuda,"))
    code, out, _ = said(capsys, "--root", str(base.root), "doctor", "--for", "add", "--json")
    assert code == 3
    found = json.loads(out)["recipe"]
    assert found["recipe"] == "add"
    assert any(problem.startswith("no card") for problem in found["problems"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--for", "lok"], "there is no recipe 'lok' (did you mean look?)"),
        (["--set", "a=1"], "--set needs --for RECIPE"),
        (["--for", "look", "--set", "a=1"], "recipe look has no such parameter"),
    ],
)
def test_a_wrong_name_is_refused(base, capsys, facts, arguments, problem):
    base.pattern(more=LOOK)
    code, _, err = said(capsys, "--root", str(base.root), "doctor", *arguments)
    assert code == 2
    assert problem in err
