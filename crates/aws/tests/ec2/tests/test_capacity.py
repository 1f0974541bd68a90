"""How fleets are filled, without a server."""

import math
import unittest

from ..capacity import Kind, Offer, Room, Rule, fill

A = Kind("m5.large", "us-east-1a", "on-demand", 2)
B = Kind("m5.large", "us-east-1b", "on-demand", 2)
SPOT_A = Kind("m5.large", "us-east-1a", "spot", 2)


def room(*rules: Rule, held: tuple[Kind, ...] = (), **quotas: int) -> Room:
    return Room.beside(held, rules, {name.replace("_", "-"): it for name, it in quotas.items()})


class Rooms(unittest.TestCase):
    def test_without_rules_there_is_room_for_everything(self) -> None:
        self.assertEqual(room().left(A), math.inf)
        self.assertIsNone(room().take(A))

    def test_a_rule_is_for_the_type_zone_and_usage_that_it_names(self) -> None:
        for rule in (
            Rule(0, type="m5.*", zone="us-east-1a", usage="on-demand"),
            Rule(0, zone="*a"),
            Rule(0, usage="on-demand", zone="us-east-1a"),
        ):
            self.assertEqual(room(rule).refusal(A), "InsufficientInstanceCapacity", rule)
            self.assertIsNone(room(rule).refusal(B), rule)
        self.assertIsNone(room(Rule(0, type="c5.*")).refusal(A))
        self.assertIsNone(room(Rule(0, usage="spot")).refusal(A))

    def test_what_is_held_already_counts(self) -> None:
        self.assertEqual(room(Rule(3), held=(A, B)).left(A), 1)
        self.assertEqual(room(Rule(3, zone="*a"), held=(A, B)).left(A), 2)

    def test_a_rule_is_one_pool_for_all_it_covers(self) -> None:
        shared = room(Rule(1))
        self.assertIsNone(shared.take(A))
        self.assertIsNotNone(shared.take(B))

    def test_spot_has_a_code_of_its_own_and_a_rule_may_name_another(self) -> None:
        self.assertEqual(room(Rule(0)).refusal(SPOT_A), "UnfulfillableCapacity")
        self.assertEqual(room(Rule(0, code="Unsupported")).refusal(SPOT_A), "Unsupported")

    def test_quotas_count_vcpus_of_one_usage(self) -> None:
        tight = room(held=(A,), on_demand=5, spot=1)
        self.assertIsNone(tight.take(B))
        self.assertEqual(tight.take(A), "VcpuLimitExceeded")
        self.assertEqual(tight.take(SPOT_A), "MaxSpotInstanceCountExceeded")


class Fills(unittest.TestCase):
    def test_the_first_that_fits_is_taken_until_it_is_full(self) -> None:
        filling = fill([Offer(A), Offer(B)], 5, room(Rule(2, zone="*a")), "lowest-price")
        self.assertEqual(filling.picked, [0, 0, 1, 1, 1])
        self.assertEqual(filling.refused, {0: "InsufficientInstanceCapacity"})

    def test_a_fleet_that_is_full_asks_no_further(self) -> None:
        filling = fill([Offer(A), Offer(B)], 2, room(Rule(2, zone="*a")), "lowest-price")
        self.assertEqual((filling.picked, filling.refused), ([0, 0], {}))

    def test_what_there_is_not_is_refused_once_each(self) -> None:
        filling = fill([Offer(A), Offer(B)], 9, room(Rule(1)), "lowest-price")
        self.assertEqual((filling.picked, sorted(filling.refused)), ([0], [0, 1]))

    def test_weights_fill_faster(self) -> None:
        self.assertEqual(fill([Offer(A, weight=2)], 5, room(), "lowest-price").picked, [0, 0, 0])

    def test_strategies_order_by_priority_by_room_or_take_turns(self) -> None:
        offers = [Offer(A, priority=2), Offer(B, priority=1)]
        limits = (Rule(5, zone="*a"), Rule(6, zone="*b"))
        self.assertEqual(fill(offers, 1, room(*limits), "lowest-price").picked, [0])
        self.assertEqual(fill(offers, 1, room(*limits), "prioritized").picked, [1])
        self.assertEqual(fill(offers, 1, room(*limits), "price-capacity-optimized").picked, [1])
        self.assertEqual(fill(offers, 4, room(*limits), "diversified").picked, [0, 1, 0, 1])
