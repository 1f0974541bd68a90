"""The settings of the test EC2, its counts of calls, and its time.

Only the admin API advances the clock, unless the server was started with the real one. The agenda has
the events to come: transitions of instances, ends of interrupted ones. Advancing the clock performs
the due ones.

Not here: what the settings do (the modules that read them), or changing them (`admin`).
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .capacity import Rule
from .idempotency import Tokens


@dataclass
class Delays:
    """How many seconds changes of an instance take."""

    # From a launch until other calls find its ids.
    visible: float = 0.0
    running: float = 0.0
    stopped: float = 0.0
    terminated: float = 0.0


@dataclass
class Fault:
    """An error answer to the next calls of an action."""

    code: str
    status: int
    action: str = "*"
    times: int = 1
    # Whether the server carries the call out although it answers with the error.
    carried_out: bool = False


class Clock:
    """Seconds since the start."""

    def __init__(self, by_hand: bool = True) -> None:
        self.by_hand = by_hand
        self._set = 0.0
        self._start = time.monotonic()

    def now(self) -> float:
        return self._set if self.by_hand else time.monotonic() - self._start

    def set(self, now: float) -> None:
        self._set = now


class Agenda:
    """The events to come, by time; events of the same time happen in the order of `put`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def put(self, due: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (due, next(self._order), happen))

    def next_due(self, until: float) -> tuple[float, Callable[[], None]] | None:
        """Takes the next event that is due by `until`."""
        if not self._heap or self._heap[0][0] > until:
            return None
        due, _, happen = heapq.heappop(self._heap)
        return due, happen

    def clear(self) -> None:
        self._heap.clear()


@dataclass
class World:
    """The whole state. Every thread that uses it, or moto, holds the lock."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    clock: Clock = field(default_factory=Clock)
    agenda: Agenda = field(default_factory=Agenda)
    tokens: Tokens = field(default_factory=Tokens)
    capacity: list[Rule] = field(default_factory=list)
    quotas: dict[str, int] = field(default_factory=dict)
    delays: Delays = field(default_factory=Delays)
    faults: list[Fault] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    # Every instance that was ever launched, by id, of all accounts and regions.
    instances: dict[str, Any] = field(default_factory=dict)

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        self.agenda.put(self.clock.now() + seconds, happen)

    def settle(self) -> None:
        """Performs every event that is due by now."""
        while due := self.agenda.next_due(self.clock.now()):
            due[1]()

    def advance(self, seconds: float) -> None:
        """Advances the clock. Every event on the way happens at its own time."""
        target = self.clock.now() + seconds
        while due := self.agenda.next_due(target):
            self.clock.set(due[0])
            due[1]()
        self.clock.set(target)

    def take_fault(self, action: str) -> Fault | None:
        """The fault for this call; uses the fault up once."""
        for fault in self.faults:
            if fault.action in ("*", action):
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return fault
        return None

    def forget(self) -> None:
        """Restores the state of the start, except the time and the launch hook."""
        for memory in (self.agenda, self.tokens, self.capacity, self.quotas, self.faults):
            memory.clear()
        self.calls.clear()
        self.instances.clear()
        self.delays = Delays()


WORLD = World()
