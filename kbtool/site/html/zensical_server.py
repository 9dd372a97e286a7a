"""The site on this machine, laid out and served by Zensical: kbtool writes the tree anew."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from kbtool.model.errors import MachineError
from kbtool.site.html.build import write_source
from kbtool.site.html.watch import POLL_SECONDS, stamps
from kbtool.site.html.zensical import command, write_settings


def serve(root: Path, address: tuple[str, int], say: Callable[[str], None]) -> None:
    """Serve the site until interrupted.

    Args:
        root: the knowledge base.
        address: host and free port.
        say: prints a line on the terminal.

    Raises:
        MachineError: Zensical ended.
    """
    where = f"{address[0]}:{address[1]}"
    seen = stamps(root)
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
            before, seen = seen, stamps(root)
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
