"""What pyproject.toml asks for: what the package imports, and versions that are tested."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
USERS = ("kernels", "mcp", "mlflow", "parquet", "site", "sweep", "transformers", "zensical")
"""The extras for users of kbtool."""


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def imported(folder: Path) -> set[str]:
    """The distributions that the modules of a folder import."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    providers = packages_distributions()
    return {
        canonicalize_name(name)
        for module in found - sys.stdlib_module_names - {"kbtool"}
        for name in providers.get(module, [f"nothing installed provides {module}"])
    }


@pytest.mark.slow
def test_what_the_package_imports_is_what_it_asks_for():
    needed = imported(ROOT / "kbtool")
    base = names(PROJECT["dependencies"])
    assert needed >= base, "not imported"
    base.add("pydantic-core")  # pydantic asks for one version of it exactly
    users = base.union(*(names(EXTRAS[extra]) for extra in USERS))
    assert needed <= users, "imported, and no extra for users asks for it"


def test_the_oldest_versions_are_the_lower_bounds():
    command = [sys.executable, ROOT / ".ci" / "oldest.py"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8") == made
    bound = {canonicalize_name(line.partition("==")[0]) for line in made.splitlines()[1:]}
    unbound = names(PROJECT["dependencies"]).union(*(names(EXTRAS[one]) for one in USERS)) - bound
    assert not unbound, "what users install has a lower bound"


def test_each_python_that_kbtool_names_is_one_of_those_that_ci_looks_for():
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    looked_for = re.search(r"all=\((.+)\)", (ROOT / ".ci" / "pythons").read_text(encoding="utf-8"))
    assert looked_for
    assert set(named) <= set(looked_for[1].split())
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_the_table_of_licences_is_what_the_installed_versions_state():
    command = [sys.executable, ROOT / ".ci" / "licenses.py"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "DEPENDENCIES.md").read_text(encoding="utf-8") == made
    assert "not stated" not in made
