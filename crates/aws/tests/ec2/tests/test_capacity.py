"""Capacity and the filling of fleets, without a server."""

import math
import unittest

from ..capacity import Kind, Offer, Capacity, Rule, fill

A = Kind("m5.large", "us-east-1a", "on-demand", 2)
B = Kind("m5.large", "us-east-1b", "on-demand", 2)
SPOT_A = Kind("m5.large", "us-east-1a", "spot", 2)


def capacity(*rules: Rule, held: tuple[Kind, ...] = (), **quotas: int) -> Capacity:
    return Capacity.beside(held, rules, {name.replace("_", "-"): it for name, it in quotas.items()})


class Capacities(unittest.TestCase):
    def test_without_rules_capacity_is_unlimited(self) -> None:
        self.assertEqual(capacity().left(A), math.inf)
        self.assertIsNone(capacity().take(A))

    def test_a_rule_covers_the_type_zone_and_usage_that_it_names(self) -> None:
        for rule in (
            Rule(0, type="m5.*", zone="us-east-1a", usage="on-demand"),
            Rule(0, zone="*a"),
            Rule(0, usage="on-demand", zone="us-east-1a"),
        ):
            self.assertEqual(capacity(rule).refusal(A), "InsufficientInstanceCapacity", rule)
            self.assertIsNone(capacity(rule).refusal(B), rule)
        self.assertIsNone(capacity(Rule(0, type="c5.*")).refusal(A))
        self.assertIsNone(capacity(Rule(0, usage="spot")).refusal(A))

    def test_held_capacity_counts(self) -> None:
        self.assertEqual(capacity(Rule(3), held=(A, B)).left(A), 1)
        self.assertEqual(capacity(Rule(3, zone="*a"), held=(A, B)).left(A), 2)

    def test_all_kinds_that_a_rule_covers_share_its_limit(self) -> None:
        shared = capacity(Rule(1))
        self.assertIsNone(shared.take(A))
        self.assertIsNotNone(shared.take(B))

    def test_spot_has_a_code_of_its_own_and_a_rule_may_name_another(self) -> None:
        self.assertEqual(capacity(Rule(0)).refusal(SPOT_A), "UnfulfillableCapacity")
        self.assertEqual(capacity(Rule(0, code="Unsupported")).refusal(SPOT_A), "Unsupported")

    def test_quotas_count_vcpus_of_one_usage(self) -> None:
        tight = capacity(held=(A,), on_demand=5, spot=1)
        self.assertIsNone(tight.take(B))
        self.assertEqual(tight.take(A), "VcpuLimitExceeded")
        self.assertEqual(tight.take(SPOT_A), "MaxSpotInstanceCountExceeded")


class Fills(unittest.TestCase):
    def test_the_first_that_fits_is_taken_until_it_is_full(self) -> None:
        filling = fill([Offer(A), Offer(B)], 5, capacity(Rule(2, zone="*a")), "lowest-price")
        self.assertEqual(filling.picked, [0, 0, 1, 1, 1])
        self.assertEqual(filling.refused, {0: "InsufficientInstanceCapacity"})

    def test_a_full_fleet_tries_no_further_offer(self) -> None:
        filling = fill([Offer(A), Offer(B)], 2, capacity(Rule(2, zone="*a")), "lowest-price")
        self.assertEqual((filling.picked, filling.refused), ([0, 0], {}))

    def test_each_offer_is_refused_once(self) -> None:
        filling = fill([Offer(A), Offer(B)], 9, capacity(Rule(1)), "lowest-price")
        self.assertEqual((filling.picked, sorted(filling.refused)), ([0], [0, 1]))

    def test_weights_fill_faster(self) -> None:
        self.assertEqual(fill([Offer(A, weight=2)], 5, capacity(), "lowest-price").picked, [0, 0, 0])

    def test_strategies_order_by_priority_by_capacity_or_take_turns(self) -> None:
        offers = [Offer(A, priority=2), Offer(B, priority=1)]
        limits = (Rule(5, zone="*a"), Rule(6, zone="*b"))
        self.assertEqual(fill(offers, 1, capacity(*limits), "lowest-price").picked, [0])
        self.assertEqual(fill(offers, 1, capacity(*limits), "prioritized").picked, [1])
        self.assertEqual(fill(offers, 1, capacity(*limits), "price-capacity-optimized").picked, [1])
        self.assertEqual(fill(offers, 4, capacity(*limits), "diversified").picked, [0, 1, 0, 1])
