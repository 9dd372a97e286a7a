"""Read what ``nvidia-smi -q -x`` prints: all cards, their clocks and their processes, in one call.

Names have changed with the drivers: throttle reasons became event reasons with 535, and power
readings became GPU power readings. What is not there is unknown.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from kbtool.gpu.doctor.facts import Card, Driver

_REASON = re.compile(r"clocks_(?:event|throttle)_reasons?_(\w+)")
_QUIET = {"gpu_idle", "applications_clocks_setting", "display_clock_setting"}
"""Reasons of a lower clock that slow no kernel, or that are judged by themselves."""


def parse(text: str) -> Driver | None:
    """The driver and its cards; ``None`` if that is not what nvidia-smi prints."""
    try:
        log = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None
    if log.tag != "nvidia_smi_log":
        return None
    return Driver(
        version=_text(log, "driver_version"),
        cuda=_text(log, "cuda_version"),
        cards=tuple(map(_card, log.findall("gpu"))),
    )


def _card(gpu: ElementTree.Element) -> Card:
    power = next(
        (found for name in ("gpu_power_readings", "power_readings")
         if (found := gpu.find(name)) is not None),
        gpu,
    )  # fmt: skip
    persistence = _text(gpu, "persistence_mode")
    return Card(
        uuid=(_text(gpu, "uuid") or "").removeprefix("GPU-"),
        name=_text(gpu, "product_name") or "unnamed card",
        persistent=None if persistence is None else persistence == "Enabled",
        compute_mode=_text(gpu, "compute_mode"),
        mig=_text(gpu, "mig_mode/current_mig") == "Enabled",
        sm_clock_mhz=_number(gpu, "clocks/sm_clock"),
        max_sm_clock_mhz=_number(gpu, "max_clocks/sm_clock"),
        application_clock_mhz=_number(gpu, "applications_clocks/graphics_clock"),
        default_application_clock_mhz=_number(gpu, "default_applications_clocks/graphics_clock"),
        slowdowns=tuple(_slowdowns(gpu)),
        power_limit_w=_watts(power, "current_power_limit", "enforced_power_limit", "power_limit"),
        default_power_limit_w=_watts(power, "default_power_limit"),
        utilisation=_number(gpu, "utilization/gpu_util"),
        memory_used_mib=_number(gpu, "fb_memory_usage/used"),
        processes=len(gpu.findall("processes/process_info")),
        rows_pending=_text(gpu, "remapped_rows/remapped_row_pending") == "Yes",
    )


def _slowdowns(gpu: ElementTree.Element) -> list[str]:
    found = []
    for name in ("clocks_event_reasons", "clocks_throttle_reasons"):
        for reason in gpu.findall(f"{name}/*"):
            match = _REASON.fullmatch(reason.tag)
            if match and match[1] not in _QUIET and (reason.text or "").strip() == "Active":
                found.append(match[1])
    return found


def _text(node: ElementTree.Element, path: str) -> str | None:
    text = (node.findtext(path) or "").strip()
    return None if not text or text.strip("[]") in {"N/A", "Not Supported", "Unknown"} else text


def _number(node: ElementTree.Element, path: str) -> int | None:
    value = _float(node, path)
    return None if value is None else round(value)


def _watts(node: ElementTree.Element, *names: str) -> float | None:
    return next((watts for name in names if (watts := _float(node, name)) is not None), None)


def _float(node: ElementTree.Element, path: str) -> float | None:
    match = re.match(r"\d+(?:\.\d+)?", _text(node, path) or "")
    return float(match[0]) if match else None
