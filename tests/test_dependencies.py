"""What pyproject.toml asks for: what the package imports."""

from __future__ import annotations

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


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


def test_what_the_package_imports_is_what_it_asks_for():
    needed = imported(ROOT / "kbtool")
    base = names(PROJECT["dependencies"])
    assert needed >= base, "not imported"
    base.add("pydantic-core")  # pydantic asks for one version of it exactly
    users = base.union(*(names(EXTRAS[extra]) for extra in ("kernels", "parquet", "site")))
    assert needed <= users, "imported, and no extra for users asks for it"
