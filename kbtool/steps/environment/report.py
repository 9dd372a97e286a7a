"""A machine as text."""

from __future__ import annotations

from kbtool.model.run import MachineInfo


def describe(machine: MachineInfo) -> str:
    """The machine in one line."""
    parts = [machine.card or "no GPU", f"{machine.cores} cores ({machine.cpu})"]
    parts += [
        f"{name} {value}"
        for name, value in (("torch", machine.torch), ("nvcc", machine.nvcc))
        if value
    ]
    return ", ".join(parts)
