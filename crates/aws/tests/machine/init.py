"""The first process of a machine: it starts and watches units, and ends with the machine.

It logs events to the machine's `journal`, in order.

Not here: parsing unit files (`units`), or the stand-in programs that call this process (`commands`).
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import pathlib
import select
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TextIO

from . import commands, units

UNITS = pathlib.Path("/etc/systemd/system")
PROGRAMS = pathlib.Path("/run/machine")
SOCKET = PROGRAMS / "socket"
CALL = pathlib.Path(__file__).with_name("call.py")
# Timers before services, so that the watchdog is armed first.
TARGETS = ("timers.target", "multi-user.target")
# The seconds that services have for their end at power-off; systemd gives them 90.
STOP_WITHIN = 3.0


class Init:
    """The machine's services and timers, the events to come, and the socket of the stand-in programs."""

    def __init__(self, journal: TextIO, environment: dict[str, str], speed: float) -> None:
        self.environment = environment
        self._journal = journal
        self._speed = speed
        self._booted = time.monotonic()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._ended: dict[int, Callable[[int], None]] = {}
        # The main process of each service that runs; the timers that are armed.
        self._services: dict[str, int] = {}
        self._timers: dict[str, object] = {}
        self._transient: dict[str, units.Unit] = {}
        # The connections that never get an answer.
        self._stuck: list[socket.socket] = []

    # Boot and end.

    def boot(self, user_data: bytes) -> None:
        self._listen()
        for target in TARGETS:
            for wanted in sorted((UNITS / f"{target}.wants").glob("*")):
                self.start(wanted.name)
        if user_data:
            self._run_user_data(user_data)

    def _run_user_data(self, user_data: bytes) -> None:
        """Runs the user data as cloud-init does."""
        script = pathlib.Path("/var/lib/cloud/user-data")
        script.write_bytes(user_data)
        script.chmod(0o700)
        self.note("user data begin")
        self._spawn([str(script)], lambda status: self.note(f"user data end: {status}"))

    def power_off(self, why: str, *, force: bool) -> None:
        """Ends the machine: when the first process ends, the kernel ends all others."""
        self.note(f"off: {why}")
        if not force:
            for pid in self._services.values():
                os.kill(pid, signal.SIGTERM)
            self._wait_for_services(time.monotonic() + STOP_WITHIN)
        sys.stdout.flush()
        os._exit(0)

    def _wait_for_services(self, until: float) -> None:
        self._ended = {pid: self._forget(name) for name, pid in self._services.items()}
        while self._services and time.monotonic() < until:
            self._reap()
            time.sleep(0.005)

    def _forget(self, name: str) -> Callable[[int], None]:
        return lambda status: self._services.pop(name) and self.note(f"{name} ended: {status}")

    def note(self, line: str) -> None:
        print(line, file=self._journal, flush=True)

    # Units.

    def load(self, name: str) -> units.Unit:
        if name in self._transient:
            return self._transient[name]
        path = UNITS / name
        if not path.is_file():
            raise units.Bad(f"{name}: no such unit")
        return units.parse(name, path.read_text())

    def enable(self, name: str) -> None:
        target = self.load(name).get("WantedBy")
        if target not in TARGETS:
            raise units.Bad(f"{name}: wanted by {target!r}")
        wants = UNITS / f"{target}.wants"
        wants.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (wants / name).symlink_to(UNITS / name)

    def start(self, name: str) -> None:
        unit = self.load(name)
        if name.endswith(".timer"):
            self._arm(unit)
        elif name not in self._services:
            self._run(unit)

    def stop(self, name: str) -> None:
        self.load(name)
        self._timers.pop(name, None)
        pid = self._services.pop(name, None)
        if pid:
            self._ended.pop(pid)
            os.kill(pid, signal.SIGTERM)
        self.note(f"{name} stopped")

    def is_active(self, name: str) -> bool:
        return name in self._services or name in self._timers

    def run_later(self, name: str, command: list[str], after: str) -> None:
        """Starts a transient timer and its service."""
        timer, service = f"{name}.timer", f"{name}.service"
        self._transient[service] = units.Unit(service, {"ExecStart": shlex.join(command)})
        self._transient[timer] = units.Unit(timer, {"OnActiveSec": after})
        self._arm(self._transient[timer])

    def _arm(self, unit: units.Unit) -> None:
        start = self._booted if unit.get("OnBootSec") else time.monotonic()
        span = unit.get("OnBootSec") or unit.get("OnActiveSec")
        armed = self._timers[unit.name] = object()
        service = unit.get("Unit") or unit.name.removesuffix(".timer") + ".service"
        self.load(service)

        def elapse() -> None:
            if self._timers.get(unit.name) is armed:
                self.note(f"{unit.name} elapsed")
                self.start(service)

        self.note(f"{unit.name} armed: {units.seconds(span):g} s")
        self._at(start + units.seconds(span) / self._speed, elapse)

    def _run(self, unit: units.Unit) -> None:
        self.note(f"{unit.name} started")
        command = shlex.split(unit.get("ExecStart"))
        self._services[unit.name] = self._spawn(command, lambda status: self._over(unit, status))

    def _over(self, unit: units.Unit, status: int) -> None:
        del self._services[unit.name]
        self.note(f"{unit.name} ended: {status}")
        action = unit.get("SuccessAction", "none")
        if status == 0 and action != "none":
            self.power_off(f"{unit.name} is done", force=action.endswith("-force"))
        if status != 0 and unit.get("Restart") == "on-failure":
            pause = unit.seconds("RestartSec", "100ms") / self._speed
            self._at(time.monotonic() + pause, lambda: self.start(unit.name))

    # Processes, time, and calls of the stand-in programs.

    def _spawn(self, command: list[str], ended: Callable[[int], None]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.execvpe(command[0], command, self.environment)
            except OSError as error:
                print(f"{command[0]}: {error}", file=sys.stderr, flush=True)
            finally:
                # systemd's exit status for a program that it could not start.
                os._exit(203)
        self._ended[pid] = ended
        return pid

    def _at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._order), what))

    def _listen(self) -> None:
        PROGRAMS.mkdir()
        for name in commands.ALL:
            program = PROGRAMS / name
            python, call = shlex.quote(sys.executable), shlex.quote(str(CALL))
            program.write_text(f'#!/bin/sh\nexec {python} -I -S {call} {SOCKET} {name} "$@"\n')
            program.chmod(0o755)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(SOCKET))
        self._listener.listen()
        self.environment["PATH"] = f"{PROGRAMS}:{self.environment.get('PATH', os.defpath)}"

    def serve(self) -> None:
        """Runs until the machine powers off."""
        wakeup, wakeup_write = os.pipe()
        os.set_blocking(wakeup_write, False)
        signal.set_wakeup_fd(wakeup_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self.power_off("SIGTERM", force=False))
        while True:
            self._reap()
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            ready, _, _ = select.select([self._listener, wakeup], [], [], wait)
            if wakeup in ready:
                os.read(wakeup, 4096)
            if self._listener in ready:
                self._answer(self._listener.accept()[0])

    def _reap(self) -> None:
        """Reaps this process's children, and orphans of the machine."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                ended = self._ended.pop(pid, None)
                if ended:
                    ended(os.waitstatus_to_exitcode(status))

    def _answer(self, connection: socket.socket) -> None:
        with connection.makefile("rw") as lines:
            name, *arguments = json.loads(lines.readline())
            self.note(f"call {shlex.join([name, *arguments])}")
            if name in self.environment.get("BULLPEN_MACHINE_STUCK", "").split():
                self._stuck.append(connection)
                return
            try:
                status, refusal = commands.ALL[name](self, arguments), ""
            except (units.Bad, commands.Unknown) as error:
                status, refusal = 1, f"{name}: {error}"
                self.note(refusal)
            lines.write(json.dumps([status, refusal]) + "\n")
        connection.close()
