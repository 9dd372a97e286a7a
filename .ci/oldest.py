"""Print the lower bounds in pyproject.toml as constraints, which .ci/pythons installs."""

import re
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]


def oldest() -> str:
    """The text of constraints-oldest.txt."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    bounds = {re.sub(r"^([^>]+)>=([^,]+).*", r"\1==\2", line) for line in wanted if ">=" in line}
    lines = ["# The lower bounds in pyproject.toml: python .ci/oldest.py > constraints-oldest.txt"]
    return "\n".join([*lines, *sorted(bounds, key=str.lower), ""])


if __name__ == "__main__":
    print(oldest(), end="")
