"""Targets that kbtool does not compile: Python modules, and libraries that commands build."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import assert_passed_or_noisy

from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.kinds.build import BuildResult
from kbtool.model.run import Run

pytestmark = pytest.mark.slow

MANIFEST = """\
# yaml-language-server: $schema=../../schemas/kernel.json
id: softcap
title: Soft cap
summary: "out = 30 tanh(x / 30)"
namespace: softcap
harness: harness.py
targets:
  eager: {sources: [constants.py, softcap.py], env: {SOFTCAP: "30"}}
  made:
    sources: [Makefile, softcap.cpp, by_ctypes.py]
    commands: [make -f ../sources/Makefile]
    produces: libsoftcap.so
case_fields:
  n: {type: int, default: 8, help: elements, minimum: 1}
case_sets:
  small: {title: A few sizes, cases: [{n: 1}, {n: 1000}]}
"""
RECIPE = """\
# yaml-language-server: $schema=../schemas/pattern.json
id: P02
number: 2
title: Validate and time
summary: The recipes of our kernels.
stated_status: proposed
problem: A benchmark times what was changed since.
solution: One recipe does all.
when_to_use: [After every change of a kernel.]
when_not: [For another kernel.]
recipes:
  - name: softcap
    title: Validate and time softcap
    kernel: softcap
    parameters: {target: {type: str, default: auto, help: target}}
    steps:
      - {id: build, kind: build, title: B, expected: 1 s, timeout: 5 min, target: "${target}"}
      - {id: validate, kind: validate, title: V, expected: 5 s, timeout: 2 min, case_sets: small}
      - {id: benchmark, kind: benchmark, title: T, expected: 5 s, timeout: 2 min,
         case_sets: small, samples: 5}
"""
FILES = {
    "constants.py": 'import os\n\nCAP = float(os.environ["SOFTCAP"])\n',
    "softcap.py": (
        "import torch\nfrom constants import CAP\n\n\n"
        "def softcap(x):\n    return CAP * torch.tanh(x / CAP)\n"
    ),
    "Makefile": (
        "libsoftcap.so: ../sources/softcap.cpp\n"
        "\techo compiling\n\tc++ -shared -fPIC -O2 -o $@ $<\n"
    ),
    "softcap.cpp": (
        "#include <cmath>\n"
        'extern "C" void softcap(const float* x, float* out, long n) {\n'
        "  for (long i = 0; i < n; ++i) out[i] = 30 * std::tanh(x[i] / 30);\n}\n"
    ),
    "by_ctypes.py": """\
import ctypes
import sys
import types

import torch

library = ctypes.CDLL(next(path for path in torch.ops.loaded_libraries if "softcap" in path))


def softcap(x):
    out = torch.empty_like(x)
    pointers = (ctypes.c_void_p(t.data_ptr()) for t in (x, out))
    library.softcap(*pointers, ctypes.c_long(x.numel()))
    return out


sys.modules["softcap"] = types.SimpleNamespace(softcap=softcap)
""",
    "harness.py": """\
import softcap
import torch

SUBJECT, BASELINE_ARM, PEERS = "softcap", "torch", ("torch",)


def make_inputs(case, *, device, seed):
    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": 50 * torch.randn(case["n"], generator=generator, device=device)}


def reference(inputs):
    return {"out": 30 * torch.tanh(inputs["x"].double() / 30)}


def baseline(inputs):
    return {"out": 30 * torch.tanh(inputs["x"] / 30)}


def call(inputs, *, variant=None, poison=True):
    return {"out": softcap.softcap(inputs["x"])}


def workspace_bytes(inputs, variant=None):
    return 0


def arms(inputs, variants=(), peers=()):
    timed = {SUBJECT: lambda: softcap.softcap(inputs["x"])}
    return timed | {name: lambda: baseline(inputs)["out"] for name in peers}


def work(case):
    return {"bytes": 8 * case["n"], "flops": 3 * case["n"]}
""",
}


@pytest.fixture
def base(tmp_path, kbtool):
    assert kbtool("init", ".", root=tmp_path).code == 0
    folder = tmp_path / "kernels" / "softcap"
    folder.mkdir()
    (folder / "kernel.yaml").write_text(MANIFEST)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (tmp_path / "patterns" / "P02-softcap.yaml").write_text(RECIPE)
    return tmp_path


def newest(base: Path) -> Run:
    files = sorted(base.glob("sessions/*/runs/*.json"), key=lambda path: path.stat().st_mtime)
    return Run.model_validate_json(files[-1].read_bytes())


def edit(path: Path, find: str, put: str) -> None:
    text = path.read_text()
    assert find in text
    path.write_text(text.replace(find, put))


def built(run: Run) -> BuildResult:
    result = run.steps[0].result
    assert isinstance(result, BuildResult)
    return result


def test_a_kernel_in_python_is_validated_and_timed(base, kbtool):
    checked = kbtool("check", root=base)
    assert checked.code == 0, checked.out
    done = kbtool("run-recipe", "softcap", root=base)
    run = newest(base)
    assert_passed_or_noisy(run, done)
    assert "2 modules in Python, nothing to compile" in done.err
    assert set(built(run).sources) == {"constants.py", "softcap.py"}
    assert run.identity is not None
    assert set(run.identity.solution) == {
        "kernels/softcap/constants.py",
        "kernels/softcap/softcap.py",
    }
    assert kbtool("check", root=base).code == 0


def test_what_compiles_in_its_first_call_is_recorded_apart(base, kbtool):
    module = base / "kernels" / "softcap" / "softcap.py"
    module.write_text(
        "import time\n" + module.read_text().replace(
            "def softcap(x):\n",
            "compiled = []\n\n\ndef softcap(x):\n"
            "    if not compiled:\n        time.sleep(1.2)\n        compiled.append(1)\n",
        )
    )  # fmt: skip
    done = kbtool("run-recipe", "softcap", root=base)
    result = newest(base).steps[2].result
    assert isinstance(result, BenchmarkResult), done.err
    first, second = (case.first_call_us["softcap"] for case in result.cases)
    assert first > 1.2e6 > second
    assert all(max(case.arms["softcap"].samples_us) < 1e6 for case in result.cases)
    assert "longest first calls, which are not in the times: softcap 1." in done.out


def test_a_wrong_kernel_in_python_fails(base, kbtool):
    module = base / "kernels" / "softcap" / "softcap.py"
    module.write_text(module.read_text().replace("tanh", "sin"))
    done = kbtool("run-recipe", "softcap", root=base)
    assert done.code == 1 and "2 of 2 cases wrong" in done.err


def test_a_module_that_changes_after_validation_is_refused(base, kbtool):
    """The benchmark stops, the module is exchanged, and the run is resumed."""
    pattern = base / "patterns" / "P02-softcap.yaml"
    pattern.write_text(pattern.read_text().replace("timeout: 2 min,\n", "timeout: 1 ms,\n"))
    assert kbtool("run-recipe", "softcap", root=base).code == 4
    pattern.write_text(RECIPE)
    module = base / "kernels" / "softcap" / "softcap.py"
    module.write_text(module.read_text().replace("tanh", "sin"))
    done = kbtool("run-recipe", "--resume", newest(base).id, root=base)
    assert done.code == 2 and "softcap.py" in done.err


@pytest.mark.parametrize(
    ("file", "find", "put", "message"),
    [
        ("kernel.yaml", "constants.py, ", "", "list constants.py in the target's sources"),
        ("kernel.yaml", "constants.py, softcap.py", "softcap.py, constants.py", "'constants'"),
        ("kernel.yaml", "constants.py, softcap.py", "torch.py", "rename the file"),
        ("softcap.py", "import torch", "import nothing_here", "No module named 'nothing_here'"),
        ("kernel.yaml", 'env: {SOFTCAP: "30"}', "packages: [not-there]", "pip install not-there"),
        ("kernel.yaml", 'env: {SOFTCAP: "30"}', "device: cuda", "no card to run it on"),
    ],
)
def test_what_a_python_target_lacks_is_named(base, kbtool, file, find, put, message):
    folder = base / "kernels" / "softcap"
    (folder / "torch.py").write_text("softcap = 1\n")
    edit(folder / file, find, put)
    done = kbtool("run-recipe", "softcap", "--set", "target=eager", root=base)
    assert done.code in {1, 3} and message in done.err, done.err


@pytest.mark.parametrize(
    ("find", "put", "message"),
    [
        ("constants.py, softcap.py", "softcap.py, a/softcap.py", "two modules are called"),
        ("constants.py, softcap.py", "my-kernel.py", "no module has its name"),
        ("    produces: libsoftcap.so\n", "", "belong together"),
        ("produces: libsoftcap.so", "produces: ../x.so", "not inside the build folder"),
        ("[make -f ../sources/Makefile]", "['make \"']", "No closing quotation"),
        ("produces: libsoftcap.so", "produces: libsoftcap.so\n    flags: [-O3]", "give it to them"),
    ],
)
def test_check_refuses_such_a_manifest(base, kbtool, find, put, message):
    edit(base / "kernels" / "softcap" / "kernel.yaml", find, put)
    done = kbtool("check", root=base)
    assert done.code == 1 and message in done.out, done.out


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_commands_build_a_library_once(base, kbtool):
    arguments = ("run-recipe", "softcap", "--set", "target=made")
    done = kbtool(*arguments, "-v", root=base)
    first = newest(base)
    assert_passed_or_noisy(first, done)
    assert "built by make -f ../sources/Makefile" in done.err and "compiling" in done.err
    assert set(built(first).sources) == {"Makefile", "softcap.cpp", "by_ctypes.py"}
    done = kbtool(*arguments, root=base)
    assert "found, nothing compiled" in done.err
    assert built(newest(base)).sha256 == built(first).sha256
    # A change that the commands have nothing to do for still is another library to kbtool, and
    # what they made before is found.
    makefile = base / "kernels" / "softcap" / "Makefile"
    makefile.write_text(makefile.read_text() + "# a comment\n")
    done = kbtool(*arguments, "-v", root=base)
    assert_passed_or_noisy(newest(base), done)
    assert "built by make" in done.err and "compiling" not in done.err
    assert built(newest(base)).key != built(first).key


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_commands_do_not_see_the_make_that_kbtool_was_started_from(base, kbtool):
    """It would announce folders ahead of the error, and pass on its own options."""
    source = base / "kernels" / "softcap" / "softcap.cpp"
    source.write_text("no C++")
    outer = {"MAKELEVEL": "1", "MAKEFLAGS": "w -n"}
    done = kbtool("run-recipe", "softcap", "--set", "target=made", root=base, env=outer)
    assert done.code == 1 and "error:" in done.err and "directory" not in done.err, done.err


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize(
    ("file", "find", "put", "message"),
    [
        ("softcap.cpp", "std::tanh", "std::nothing", "not a member of"),
        ("kernel.yaml", "Makefile, softcap.cpp", "Makefile", "No rule to make target"),
        ("kernel.yaml", "libsoftcap.so", "libother.so", "did not make libother.so; there is"),
        ("kernel.yaml", "[make ", "[make-not-here ", "make-not-here: No such file or directory"),
        ("softcap.cpp", "30 * ", "31 * ", "2 of 2 cases wrong"),
    ],
)
def test_what_commands_do_not_build_is_told(base, kbtool, file, find, put, message):
    edit(base / "kernels" / "softcap" / file, find, put)
    done = kbtool("run-recipe", "softcap", "--set", "target=made", root=base)
    assert done.code in {1, 3} and message in done.err, done.err
