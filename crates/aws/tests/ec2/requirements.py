"""The instance types that satisfy `InstanceRequirements`. Pure: the types' data are an argument.

Not here: prices. Price protection is accepted and changes nothing, because moto knows no prices.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping
from typing import Any

MANUFACTURERS = {"Intel": "intel", "AMD": "amd", "AWS": "amazon-web-services", "Apple": "apple"}

Requirements = Mapping[str, Any]
Facts = Mapping[str, Any]


class Unclear(Exception):
    """Requirements that EC2 refuses: the error code and the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def check(wanted: Requirements) -> None:
    """Raises `Unclear` if EC2 would refuse the requirements."""
    for name in ("VCpuCount", "MemoryMiB"):
        if (wanted.get(name) or {}).get("Min") is None:
            raise Unclear("MissingParameter", f"InstanceRequirements must contain {name}.Min")
    if wanted.get("AllowedInstanceTypes") and wanted.get("ExcludedInstanceTypes"):
        text = "AllowedInstanceTypes and ExcludedInstanceTypes cannot both be specified"
        raise Unclear("InvalidParameterCombination", text)


def matching(
    wanted: Requirements, architectures: Iterable[str], types: Mapping[str, Facts]
) -> list[str]:
    """The matching types, smallest first, which is nearest to "cheapest first" without prices."""
    architectures = set(architectures)
    found = [
        (facts["VCpuInfo"]["DefaultVCpus"], facts["MemoryInfo"]["SizeInMiB"], name)
        for name, facts in types.items()
        if _satisfies(wanted, architectures, name, facts)
    ]
    return [name for _, _, name in sorted(found)]


def _satisfies(wanted: Requirements, architectures: set[str], name: str, facts: Facts) -> bool:
    allowed = wanted.get("AllowedInstanceTypes") or ["*"]
    excluded = wanted.get("ExcludedInstanceTypes") or []
    makers = wanted.get("CpuManufacturers")
    generations = wanted.get("InstanceGenerations")
    generation = "current" if facts["CurrentGeneration"] else "previous"
    processor = facts["ProcessorInfo"]
    burstable = facts["BurstablePerformanceSupported"]
    return (
        _in_range(facts["VCpuInfo"]["DefaultVCpus"], wanted.get("VCpuCount"))
        and _in_range(facts["MemoryInfo"]["SizeInMiB"], wanted.get("MemoryMiB"))
        and bool(architectures & set(processor["SupportedArchitectures"]))
        and any(fnmatch.fnmatchcase(name, pattern) for pattern in allowed)
        and not any(fnmatch.fnmatchcase(name, pattern) for pattern in excluded)
        and (not makers or MANUFACTURERS.get(processor.get("Manufacturer")) in makers)
        and (not generations or generation in generations)
        and _permits(wanted.get("BareMetal"), facts["BareMetal"], "excluded")
        and _permits(wanted.get("BurstablePerformance"), burstable, "excluded")
        and _permits(wanted.get("LocalStorage"), facts["InstanceStorageSupported"], "included")
        and _in_range(_accelerators(facts), wanted.get("AcceleratorCount"))
    )


def _in_range(value: float, wanted: Mapping[str, Any] | None) -> bool:
    limits = wanted or {}
    low, high = limits.get("Min"), limits.get("Max")
    return float(low or 0) <= value <= (math.inf if high is None else float(high))


def _permits(word: str | None, has_it: bool, default: str) -> bool:
    return {"included": True, "excluded": not has_it, "required": has_it}[word or default]


def _accelerators(facts: Facts) -> int:
    return sum(gpu.get("Count", 0) for gpu in facts.get("GpuInfo", {}).get("Gpus", []))
