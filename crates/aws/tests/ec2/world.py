"""What the test EC2 is told from outside, what it counts, and its time.

Time is by hand unless the server was started otherwise: it moves when it is told, and what is due
happens then. What is *due* is on the agenda: transitions of instances, ends of interrupted ones.

Not here: what the settings do (the modules that read them), or how they are set (`admin`).
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
    """Seconds until something is so."""

    # After a launch, until its ids are found by anything.
    visible: float = 0.0
    running: float = 0.0
    stopped: float = 0.0
    terminated: float = 0.0


@dataclass
class Fault:
    """What the next calls of an action are answered with instead."""

    code: str
    status: int
    action: str = "*"
    times: int = 1
    # Whether the call takes place all the same, and only its answer is an error.
    carried_out: bool = False


class Clock:
    """Seconds since the start."""

    def __init__(self, by_hand: bool = True) -> None:
        self.by_hand = by_hand
        self._told = 0.0
        self._start = time.monotonic()

    def now(self) -> float:
        return self._told if self.by_hand else time.monotonic() - self._start

    def set(self, now: float) -> None:
        self._told = now


class Agenda:
    """What will happen, by time; what is due at the same time happens in the order it was put."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def put(self, due: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (due, next(self._order), happen))

    def next_due(self, until: float) -> tuple[float, Callable[[], None]] | None:
        """Takes the next that is due until then."""
        if not self._heap or self._heap[0][0] > until:
            return None
        due, _, happen = heapq.heappop(self._heap)
        return due, happen

    def clear(self) -> None:
        self._heap.clear()


@dataclass
class World:
    """All of it. Whoever touches it, or moto, holds the lock."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    clock: Clock = field(default_factory=Clock)
    agenda: Agenda = field(default_factory=Agenda)
    tokens: Tokens = field(default_factory=Tokens)
    capacity: list[Rule] = field(default_factory=list)
    quotas: dict[str, int] = field(default_factory=dict)
    delays: Delays = field(default_factory=Delays)
    faults: list[Fault] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    # Every instance there ever was, by id, whatever account and region it is of.
    instances: dict[str, Any] = field(default_factory=dict)

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        self.agenda.put(self.clock.now() + seconds, happen)

    def settle(self) -> None:
        """Lets everything happen that is due by now."""
        while due := self.agenda.next_due(self.clock.now()):
            due[1]()

    def advance(self, seconds: float) -> None:
        """Moves the time on. What falls due on the way happens at its own time, not at the end's."""
        target = self.clock.now() + seconds
        while due := self.agenda.next_due(target):
            self.clock.set(due[0])
            due[1]()
        self.clock.set(target)

    def take_fault(self, action: str) -> Fault | None:
        """The fault that meets this call, which is then spent once more."""
        for fault in self.faults:
            if fault.action in ("*", action):
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return fault
        return None

    def forget(self) -> None:
        """As it was at the start, but for the time and the launch hook."""
        for memory in (self.agenda, self.tokens, self.capacity, self.quotas, self.faults):
            memory.clear()
        self.calls.clear()
        self.instances.clear()
        self.delays = Delays()


WORLD = World()
