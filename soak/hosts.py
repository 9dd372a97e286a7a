"""Hosts that ssh reaches, on this machine alone: servers of OpenSSH, with keys of their own.

    with hosts(folder, "node-a", "node-b") as made: ...        made.environment has their ssh first

They listen on this machine only. Nothing of the user's is read or written: an `ssh` that stands
first in PATH takes the configuration from ``folder``.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from soak.slurm import free_ports

STARTS_S = 30.0
_SERVER = """\
ListenAddress localhost
Port {port}
HostKey {folder}/key
PidFile none
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
MaxStartups 100
SetEnv {environment}
"""
_CLIENT = """\
Host {name}
  HostName localhost
  Port {port}
  User {user}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  LogLevel ERROR
"""
_SEPARATION = Path("/run/sshd")
"""The empty folder that a server needs which root starts."""


def missing() -> list[str]:
    """What this machine lacks."""
    return [one for one in ("sshd", "ssh", "ssh-keygen") if _program(one) is None]


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin")


class Hosts(NamedTuple):
    """Hosts that run."""

    folder: Path
    environment: dict[str, str]
    servers: dict[str, subprocess.Popen[bytes]]

    def start(self, name: str) -> None:
        """Start the server of a host."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.servers[name] = subprocess.Popen(
                [str(_program("sshd")), "-D", "-e", "-f", str(self.folder / name)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + STARTS_S
        answers = ["ssh", name, "true"]
        while subprocess.run(answers, env=self.environment, stdin=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, check=False).returncode:  # fmt: skip
            if time.monotonic() > end:
                raise RuntimeError((self.folder / f"{name}.log").read_text()[-2000:])
            time.sleep(0.1)

    def connections(self, name: str) -> list[int]:
        """The processes of its server that serve a connection each."""
        server = self.servers[name].pid
        found = subprocess.run(["pgrep", "-P", str(server)], capture_output=True, check=False)
        return [int(one) for one in found.stdout.split()]

    def cut(self, name: str) -> int:
        """Break the connections to it; how many there were."""
        there = self.connections(name)
        for one in there:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        return len(there)

    def stop(self, name: str) -> None:
        """Let it answer no more; what runs on it goes on."""
        self.cut(name)
        self.servers[name].kill()
        self.servers[name].wait()


@contextlib.contextmanager
def hosts(folder: Path, *names: str, **given: str) -> Iterator[Hosts]:
    """Hosts of these names, with their files in ``folder``, until the block ends.

    Args:
        folder: a new folder.
        names: what ssh calls them.
        given: variables of their environment.

    Raises:
        RuntimeError: one does not come up.
    """
    tmp, commands = folder / "tmp", folder / "bin"
    for one in (tmp, commands):
        one.mkdir(parents=True)
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")]
    subprocess.run(key, check=True)
    # A host's python3 is this one, with the kbtool that is tested.
    kbtool = Path(__file__).parents[1]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"PATH": path, "TMPDIR": tmp, "PYTHONPATH": kbtool, **given}
    environment = " ".join(f"{name}={value}" for name, value in variables.items())
    config = []
    public = " ".join((folder / "key.pub").read_text().split()[:2])
    known = []
    for name, port in zip(names, free_ports(len(names)), strict=True):
        about = {"name": name, "port": port, "folder": folder, "user": getpass.getuser()}
        (folder / name).write_text(_SERVER.format(**about, environment=environment))
        config.append(_CLIENT.format(**about))
        known.append(f"[localhost]:{port} {public}\n")
    (folder / "config").write_text("".join(config))
    (folder / "known").write_text("".join(known))
    ssh = commands / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F "{folder}/config" "$@"\n')
    ssh.chmod(0o755)
    made = Hosts(folder, {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}, {})
    with contextlib.ExitStack() as stack:
        if os.getuid() == 0 and not _SEPARATION.exists():
            _SEPARATION.mkdir(mode=0o755)
            stack.callback(_SEPARATION.rmdir)
        try:
            for name in names:
                made.start(name)
            yield made
        finally:
            for name in made.servers:
                made.stop(name)
