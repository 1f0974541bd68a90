"""The stand-in programs: `systemctl`, `systemd-run`, `poweroff`, `useradd`, `usermod`, `gpasswd`, `runuser`.

Each function takes the arguments and returns the exit status. It refuses every use that it does not play.

Not here: units and processes (`init`).
"""

from __future__ import annotations

import itertools
import os
import pathlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .init import Init

PASSWD, GROUP, HOMES = (pathlib.Path(path) for path in ("/etc/passwd", "/etc/group", "/home"))
SUDOERS = pathlib.Path("/etc/sudoers.d")
# No user of the host has such a number: a job's user must own only the files of its jobs.
FIRST_ID = 23_000
# Options without an effect here.
QUIET = {"--no-block", "--quiet", "-q", "--collect", "--system", "--no-ask-password", "--no-wall"}
NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
NUMBERS = itertools.count(1)


class Unknown(ValueError):
    """A use that the stand-in does not play."""


def systemctl(init: Init, arguments: list[str]) -> int:
    flags = {word for word in arguments if word.startswith("-")}
    verb, *names = [word for word in arguments if not word.startswith("-")] or [""]
    verbs: dict[str, Callable[[str], object]] = {
        "enable": init.enable,
        "start": init.start,
        "stop": init.stop,
        "restart": lambda name: (init.stop(name) if init.is_active(name) else None, init.start(name)),
    }
    rest = flags - QUIET
    if verb == "poweroff" and rest <= {"--force", "-f"}:
        return init.power_off("systemctl", force=bool(rest))
    if verb == "daemon-reload" and not rest:
        return 0
    if verb == "is-active" and not rest:
        return 0 if all(map(init.is_active, names)) else 3
    if verb not in verbs or rest - ({"--now"} if verb == "enable" else set()):
        raise Unknown(f"{arguments} is not played")
    for name in names:
        verbs[verb](name)
        if "--now" in rest:
            init.start(name)
    return 0


def systemd_run(init: Init, arguments: list[str]) -> int:
    name, after = f"run-{next(NUMBERS)}", None
    words = iter(arguments)
    for word in words:
        option, _, value = word.partition("=")
        if not word.startswith("-"):
            words = itertools.chain([word], words)
            break
        if option == "--unit":
            name = value.removesuffix(".timer").removesuffix(".service")
        elif option == "--on-active":
            after = value
        elif option not in {"--timer-property", "--description"} | QUIET:
            raise Unknown(f"{word} is not played")
    command = list(words)
    if after is None or not command:
        raise Unknown("only `systemd-run --on-active=… command` is played")
    if init.is_active(f"{name}.timer"):
        raise Unknown(f"unit {name}.timer was already loaded")
    init.run_later(name, command, after)
    return 0


def poweroff(init: Init, arguments: list[str]) -> int:
    return init.power_off("poweroff", force=bool({"-f", "--force"} & set(arguments)))


def useradd(_: Init, arguments: list[str]) -> int:
    match arguments:
        case ["-m", "-s", shell, name] if NAME.fullmatch(name):
            pass
        case _:
            raise Unknown(f"{arguments} is not played, or has no valid name")
    if name in _names(PASSWD):
        return 9
    taken = {int(line.split(":")[2]) for line in PASSWD.read_text().splitlines()}
    number = next(number for number in itertools.count(FIRST_ID) if number not in taken)
    home = HOMES / name
    _append(GROUP, f"{name}:x:{number}:")
    _append(PASSWD, f"{name}:x:{number}:{number}::{home}:{shell}")
    home.mkdir(mode=0o750)
    if _has_other_users():
        os.chown(home, number, number)
    return 0


def _has_other_users() -> bool:
    """Whether this user namespace has several users; that of a developer who is not root has one."""
    return int(pathlib.Path("/proc/self/uid_map").read_text().split()[2]) > 1


def usermod(_: Init, arguments: list[str]) -> int:
    match arguments:
        case ["-aG", group, name] if name in _names(PASSWD) and group in _names(GROUP):
            pass
        case _:
            raise Unknown(f"{arguments} is not played, or names no user or group")
    lines = GROUP.read_text().splitlines()
    GROUP.write_text("".join(f"{_with_member(line, group, name)}\n" for line in lines))
    return 0


def gpasswd(_: Init, arguments: list[str]) -> int:
    match arguments:
        case ["-d", name, group] if name in _names(PASSWD) and group in _names(GROUP):
            pass
        case _:
            raise Unknown(f"{arguments} is not played, or names no user or group")
    lines = GROUP.read_text().splitlines()
    GROUP.write_text("".join(f"{_without_member(line, group, name)}\n" for line in lines))
    return 0


def runuser(_: Init, arguments: list[str]) -> int:
    """Plays only the check whether a user may become root without a password; there is no sudo here."""
    match arguments:
        case ["-u", name, "--", "sudo", "-n", "true"] if name in _names(PASSWD):
            pass
        case _:
            raise Unknown(f"{arguments} is not played, or names no user")
    lines = (line.split(":") for line in GROUP.read_text().splitlines())
    groups = {group for group, _, _, members in lines if name in members.split(",")}
    texts = [path.read_text() for path in SUDOERS.glob("*")]
    rules = (line.split() for text in texts for line in text.splitlines())
    subjects = {name, *(f"%{group}" for group in groups)}
    return 0 if any(rule[0] in subjects and "NOPASSWD:" in rule for rule in rules if rule) else 1


def _without_member(line: str, group: str, name: str) -> str:
    head, _, members = line.rpartition(":")
    if not line.startswith(f"{group}:"):
        return line
    return f"{head}:{','.join(member for member in members.split(',') if member != name)}"


def _with_member(line: str, group: str, name: str) -> str:
    head, _, members = line.rpartition(":")
    if not line.startswith(f"{group}:") or name in members.split(","):
        return line
    return f"{head}:{','.join(filter(None, [members, name]))}"


def _names(path: pathlib.Path) -> set[str]:
    return {line.split(":")[0] for line in path.read_text().splitlines()}


def _append(path: pathlib.Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


ALL: dict[str, Callable[[Init, list[str]], int]] = {
    "systemctl": systemctl,
    "systemd-run": systemd_run,
    "poweroff": poweroff,
    "useradd": useradd,
    "usermod": usermod,
    "gpasswd": gpasswd,
    "runuser": runuser,
}
