"""Forked commands and workers behave as those that an interpreter starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Result

from kbtool.model.run import Run

NOISY = 75


def test_a_forked_run_reads_and_records_what_a_started_one_does(
    second_kernel_base: Path, kbtool: Callable[..., Result], started_kbtool: Callable[..., Result]
) -> None:
    def run(start: Callable[..., Result], recipe: str) -> Run:
        done = start("run-recipe", recipe, "--json", root=second_kernel_base)
        assert done.code in {0, NOISY}, done.err
        return Run.model_validate_json(
            (second_kernel_base / json.loads(done.out)["path"]).read_bytes()
        )

    def told(made: Run) -> list[tuple[str, ...]]:
        # Other processes make a benchmark noisy, now and then.
        return [
            (step.id, step.status.replace("noisy", "passed"), type(step.result).__name__)
            for step in made.steps
        ]

    for recipe in ("add", "minimise"):
        forked, started = run(kbtool, recipe), run(started_kbtool, recipe)
        assert forked.identity == started.identity
        assert forked.machine == started.machine
        assert told(forked) == told(started)


@pytest.mark.slow
def test_a_forked_command_has_the_exit_status_and_folder_of_a_started_one(
    tmp_path: Path, kbtool: Callable[..., Result], started_kbtool: Callable[..., Result]
) -> None:
    for arguments in (["--version"], ["costs", "--by", "nothing"], ["costs"]):
        started = started_kbtool(*arguments)
        started.err = started.err.replace(f"{sys.executable} -m kbtool", "kbtool")
        assert kbtool(*arguments) == started, arguments
