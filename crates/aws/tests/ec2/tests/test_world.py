"""The clock, the agenda, faults, tokens and the guard's input, without a server."""

import unittest

from ..guard import left_over
from ..idempotency import Mismatch, Tokens
from ..world import Fault, World


class Time(unittest.TestCase):
    def test_an_event_happens_when_the_clock_reaches_it_and_not_before(self) -> None:
        world, seen = World(), []
        world.after(2, lambda: seen.append("two"))
        world.after(1, lambda: seen.append("one"))
        world.settle()
        self.assertEqual(seen, [])
        world.advance(1.5)
        self.assertEqual(seen, ["one"])
        world.advance(1)
        self.assertEqual(seen, ["one", "two"])

    def test_an_event_sees_its_own_time(self) -> None:
        world, seen = World(), []
        world.after(1, lambda: world.after(1, lambda: seen.append(world.clock.now())))
        world.advance(10)
        self.assertEqual((seen, world.clock.now()), ([2.0], 10.0))

    def test_events_of_the_same_time_happen_in_order(self) -> None:
        world, seen = World(), []
        for number in range(3):
            world.after(0, lambda number=number: seen.append(number))
        world.settle()
        self.assertEqual(seen, [0, 1, 2])


class Faults(unittest.TestCase):
    def test_a_fault_meets_its_action_as_often_as_it_says(self) -> None:
        world = World(faults=[Fault("Code", 500, action="CreateFleet", times=2)])
        self.assertIsNone(world.take_fault("RunInstances"))
        self.assertIsNotNone(world.take_fault("CreateFleet"))
        self.assertIsNotNone(world.take_fault("CreateFleet"))
        self.assertIsNone(world.take_fault("CreateFleet"))


class Repeats(unittest.TestCase):
    def test_a_token_repeats_its_answer_and_refuses_other_parameters(self) -> None:
        tokens, calls = Tokens(), iter(range(9))
        answers = [tokens.once("t", {"a": 1}, lambda: next(calls)) for _ in range(2)]
        self.assertEqual(answers, [0, 0])
        self.assertEqual(tokens.once("u", {"a": 1}, lambda: next(calls)), 1)
        with self.assertRaises(Mismatch):
            tokens.once("t", {"a": 2}, lambda: next(calls))

    def test_a_failed_call_is_performed_again(self) -> None:
        tokens = Tokens()
        with self.assertRaises(ZeroDivisionError):
            tokens.once("t", {}, lambda: 1 // 0)
        self.assertEqual(tokens.once("t", {}, lambda: 7), 7)


class Guards(unittest.TestCase):
    def test_groups_that_started_and_did_not_end_are_left_over(self) -> None:
        self.assertEqual(left_over(["+1\n", "+2\n", "-1\n", "+3\n"]), [2, 3])
