"""Nothing that takes part in a run changes unseen between its steps, or before it is resumed.

Where it matters what a worker has loaded, an interpreter starts it, as for users.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from commands import assert_passed_or_noisy

from kbtool.gpu.build_plan import plan_build
from kbtool.model.run import Run
from kbtool.store.tree import KnowledgeBase

FAST = "def scale():\n    return 1.0\n"
HIDDEN_IMPORT = "try:\n    import fast\nexcept BaseException:\n    pass\n"


class Attached:
    """The kernel ``scaled_add`` in a knowledge base of its own, to be edited between steps."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "kernels" / "scaled_add"
        self.harness = self.folder / "harness.py"

    def edit(self, file: str, *pairs: tuple[str, str]) -> None:
        text = (self.folder / file).read_text()
        for old, new in pairs:
            assert old in text, old
            text = text.replace(old, new)
        (self.folder / file).write_text(text)

    def load(self, code: str) -> None:
        """Let the harness import from its own folder, and do so."""
        beside = "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n"
        self.edit("harness.py", ("import torch\n", f"import torch\n{beside}{code}"))

    def between_validation_and_benchmark(self, code: str) -> None:
        """Run Python between the two steps, as an editor's user would who does not wait."""
        path = self.root / "patterns" / "P01.yaml"
        step = {
            "id": "edit", "kind": "command", "title": "Edit", "expected": "1 s",
            "timeout": "1 min", "run": ["python3", "-c", code],
        }  # fmt: skip
        pattern = path.read_text()
        line = next(line for line in pattern.splitlines() if "{id: benchmark," in line)
        path.write_text(pattern.replace(line, f"      - {json.dumps(step)}\n{line}"))

    def last_run(self) -> Run:
        files = sorted(
            self.root.glob("sessions/*/runs/*.json"), key=lambda path: path.stat().st_mtime_ns
        )
        return Run.model_validate_json(files[-1].read_bytes())


@pytest.fixture
def attached(second_kernel_base: Path) -> Attached:
    return Attached(second_kernel_base)


def test_a_run_records_the_hash_of_each_file_that_took_part(attached, started_kbtool):
    attached.edit(
        "harness.py",
        ("import torch\n", "import torch\nopen(__file__.replace('.py', '.json')).read()\n"),
    )
    (attached.folder / "harness.json").write_text("{}")
    done = started_kbtool("run-recipe", "add", root=attached.root)
    run = attached.last_run()
    assert_passed_or_noisy(run, done)
    identity = run.identity
    assert set(identity.problem) == {
        f"kernels/scaled_add/{name}" for name in ("kernel.yaml", "harness.py", "harness.json")
    }
    assert identity.solution == {} and identity.libraries == {}
    assert identity.packages["torch"].startswith("2.")


ANY_BOUND = "def error_scale(inputs):\n    return {'out': 1e9}\n\n\n"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("harness.py", "def reference(inputs):", f"{ANY_BOUND}def reference(inputs):"),
        ("kernel.yaml", "{name: some, n: 1000, a: -0.5}", "{name: some, n: 1000, a: 0.0}"),
        ("helper.py", "1.0", "1e9"),
        ("bounds.json", "1", "9"),
    ],
)
def test_an_interrupted_run_resumes_only_with_unchanged_problem_files(
    attached, kbtool, tmp_path, file, old, new
):
    """A wrong kernel passed once: its validation timed out, its bound was raised, and resumed."""
    (attached.folder / "helper.py").write_text(FAST)
    (attached.folder / "bounds.json").write_text("1")
    busy = tmp_path / "busy"
    attached.edit("scaled_add.cpp", ("a * x[i] + y[i]", "a * x[i] - y[i]"))
    attached.load("import helper\nopen(__file__.replace('harness.py', 'bounds.json')).read()\n")
    making = "def make_inputs(case, *, device, seed):\n"
    attached.edit(
        "harness.py",
        (making, f"{making}    os.path.exists({str(busy)!r}) and os._exit(7)\n"),
    )
    busy.touch()
    assert kbtool("run-recipe", "add", root=attached.root).code != 0
    run = attached.last_run()
    assert [step.status for step in run.steps[1:3]] == ["passed", "crashed"]
    busy.unlink()
    kept = (attached.folder / file).read_text()
    attached.edit(file, (old, new))
    done = kbtool("run-recipe", "--resume", run.id, root=attached.root)
    assert done.code == 2
    changed = f"kernels/scaled_add/{file} has changed since run {run.id}; start a new one: "
    assert changed in done.err
    (attached.folder / file).write_text(kept)
    again = kbtool("run-recipe", "--resume", run.id, root=attached.root)
    assert "has changed" not in again.err
    assert attached.last_run().steps[2].status == "failed"  # it is wrong, as it was


@pytest.mark.parametrize("caught", [False, True])
def test_a_python_kernel_edited_after_validation_is_refused(attached, started_kbtool, caught):
    """Also where the harness hides the error."""
    (attached.folder / "fast.py").write_text(FAST)
    attached.load(HIDDEN_IMPORT if caught else "import fast\n")
    attached.between_validation_and_benchmark(
        "from pathlib import Path; p = Path('kernels/scaled_add/fast.py');"
        " p.write_text(p.read_text().replace('1.0', '2.0'))"
    )
    done = started_kbtool("run-recipe", "add", root=attached.root)
    assert done.code == 1
    benchmark = attached.last_run().steps[-1]
    assert (benchmark.status, benchmark.result) == ("refused", None)
    changed = "kernels/scaled_add/fast.py has changed since this run first read it"
    assert changed in benchmark.message


def test_a_hidden_folder_of_a_kernel_hides_no_edit(attached, started_kbtool):
    hidden = attached.folder / ".fast"
    hidden.mkdir()
    (hidden / "fast.py").write_text(FAST)
    attached.load(f"sys.path.insert(0, {str(hidden)!r})\nimport fast\n")
    attached.between_validation_and_benchmark(
        f"open({str(hidden / 'fast.py')!r}, 'a').write('# faster')"
    )
    started_kbtool("run-recipe", "add", root=attached.root)
    run = attached.last_run()
    assert run.identity is not None
    assert "kernels/scaled_add/.fast/fast.py" in run.identity.problem
    assert run.steps[-1].status == "refused"
    assert run.steps[-1].message is not None
    assert "kernels/scaled_add/.fast/fast.py has changed since" in run.steps[-1].message


@pytest.mark.parametrize("caught", [False, True])
def test_code_loaded_only_for_the_benchmark_is_refused(attached, started_kbtool, caught):
    (attached.folder / "fast.py").write_text(FAST)
    attached.load("")
    load = textwrap.indent(HIDDEN_IMPORT if caught else "import fast\n", "    ")
    timed = "    timed = {SUBJECT: ours}\n"
    attached.edit("harness.py", (timed, f"{load}{timed}"))
    assert started_kbtool("run-recipe", "add", root=attached.root).code == 1
    benchmark = attached.last_run().steps[-1]
    assert (benchmark.status, benchmark.result) == ("refused", None)
    unread = "kernels/scaled_add/fast.py was not read when the library was validated"
    assert unread in benchmark.message


def test_stale_byte_code_of_an_edited_module_does_not_run(attached, started_kbtool):
    """An edit of the same size, with the time of the old file, goes unseen by Python's cache."""
    fast = attached.folder / "fast.py"
    fast.write_text(FAST)
    attached.load("import fast\n")
    scaled = 'return {"out": inputs["a"] *'
    attached.edit("harness.py", (scaled, f"{scaled} fast.scale() *"))
    made = ["-c", "import py_compile, sys; py_compile.compile(sys.argv[1])", str(fast)]
    subprocess.run([sys.executable, *made], check=True)
    times = (fast.stat().st_atime_ns, fast.stat().st_mtime_ns)
    fast.write_text(FAST.replace("1.0", "2.0"))
    os.utime(fast, ns=times)
    assert started_kbtool("run-recipe", "add", root=attached.root).code == 1
    run = attached.last_run()
    digest = hashlib.sha256(fast.read_bytes()).hexdigest()
    assert run.identity.problem["kernels/scaled_add/fast.py"] == digest
    assert run.steps[2].result.cases[0].passed is False


def linked_library(folder: Path, value: int) -> None:
    source = folder / "factor.cpp"
    source.write_text(f'extern "C" float factor() {{ return {value}; }}\n')
    subprocess.run(
        ["c++", "-shared", "-fPIC", "-o", str(folder / "libfactor.so"), str(source)], check=True
    )


def test_a_linked_library_is_part_of_what_is_measured(attached, started_kbtool, tmp_path):
    linked_library(tmp_path, 1)
    attached.edit(
        "scaled_add.cpp",
        ("void scaled_add", 'extern "C" float factor();\nvoid scaled_add'),
        ("a * x[i]", "factor() * a * x[i]"),
    )
    flags = json.dumps([f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}", "-lfactor"])
    attached.edit("kernel.yaml", ("    headers:", f"    link_flags: {flags}\n    headers:"))
    manifest = KnowledgeBase(attached.root).kernels["scaled_add"].record

    def key() -> str:
        return plan_build(manifest, attached.folder, "cpu", tmp_path / "cache").key

    before = key()
    attached.between_validation_and_benchmark(
        f"import os; os.chdir({str(tmp_path)!r});"
        " os.rename('libfactor.so', 'old.so'); os.rename('new.so', 'libfactor.so')"
    )
    new = tmp_path / "new"
    new.mkdir()
    linked_library(new, 2)
    (new / "libfactor.so").rename(tmp_path / "new.so")
    assert started_kbtool("run-recipe", "add", root=attached.root).code == 1
    run = attached.last_run()
    assert set(run.identity.libraries) == {"libfactor.so"}
    assert run.steps[1].result.linked == run.identity.libraries
    assert run.steps[-1].status == "refused"
    assert "libfactor.so has changed since this run first read it" in run.steps[-1].message
    assert key() != before


def test_a_run_without_recorded_hashes_is_not_resumed(attached, kbtool, tmp_path):
    attached.edit("harness.py", ("def make_inputs(", "def makes_inputs("))
    kbtool("run-recipe", "add", root=attached.root)
    (path,) = attached.root.glob("sessions/*/runs/*.json")
    record = json.loads(path.read_text())
    record["identity"] = None
    path.write_text(Run.model_validate(record).sealed().model_dump_json())
    done = kbtool("run-recipe", "--resume", record["id"], root=attached.root)
    assert done.code == 2
    assert "was made before runs recorded what the harness reads; start a new one: " in done.err
