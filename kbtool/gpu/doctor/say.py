"""The parts that checks are made of: their levels, and the commands that install something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbtool.gpu.doctor.facts import Facts
from kbtool.model.diagnosis import Check, Work

CARD: list[Work] = ["cuda", "profile", "sanitise"]
BUILT: list[Work] = ["cpu", *CARD]

_INSTALLS = {
    "apt-get": "apt-get install -y",
    "dnf": "dnf install -y",
    "zypper": "zypper install -y",
    "pacman": "pacman -S --noconfirm",
    "apk": "apk add",
    "brew": "brew install",
}


def ok(name: str, found: str, where: str | None = None) -> Check:
    """All is well."""
    return Check(name=name, level="ok", found=found, where=where)


def note(
    name: str, found: str, why: str, advice: str | None = None, command: str | None = None
) -> Check:
    """Worth knowing."""
    return Check(name=name, level="note", found=found, why=why, advice=advice, command=command)


def warning(
    name: str, found: str, why: str, advice: str | None, command: str | None = None
) -> Check:
    """Work can start, but what comes of it may not be what one expects."""
    return Check(name=name, level="warning", found=found, why=why, advice=advice, command=command)


def missing(
    name: str,
    found: str,
    why: str,
    stops: Sequence[Work],
    advice: str | None,
    command: str | None = None,
) -> Check:
    """Some work cannot start."""
    return Check(
        name=name, level="missing", found=found, why=why, stops=list(stops), advice=advice,
        command=command,
    )  # fmt: skip


def installs(facts: Facts, *packages: str) -> str:
    """The command that installs Python packages, no older than kbtool needs them."""
    wanted = [
        f"'{name}>={facts.minimum[name]}'" if name in facts.minimum else name for name in packages
    ]
    return " ".join([facts.installs, *wanted])


def installs_on_system(facts: Facts, names: Mapping[str, str]) -> str | None:
    """The command that installs a package of the system; ``None`` if its manager is not known.

    Args:
        facts: which manager there is.
        names: manager → package; the empty name is that of all others.
    """
    package = names.get(facts.system or "", names.get(""))
    if facts.system is None or package is None:
        return None
    return as_root(facts, f"{_INSTALLS[facts.system]} {package}")


def as_root(facts: Facts, command: str) -> str:
    """``command`` as the administrator; brew refuses that."""
    return command if facts.root or facts.system == "brew" else f"sudo {command}"
