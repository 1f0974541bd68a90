"""Parses unit files, as far as our units need it. An unknown section or key is an error, as a typo is.

Not here: starting units (`init`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# The keys that the stand-in plays, and the keys that it accepts because they make no difference here.
KNOWN = {
    "Unit": {"Description", "SuccessAction", "Wants", "After", "StartLimitIntervalSec"},
    "Service": {
        "Type", "ExecStart", "Restart", "RestartSec",
        "KillMode", "OOMPolicy", "StandardError", "StandardOutput", "TasksMax", "TimeoutStopSec",
    },
    "Timer": {"OnBootSec", "OnActiveSec", "AccuracySec", "Unit"},
    "Install": {"WantedBy"},
}  # fmt: skip
# The values that the stand-in plays, for keys with a fixed set of values.
CHOICES = {
    "SuccessAction": {"none", "poweroff", "poweroff-force"},
    "Type": {"simple", "oneshot"},
    "Restart": {"no", "on-failure"},
    "KillMode": {"process"},
    "OOMPolicy": {"continue", "stop", "kill"},
    "StandardOutput": {"journal", "journal+console"},
    "StandardError": {"inherit"},
}
SECONDS = {"": 1, "s": 1, "sec": 1, "ms": 0.001, "min": 60, "m": 60, "h": 3600}
SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


class Bad(ValueError):
    """A unit that systemd would refuse, or that the stand-in does not play."""


@dataclass
class Unit:
    """One unit file."""

    name: str
    settings: dict[str, str] = field(default_factory=dict)

    def get(self, key: str, default: str = "") -> str:
        return self.settings.get(key, default)

    def seconds(self, key: str, default: str = "0") -> float:
        return seconds(self.get(key, default))


def parse(name: str, text: str) -> Unit:
    unit = Unit(name)
    section = ""
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            if section not in KNOWN:
                raise Bad(f"{name}: section {line} is not known")
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or key not in KNOWN.get(section, ()):
            raise Bad(f"{name}: {line!r} in [{section}] is not known")
        if key in CHOICES and value not in CHOICES[key]:
            raise Bad(f"{name}: {key} cannot be {value!r}")
        if key.endswith("Sec"):
            seconds(value)
        unit.settings[key] = value
    return _complete(unit)


def _complete(unit: Unit) -> Unit:
    if unit.name.endswith(".service") and not unit.get("ExecStart"):
        raise Bad(f"{unit.name}: no ExecStart")
    if unit.name.endswith(".timer") and not (unit.get("OnBootSec") or unit.get("OnActiveSec")):
        raise Bad(f"{unit.name}: a timer without a time")
    return unit


def seconds(text: str) -> float:
    """A span in systemd's notation: `90`, `90s`, `1h 30min`."""
    spans = SPAN.findall(text)
    if SPAN.sub("", text) or not spans or any(unit not in SECONDS for _, unit in spans):
        raise Bad(f"{text!r} is not a span of time")
    return sum(float(number) * SECONDS[unit] for number, unit in spans)
