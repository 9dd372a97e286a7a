"""Print DEPENDENCIES.md: the licences that what kbtool brings states."""

import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
HEAD = """\
# Licences of dependencies

What kbtool itself needs, and what its extras `mcp`, `parquet`, `site`, `mlflow`, `transformers`,
`sweep`, `zensical` and `kernels` add.
Of `kernels` the table leaves out what torch, ninja and NumPy need themselves: it depends on the
build of torch. The licences are those that the pinned versions state. `.venv/bin/python
.ci/licenses.py` prints this file, and a test compares the two.

kbtool's wheel holds none of them. Under `kbtool/site/assets/vendor/` it holds files of two others,
`iframe-worker.js` and `uplot.js` with `uplot.css`, each with its licence (MIT) beside it. The extra
`nvcc` takes NVIDIA's compiler, under terms of NVIDIA's own. The tests take packages of other
licences, such as beancount (GPL-2.0-only), and the wheel holds none of them.

| package | needed by | licence |
|---|---|---|"""


_ADDING = ("mcp", "parquet", "site", "mlflow", "transformers", "sweep", "zensical")


def licence(name: str) -> str:
    """What a distribution says of its licence: as an SPDX expression, else in its own words."""
    metadata = distribution(name).metadata
    classified = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    stated = (metadata["License"] or "").strip().partition("\n")[0]
    return metadata["License-Expression"] or ", ".join(classified) or stated or "not stated"


def rows() -> dict[str, str]:
    """Package → kbtool or the extra that needs it, directly or not."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    asked = {"kbtool": project["dependencies"]}
    asked |= {name: project["optional-dependencies"][name] for name in _ADDING}
    found: dict[str, str] = {}
    for extra, lines in asked.items():
        left = [(line, {""}) for line in lines]
        while left:
            line, chosen = left.pop()
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            marker = requirement.marker
            needed = marker is None or any(marker.evaluate({"extra": one}) for one in chosen)
            if name not in found and needed:
                found[name] = extra
                chosen = {"", *requirement.extras}
                left += [(below, chosen) for below in distribution(name).requires or []]
    for line in project["optional-dependencies"]["kernels"]:
        found.setdefault(canonicalize_name(Requirement(line).name), "kernels")
    return found


def text() -> str:
    """The text of DEPENDENCIES.md."""
    table = [f"| {name} | {extra} | {licence(name)} |" for name, extra in sorted(rows().items())]
    return "\n".join([HEAD, *table, ""])


if __name__ == "__main__":
    print(text(), end="")
