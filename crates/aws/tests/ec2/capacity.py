"""How much fits, and how a fleet is filled. Pure: no moto, no time, no answers.

A *kind* is what capacity is counted by: type, zone, usage. A *rule* is a pool that all the kinds it
covers share. *Room* is what the rules and quotas leave beside the instances that hold capacity now.

Not here: which instances hold capacity (`instances`), or which types a fleet may have (`requirements`).
"""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

SPOT = "spot"
ON_DEMAND = "on-demand"

NO_CAPACITY = "InsufficientInstanceCapacity"
NO_SPOT_CAPACITY = "UnfulfillableCapacity"
QUOTA_CODES = {ON_DEMAND: "VcpuLimitExceeded", SPOT: "MaxSpotInstanceCountExceeded"}

BY_PRIORITY = ("prioritized", "capacity-optimized-prioritized")
BY_ROOM = ("capacity-optimized", "price-capacity-optimized")
IN_TURN = ("diversified",)


@dataclass(frozen=True)
class Kind:
    """What one instance takes from the cloud."""

    type: str
    zone: str
    usage: str
    vcpus: int


@dataclass(frozen=True)
class Rule:
    """At most `limit` instances at once of all the kinds that the patterns cover."""

    limit: int
    type: str = "*"
    zone: str = "*"
    usage: str = "*"
    # What is said when it is full, if not what EC2's documentation has for it.
    code: str | None = None

    def covers(self, kind: Kind) -> bool:
        pairs = ((kind.type, self.type), (kind.zone, self.zone), (kind.usage, self.usage))
        return all(fnmatch.fnmatchcase(name, pattern) for name, pattern in pairs)


@dataclass
class Room:
    """What is left, and who takes it. Taking is what changes it."""

    rules: Sequence[Rule]
    quotas: Mapping[str, int]
    _held: Counter[int] = field(default_factory=Counter)
    _vcpus: Counter[str] = field(default_factory=Counter)

    @classmethod
    def beside(cls, held: Iterable[Kind], rules: Sequence[Rule], quotas: Mapping[str, int]) -> Room:
        room = cls(rules, quotas)
        for kind in held:
            room._hold(kind)
        return room

    def left(self, kind: Kind) -> float:
        """How many more instances of this kind the rules allow; quotas are not pools."""
        return min((self._left_of(at) for at in self._rules_on(kind)), default=math.inf)

    def refusal(self, kind: Kind) -> str | None:
        """The code that one more of this kind is refused with."""
        for at in self._rules_on(kind):
            if self._left_of(at) <= 0:
                usual = NO_SPOT_CAPACITY if kind.usage == SPOT else NO_CAPACITY
                return self.rules[at].code or usual
        quota = self.quotas.get(kind.usage)
        if quota is not None and self._vcpus[kind.usage] + kind.vcpus > quota:
            return QUOTA_CODES[kind.usage]
        return None

    def take(self, kind: Kind) -> str | None:
        """Takes one of this kind, or says with which code it is refused."""
        refusal = self.refusal(kind)
        if refusal is None:
            self._hold(kind)
        return refusal

    def _hold(self, kind: Kind) -> None:
        self._held.update(self._rules_on(kind))
        self._vcpus[kind.usage] += kind.vcpus

    def _rules_on(self, kind: Kind) -> list[int]:
        return [at for at, rule in enumerate(self.rules) if rule.covers(kind)]

    def _left_of(self, at: int) -> int:
        return self.rules[at].limit - self._held[at]


@dataclass(frozen=True)
class Offer:
    """One way to get an instance of a fleet: an override, with one type in one zone."""

    kind: Kind
    weight: float = 1.0
    priority: float = math.inf


@dataclass
class Filling:
    """What a fleet gets: offers by their place in the list, and those that were refused, with why."""

    picked: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    weight: float = 0.0


def fill(offers: Sequence[Offer], wanted: float, room: Room, strategy: str) -> Filling:
    """Takes offers until the wanted weight is there, or none is left that fits."""
    filling = Filling()
    live = _in_order(offers, room, strategy)
    turn = 0
    while live and filling.weight < wanted:
        at = live[turn % len(live)]
        refusal = room.take(offers[at].kind)
        if refusal is not None:
            filling.refused[at] = refusal
            live.remove(at)
            continue
        filling.picked.append(at)
        filling.weight += offers[at].weight
        if strategy in IN_TURN:
            turn += 1
    return filling


def _in_order(offers: Sequence[Offer], room: Room, strategy: str) -> list[int]:
    places = list(range(len(offers)))
    if strategy in BY_PRIORITY:
        places.sort(key=lambda at: offers[at].priority)
    elif strategy in BY_ROOM:
        places.sort(key=lambda at: -room.left(offers[at].kind))
    return places
