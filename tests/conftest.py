"""What the tests share: how they are dealt out to processes, small knowledge bases, built sites."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import site_trees
from hypothesis import settings
from site_html import Site, read_site

# No test is timed: a machine that others use too is slow at times.
settings.register_profile("kbtool", deadline=None)
settings.load_profile("kbtool")

# A shell starts what runs in its background deaf to Ctrl-C, and every program that a test starts
# would be so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two processes with two threads each on two cores: a thread that waits must not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

FIXTURES = Path(__file__).parent / "fixtures"
REPOSITORY = Path(__file__).parent.parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the tests that one process runs together, for ``--dist loadgroup``.

    Tests that need a card take turns at it, tests that read or open a built site share its build,
    and the other tests of a file share what the file has made.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if item.get_closest_marker("gpu"):
            group = "card"
        elif fixtures & {"site", "plain_site", "hostile_site", "empty_site", "real_site"}:
            group = "sites"
        else:
            group = item.path.stem
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line a reason, however many tests are skipped for it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in skipped
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count:,}: {reason}")


@pytest.fixture(scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries built by the tests, shared by all processes of a run: a hash names each."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    cache = shared / "build-cache"
    cache.mkdir(exist_ok=True)
    return cache


def make_site(root: Path) -> Site:
    from kbtool.site.html.build import build

    out = root / "site"
    return Site(root, out, build(root, out), read_site(out))


@pytest.fixture(scope="session")
def plain_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(site_trees.make(tmp_path_factory.mktemp("plain") / "kb", sessions=3))


@pytest.fixture(scope="session")
def hostile_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(site_trees.make(tmp_path_factory.mktemp("hostile") / "kb", site_trees.attack))


@pytest.fixture(scope="session")
def empty_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(site_trees.empty(tmp_path_factory.mktemp("empty") / "kb"))


@pytest.fixture(scope="session")
def real_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The repository's own records, built from a copy so that nothing is written beside them."""
    root = tmp_path_factory.mktemp("real") / "kb"
    for name in ("sessions", "patterns", "kernels", "docs"):
        shutil.copytree(REPOSITORY / name, root / name)
    return make_site(root)


@pytest.fixture(params=["plain_site", "hostile_site", "empty_site", "real_site"])
def site(request: pytest.FixtureRequest) -> Site:
    """Each of the built sites."""
    found: Site = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def second_kernel_base(tmp_path: Path, build_cache: Path) -> Path:
    """A knowledge base of its own with the kernel ``scaled_add`` and pattern P01's recipes."""
    root = tmp_path / "base"
    for name in ("sessions", "patterns", "kernels"):
        (root / name).mkdir(parents=True)
    shutil.copytree(FIXTURES / "kernels" / "scaled_add", root / "kernels" / "scaled_add")
    shutil.copy(FIXTURES / "patterns" / "P01.yaml", root / "patterns" / "P01.yaml")
    (root / ".kbtool").mkdir()
    (root / ".kbtool" / "build").symlink_to(build_cache)
    return root


@dataclass
class Result:
    """A finished command."""

    code: int
    out: str
    err: str


@pytest.fixture
def kbtool(tmp_path: Path) -> Callable[..., Result]:
    """Run the command as a user does, in a process of its own."""

    def run(*arguments: str, root: Path | None = None, env: dict[str, str] | None = None) -> Result:
        argv = [sys.executable, "-m", "kbtool", *(["--root", str(root)] if root else [])]
        done = subprocess.run(
            [*argv, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Result(done.returncode, done.stdout, done.stderr)

    return run
