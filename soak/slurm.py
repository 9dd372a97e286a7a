"""A cluster of Slurm on this machine alone, as one node without accounting: Debian's slurm-wlm.

    with cluster(folder) as environment: ...        SLURM_CONF and the like for its commands

It listens on this machine only, asks nobody for a password (auth/none), and has no sacct.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel")
STARTS_S = 30.0

_CONFIG = """\
ClusterName=one
SlurmctldHost={host}(localhost)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
CryptoType=crypto/none
SlurmctldPort={controller}
SlurmdPort={daemon}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
ReturnToService=2
KillWait=15
MinJobAge=300
SlurmdTimeout=20
InactiveLimit=0
PropagateResourceLimits=NONE
GresTypes=gpu
NodeName=node NodeHostname={host} NodeAddr=localhost CPUs={cores} Gres=gpu:2 State=UNKNOWN
PartitionName=main Nodes=node Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """The programs of Slurm that this machine lacks."""
    return [one for one in PROGRAMS if shutil.which(one) is None]


class Cluster(NamedTuple):
    """A cluster that runs."""

    folder: Path
    environment: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]]

    def start(self, name: str) -> None:
        """Start a daemon, slurmctld or slurmd."""
        self.daemons[name] = subprocess.Popen(
            [name, "-D", *(["-N", "node"] if name == "slurmd" else [])],
            env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def stop(self, name: str) -> None:
        """Stop a daemon, which saves its state."""
        self.daemons[name].terminate()
        self.daemons[name].wait()

    def kill(self, name: str) -> None:
        """Kill a daemon."""
        self.daemons[name].kill()
        self.daemons[name].wait()

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        ).stdout


@contextlib.contextmanager
def cluster(folder: Path, cores: int = 2) -> Iterator[Cluster]:
    """A cluster with its files in ``folder``, until the block ends.

    Raises:
        RuntimeError: it does not come up.
    """
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    controller, daemon = free_ports(2)
    config = folder / "slurm.conf"
    config.write_text(
        _CONFIG.format(
            folder=folder, user=getpass.getuser(), host=socket.gethostname().partition(".")[0],
            cores=cores, controller=controller, daemon=daemon,
        )
    )  # fmt: skip
    # Simulated cards: Slurm looks only whether their files exist.
    cards = [folder / f"card{number}" for number in range(2)]
    for card in cards:
        card.touch()
    (folder / "gres.conf").write_text("".join(f"Name=gpu File={card}\n" for card in cards))
    made = Cluster(folder, {**os.environ, "SLURM_CONF": str(config)}, {})
    try:
        for name in ("slurmctld", "slurmd"):
            made.start(name)
        _wait_for_node(made)
        yield made
    finally:
        made.ask("scancel", "--user", getpass.getuser())
        for process in made.daemons.values():
            process.terminate()
        for process in made.daemons.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def _wait_for_node(made: Cluster) -> None:
    end = time.monotonic() + STARTS_S
    while "idle" not in made.ask("sinfo", "-h", "-o", "%t"):
        if time.monotonic() > end:
            logs = [made.folder / f"{name}.log" for name in made.daemons]
            said = "\n".join(one.read_text()[-2000:] for one in logs if one.exists())
            raise RuntimeError(f"the cluster does not come up:\n{said}")
        time.sleep(0.2)


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]
