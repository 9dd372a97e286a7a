"""The site on this machine, laid out and served by Zensical: kbtool writes the tree anew."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path

from kbtool.model.errors import MachineError
from kbtool.site.html.build import write_source
from kbtool.site.html.zensical import command, write_settings

POLL_SECONDS = 0.2


def serve(
    root: Path,
    address: tuple[str, int],
    watched: Callable[[Path], Iterable[Path]],
    say: Callable[[str], None],
) -> None:
    """Serve the site until interrupted.

    Args:
        root: the knowledge base.
        address: host and free port.
        watched: the files and folders of ``root`` that the site is made from.
        say: prints a line on the terminal.

    Raises:
        MachineError: Zensical ended.
    """
    where = f"{address[0]}:{address[1]}"
    seen = stamps(root, watched(root))
    _, problems = write_source(root, date.today())
    settings, built = write_settings(root)
    shutil.rmtree(built, ignore_errors=True)
    server = subprocess.Popen(
        [*command("serve"), "-f", settings, "-a", where],
        stdout=subprocess.DEVNULL,  # its warnings are on stderr
    )
    try:
        while not (built / "index.html").exists() and server.poll() is None:
            time.sleep(POLL_SECONDS)
        if server.poll() is None:
            say(f"open http://{where}/ (Ctrl-C ends it)")
        while server.poll() is None:
            for problem in problems:
                say(problem)
            problems = []
            time.sleep(POLL_SECONDS)
            before, seen = seen, stamps(root, watched(root))
            if seen != before:
                written, problems = write_source(root, date.today())
                if seen.get("mkdocs.yml") != before.get("mkdocs.yml"):
                    write_settings(root)  # Zensical does not watch those that they inherit
                for path in written.removed:
                    (built / path).with_suffix(".html").unlink(missing_ok=True)
    except KeyboardInterrupt:
        say("stopped")
        return
    finally:
        server.terminate()
        server.wait()
    raise MachineError(f"Zensical ended with exit status {server.returncode}")


def stamps(root: Path, watched: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """Every file below ``watched``: path in the root → time of its last change and size."""
    found = {}
    for top in watched:
        files = [top] if top.is_file() else (Path(at, n) for at, _, ns in os.walk(top) for n in ns)
        for path in files:
            try:
                stat = path.stat()
            except OSError:
                continue
            found[path.relative_to(root).as_posix()] = (stat.st_mtime_ns, stat.st_size)
    return found
