"""The launch hook: a command that plays an instance's machine.

The server starts it when an instance runs, and ends it when the instance stops or is terminated. If it
ends by itself, the machine has shut itself down. It leads a process group of its own, so that all
processes of a machine end with it.

A *guard* process beside the server ends the remaining machines if the server is killed. A command
begins only after the guard knows it, so that a killed server never leaves one behind.

Not here: when an instance starts and stops (`instances`).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Any, BinaryIO

from .world import WORLD

GUARD = pathlib.Path(__file__).with_name("guard.py")
# Waits for a line from the server before it begins; without a line it ends.
WAIT_THEN_BEGIN = 'read -r begin && exec "$@"'


class Machine:
    """The processes of one instance."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._is_gone = threading.Event()
        self._lock = threading.Lock()

    def signal(self, number: int) -> None:
        """Signals the group, unless its leader is reaped: another process may then have its number."""
        with self._lock:
            if not self._is_gone.is_set():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, number)

    def end(self, grace: float) -> None:
        """Sends SIGTERM, and SIGKILL after the grace. Does not wait."""
        self.signal(signal.SIGTERM)
        timer = threading.Timer(grace, self.signal, args=(signal.SIGKILL,))
        timer.daemon = True
        timer.start()

    def wait(self) -> None:
        self._is_gone.wait()

    def reap(self) -> None:
        """Waits for the end of the leader, and kills the others."""
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        self.signal(signal.SIGKILL)
        with self._lock:
            self.process.wait()
            self._is_gone.set()


class Hook:
    """All machines. Every caller holds the world's lock; the hook's own threads take it."""

    def __init__(self) -> None:
        # The command of the next machines, and the command that a reset restores.
        self.command: list[str] = []
        self.usual: list[str] = []
        self.address = ""
        self.grace = 5.0
        self.logs: pathlib.Path | None = None
        # The machines that are on, by instance, and the machines that got SIGTERM.
        self._on: dict[str, Machine] = {}
        self._ending: list[Machine] = []
        self._guard = Guard()

    def start(self, instance: Any) -> None:
        if not self.command:
            return
        with self._log(instance.id) as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", WAIT_THEN_BEGIN, "launch-hook", *self.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self._environment(instance),
                start_new_session=True,
            )
        machine = self._on[instance.id] = Machine(process)
        self._guard.tell(f"+{process.pid}")
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(b"begin\n")
        threading.Thread(target=self._watch, args=(instance, machine), daemon=True).start()

    def end(self, instance_id: str) -> None:
        machine = self._on.pop(instance_id, None)
        if machine:
            self._ending.append(machine)
            machine.end(self.grace)

    def end_all(self) -> None:
        """Ends all machines and waits until they are gone."""
        for instance_id in list(self._on):
            self.end(instance_id)
        for machine in self._ending:
            machine.wait()
        self._ending.clear()

    def processes(self) -> dict[str, int]:
        return {name: machine.process.pid for name, machine in self._on.items()}

    def _environment(self, instance: Any) -> dict[str, str]:
        return {
            "EC2_INSTANCE_ID": instance.id,
            "EC2_USER_DATA": str(instance.user_data or ""),
            "EC2_METADATA": f"{self.address}/_bullpen/metadata/{instance.id}",
        }

    def _log(self, instance_id: str) -> BinaryIO:
        path = self.logs / f"{instance_id}.log" if self.logs else pathlib.Path(os.devnull)
        return path.open("ab")

    def _watch(self, instance: Any, machine: Machine) -> None:
        machine.reap()
        self._guard.tell(f"-{machine.process.pid}")
        with WORLD.lock:
            if self._on.get(instance.id) is machine:
                del self._on[instance.id]
                instance.shut_itself_down()
                WORLD.settle()


class Guard:
    """The guard process; the first machine starts it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def tell(self, line: str) -> None:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(GUARD)],
                    stdin=subprocess.PIPE,
                    # So that a signal to the server's group, as from a terminal, does not reach it.
                    start_new_session=True,
                )
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()


HOOK = Hook()
