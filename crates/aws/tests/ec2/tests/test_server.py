"""The server: one call at a time, counted, throttled, reset."""

import concurrent.futures
import io
import threading
import unittest
from typing import Any

from ..server import Application
from ..world import WORLD
from .harness import Case, launched


class Turns(unittest.TestCase):
    def test_a_call_holds_the_lock_while_it_is_answered(self) -> None:
        taken = []

        def behind(_: Any, start_response: Any) -> list[bytes]:
            # In another thread, since this one may take its own lock again.
            other = threading.Thread(target=lambda: taken.append(WORLD.lock.acquire(blocking=False)))
            other.start()
            other.join()
            start_response("200 OK", [])
            return [b"done"]

        environ = {"PATH_INFO": "/", "REQUEST_METHOD": "POST", "wsgi.input": io.BytesIO()}
        answer = Application(behind)(environ, lambda *_: None)
        self.assertEqual((list(answer), taken), ([b"done"], [False]))


class Calls(Case):
    def test_concurrent_calls_lose_no_instance(self) -> None:
        template = self.template()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            calls = [
                pool.submit(self.fleet, template, [{"InstanceType": "m5.large"}], 3)
                for _ in range(8)
            ]
            names = [name for fleet in calls for name in launched(fleet.result())]
        self.assertEqual(len(set(names)), 24)
        self.assertEqual(len(self.ec2.describe_instances()["Reservations"]), 24)

    def test_calls_are_counted_by_action_including_refused_ones(self) -> None:
        self.ec2.describe_instances()
        self.admin("POST", "faults", {"code": "RequestLimitExceeded", "status": 503})
        self.refused(self.ec2.describe_instances)
        self.ec2.describe_vpcs()
        calls = {"DescribeInstances": 2, "DescribeVpcs": 1}
        self.assertEqual(self.admin("GET", "calls"), calls)

    def test_throttled_calls_do_nothing(self) -> None:
        fault = {"code": "RequestLimitExceeded", "status": 503, "action": "RunInstances", "times": 2}
        self.admin("POST", "faults", fault)
        for _ in range(2):
            self.assertEqual(self.refused(self.run_one), ("RequestLimitExceeded", 503))
        self.assertEqual(self.ec2.describe_instances()["Reservations"], [])
        self.assertEqual(self.state(self.run_one()), "running")

    def test_a_reset_removes_instances_and_settings(self) -> None:
        self.run_one(ClientToken="token")
        self.admin("PUT", "capacity", [{"limit": 0}])
        self.admin("PUT", "quotas", {"spot": 1})
        self.admin("PUT", "delays", {"running": 9})
        self.admin("POST", "faults", {"code": "RequestLimitExceeded", "status": 503})
        answer = self.admin("POST", "reset")
        self.assertEqual((answer["capacity"], answer["quotas"], answer["faults"]), ([], {}, []))
        self.assertEqual(self.ec2.describe_instances()["Reservations"], [])
        self.assertEqual(self.state(self.run_one(ClientToken="token")), "running")

    def test_the_server_returns_its_settings(self) -> None:
        self.admin("PUT", "delays", {"visible": 2})
        answer = self.admin("GET", "")
        self.assertEqual((answer["delays"]["visible"], answer["delays"]["running"]), (2, 0))
        self.assertEqual(self.server.fetch("GET", "/_bullpen")[0], 200)

    def test_an_invalid_request_is_refused_with_a_reason(self) -> None:
        for method, route, body in (
            ("GET", "nothing", b""),
            ("PUT", "capacity", b'[{"limits": 1}]'),
            ("PUT", "delays", b"{"),
            ("POST", "interrupt", b'{"instance": "i-unknown"}'),
        ):
            status, answer = self.server.fetch(method, f"/_bullpen/{route}", body)
            self.assertEqual(status, 400, route)
            self.assertIn(b"error", answer)
