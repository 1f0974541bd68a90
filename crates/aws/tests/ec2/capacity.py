"""Capacity, and how a fleet uses it. Pure: no moto, no time, no answers.

A *kind* is a type, a zone and a usage; capacity is counted by kind. A *rule* is a limit that all the
kinds it covers share. *Capacity* is the rest of the rules' limits and the quotas, after the instances
that hold capacity now.

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
BY_CAPACITY = ("capacity-optimized", "price-capacity-optimized")
IN_TURN = ("diversified",)


@dataclass(frozen=True)
class Kind:
    """The capacity that one instance takes."""

    type: str
    zone: str
    usage: str
    vcpus: int


@dataclass(frozen=True)
class Rule:
    """A limit on instances at once, of all the kinds that the patterns cover together."""

    limit: int
    type: str = "*"
    zone: str = "*"
    usage: str = "*"
    # The error code at the limit, if not the one in EC2's documentation.
    code: str | None = None

    def covers(self, kind: Kind) -> bool:
        pairs = ((kind.type, self.type), (kind.zone, self.zone), (kind.usage, self.usage))
        return all(fnmatch.fnmatchcase(name, pattern) for name, pattern in pairs)


@dataclass
class Capacity:
    """The remaining capacity. Only `take` changes it."""

    rules: Sequence[Rule]
    quotas: Mapping[str, int]
    _held: Counter[int] = field(default_factory=Counter)
    _vcpus: Counter[str] = field(default_factory=Counter)

    @classmethod
    def beside(cls, held: Iterable[Kind], rules: Sequence[Rule], quotas: Mapping[str, int]) -> Capacity:
        capacity = cls(rules, quotas)
        for kind in held:
            capacity._hold(kind)
        return capacity

    def left(self, kind: Kind) -> float:
        """How many more instances of this kind the rules allow; quotas are not pools."""
        return min((self._left_of(at) for at in self._rules_on(kind)), default=math.inf)

    def refusal(self, kind: Kind) -> str | None:
        """The error code for one more instance of this kind; `None` if it fits."""
        for at in self._rules_on(kind):
            if self._left_of(at) <= 0:
                usual = NO_SPOT_CAPACITY if kind.usage == SPOT else NO_CAPACITY
                return self.rules[at].code or usual
        quota = self.quotas.get(kind.usage)
        if quota is not None and self._vcpus[kind.usage] + kind.vcpus > quota:
            return QUOTA_CODES[kind.usage]
        return None

    def take(self, kind: Kind) -> str | None:
        """Takes capacity for one instance of this kind, or returns the error code."""
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
    """One override of a fleet: a type in a zone."""

    kind: Kind
    weight: float = 1.0
    priority: float = math.inf


@dataclass
class Filling:
    """The result of `fill`: the picked offers, and the refused offers with their codes, by index."""

    picked: list[int] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    weight: float = 0.0


def fill(offers: Sequence[Offer], wanted: float, capacity: Capacity, strategy: str) -> Filling:
    """Picks offers until their weight is enough, or no offer fits."""
    filling = Filling()
    live = _in_order(offers, capacity, strategy)
    turn = 0
    while live and filling.weight < wanted:
        at = live[turn % len(live)]
        refusal = capacity.take(offers[at].kind)
        if refusal is not None:
            filling.refused[at] = refusal
            live.remove(at)
            continue
        filling.picked.append(at)
        filling.weight += offers[at].weight
        if strategy in IN_TURN:
            turn += 1
    return filling


def _in_order(offers: Sequence[Offer], capacity: Capacity, strategy: str) -> list[int]:
    places = list(range(len(offers)))
    if strategy in BY_PRIORITY:
        places.sort(key=lambda at: offers[at].priority)
    elif strategy in BY_CAPACITY:
        places.sort(key=lambda at: -capacity.left(offers[at].kind))
    return places
