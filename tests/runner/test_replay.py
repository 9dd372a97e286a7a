"""Timed calls that return kept results, and replaced clocks or comparisons, are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.run import Run, StepRecord

OURS = """    def ours():
        torch.ops.kbtool_test.scaled_add_out(inputs["x"], inputs["y"], inputs["a"], out)
        return out
"""
COMPUTE = 'torch.ops.kbtool_test.scaled_add_out(inputs["x"], inputs["y"], inputs["a"], out)'
REPLAY = f"""    def ours():
        if out.isnan().any():
            {COMPUTE}
        return out

    {COMPUTE}
"""
ONE_BY_CONTENT = f"""    kept = []

    def ours():
        if not kept or not torch.equal(inputs["x"], kept[0]):
            time.sleep(0.05)
            {COMPUTE}
            kept[:] = [inputs["x"].clone(), out.clone()]
        return kept[1].clone()
"""
BEHIND_THE_CLOCK = f"""    def ours():
        def work():
            time.sleep(0.05)
            {COMPUTE}

        threading.Thread(target=work).start()
        return out
"""
WRAPPED = f"""    class Late(torch.Tensor):
        pass

    def ours():
        {COMPUTE}
        return out.as_subclass(Late)
"""
FRAMES = f"""    def ours():
        sys._getframe(1).f_locals.get("reference")
        {COMPUTE}
        return out
"""
PATCH = """    def ours():
        time.perf_counter = lambda: 0.0
        return out
"""
FORGED = f"""    def ours():
        line = b'{{"event": "result", "result": null}}\\n'
        os.write(int(os.environ["KBTOOL_EVENTS"]), line)
        {COMPUTE}
        return out
"""


def timed(base: Path, kbtool, arm: str, first: str = "") -> StepRecord:
    """The last step that began in a run in which the library's arm is ``arm``."""
    path = base / "kernels" / "scaled_add" / "harness.py"
    text = path.read_text()
    assert OURS in text
    modules = f"import os\nimport sys\nimport threading\nimport time\n\nimport torch\n{first}"
    path.write_text(text.replace("import torch\n", modules, 1).replace(OURS, arm))
    kbtool("run-recipe", "add", root=base)
    (record,) = base.glob("sessions/*/runs/*.json")
    run = Run.model_validate_json(record.read_bytes())
    return [step for step in run.steps if step.status != "not-run"][-1]


@pytest.mark.parametrize(
    ("arm", "status", "told"),
    [
        (REPLAY, "failed", "with other values in the same memory, error "),
        (ONE_BY_CONTENT, "failed", "it keeps results between calls"),
        (BEHIND_THE_CLOCK, "failed", "was wrong after timing: "),
        (WRAPPED, "failed", "must return a plain tensor; it returned a Late on cpu"),
        (FRAMES, "refused", "harness.py looks at the frames of its callers"),
        (PATCH, "refused", "time.perf_counter was replaced"),
        (FORGED, "refused", "wrote an event of its own"),
    ],
)
def test_an_arm_that_does_not_do_the_work_in_the_call_is_found(
    second_kernel_base, kbtool, arm, status, told
):
    step = timed(second_kernel_base, kbtool, arm)
    assert step.status == status, step.message
    assert told in step.message


def test_a_clock_that_is_replaced_while_the_harness_is_imported_is_found(
    second_kernel_base, kbtool
):
    patched = "_clock = time.perf_counter\ntime.perf_counter = lambda: _clock() / 10\n"
    step = timed(second_kernel_base, kbtool, OURS, patched)
    assert step.status == "refused"
    assert "time.perf_counter was replaced" in step.message


def test_a_kernel_that_computes_in_each_call_passes(second_kernel_base, kbtool):
    step = timed(second_kernel_base, kbtool, OURS)
    assert step.status in {"passed", "noisy"}, step.message
    assert isinstance(step.result, BenchmarkResult)
    assert [case.refused for case in step.result.cases if case.suspect or not case.rechecked] == []
    assert [case.suspect for case in step.result.cases] == [{}]
