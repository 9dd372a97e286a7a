"""What an engine starts for each attempt: run the recipe where the job is, and bring the run back.

It needs kbtool and the folder of the attempt; no repository and no git. The tree is unpacked once
on a machine, so that the cells that run there share what was built.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbtool.gpu.probe import read_card
from kbtool.model.errors import UserError
from kbtool.store.carried import unpack
from kbtool.store.lock import lock
from kbtool.store.write import write_new
from kbtool.sweeps import processes
from kbtool.sweeps.folder import AttemptFolder, Claim, End

GRACE_S = 20.0
"""Seconds that a run has to write its record once the engine ends it."""
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
"""Slurm sends SIGTERM to a job that it cancels or preempts; submitit asks for SIGUSR2 before."""


def run_attempt(path: str) -> None:
    """Run the attempt in the folder ``path``, unless somebody gave it up or another job has it."""
    began = _now()
    attempt = AttemptFolder(Path(path))
    card = read_card()
    engine = attempt.request()["engine"]
    claim = Claim(_job_of(engine), began, card.get("name") or _cpu(), int(card.get("cards") or 0))
    if not attempt.claimed_by(claim):
        held, end = attempt.claim, attempt.end
        if held is None or held.job != claim.job or (end is not None and end.signal is None):
            return
        # The engine ended the same job and put it into its queue again. The claim goes last.
        for name in ("ended.json", "run.json", "claim.json"):
            (attempt.path / name).unlink(missing_ok=True)
        if not attempt.claimed_by(claim):
            return
    # Who ends a job asks until it is gone: it may not end before it has written how it ended.
    with _caught() as caught:
        try:
            end = _run(attempt, caught)
        except (UserError, OSError) as error:
            end = End(_now(), None, None, str(error))
        attempt.ended_by(end)


def _job_of(engine: str) -> str:
    """The engine's id of the job that this process is in."""
    if engine == "slurm":
        task = os.environ.get("SLURM_ARRAY_TASK_ID")
        array = os.environ.get("SLURM_ARRAY_JOB_ID")
        return f"{array}_{task}" if task and array else os.environ["SLURM_JOB_ID"]
    return processes.name_of(int(os.environ.get("SUBMITIT_LOCAL_JOB_ID") or os.getpid()))


def _run(attempt: AttemptFolder, caught: Sequence[signal.Signals]) -> End:
    request = attempt.request()
    root = _unpacked(Path(request["archive"]), request["digest"])
    if caught:
        return End(_now(), None, caught[0].name, None)
    settings = [f"--set={name}={value}" for name, value in request["parameters"].items()]
    command = [
        sys.executable, "-m", "kbtool", "--root", str(root), "run-recipe", request["recipe"],
        *settings, "--session", request["session"], "--force", "--json", "--progress", "plain",
    ]  # fmt: skip
    out = attempt.path / "out.json"
    with out.open("wb") as answer, (attempt.path / "log").open("ab") as log:
        before = log.tell()  # what this job wrote before it was put back into its queue
        # In the folder of the attempt: kbtool is the one that is installed, not a tree's.
        child = subprocess.Popen(
            command, cwd=attempt.path, stdin=subprocess.DEVNULL, stdout=answer, stderr=log,
            preexec_fn=_as_child,
        )  # fmt: skip
        status = _waited(child, caught)
    run = _RUN.search((attempt.path / "log").read_bytes()[before:].decode("utf-8", "replace"))
    record = root / "sessions" / request["session"] / "runs" / f"{run[1] if run else ''}.json"
    if record.is_file():
        write_new(attempt.path / "run.json", record.read_bytes())
    message = _said(out).get("error", {}).get("message")
    return End(_now(), status, caught[0].name if caught else None, message)


_RUN = re.compile(r"^run (\S+) in session ", re.M)
"""What a run says on stderr as it begins; of one that is ended, nothing may come on stdout."""


def _unpacked(archive: Path, digest: str) -> Path:
    """The tree of an archive, on this machine."""
    folder = own_folder()
    root = folder / digest[:32]
    with lock(folder / f"{digest[:32]}.lock"):
        unpack(archive, digest, root)
    return root


def own_folder() -> Path:
    """Where this machine keeps what cells get and make.

    Raises:
        UserError: others could write into it.
    """
    folder = Path(tempfile.gettempdir()) / f"kbtool-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if folder.is_symlink() or about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise UserError(f"{folder} can be written by others: remove it, or set TMPDIR")
    return folder


def _waited(child: subprocess.Popen[bytes], caught: Sequence[signal.Signals]) -> int:
    """The exit status of the run, which gets its time to write a record once a signal came."""
    while not caught:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(0.2)
    # Slurm has sent the signal to the run too, and a second one would find it while it ends.
    for give_up, seconds in ((child.terminate, 2.0), (child.kill, GRACE_S)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(seconds)
        give_up()
    return child.wait()


@contextlib.contextmanager
def _caught() -> Iterator[Sequence[signal.Signals]]:
    """Collect the signals by which an engine ends a job, in place of ending."""
    caught: list[signal.Signals] = []
    before = {
        one: signal.signal(one, lambda number, _: caught.append(signal.Signals(number)))
        for one in _ENDING
        if signal.getsignal(one) is not signal.SIG_IGN  # as Ctrl-C of the terminal that began it
    }
    try:
        yield caught
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _as_child() -> None:
    """The run ends when its cell is killed: nobody would bring its record home."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    # Slurm warns every process of a job. The cell asks the run to end, and it writes its record.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def _said(out: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError, OSError):
        said = json.loads(out.read_bytes())
        if isinstance(said, dict):
            return said
    return {}


def _cpu() -> str:
    from kbtool.gpu.probe import probe_machine

    return probe_machine(card={}, driver=lambda: None).cpu


def _now() -> datetime:
    return datetime.now(UTC)


if __name__ == "__main__":
    run_attempt(sys.argv[1])
