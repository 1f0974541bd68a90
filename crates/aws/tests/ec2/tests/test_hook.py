"""The launch hook with real processes, whose start and end the test observes.

A *machine* here is a program that connects to the test and waits. Its connection ends when it does.
"""

from __future__ import annotations

import base64
import json
import signal
import socket
import sys

from .harness import PATIENCE, Case, Server

# Sends its environment, then waits; ends by itself when it receives a byte. Its child holds the connection
# too, so the connection ends when both have ended.
MACHINE = """
import json, os, signal, socket, subprocess, sys
if sys.argv[2:] == ["stubborn"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.set_inheritable(True)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], close_fds=False)
environment = {k: v for k, v in os.environ.items() if k.startswith("EC2_")}
s.sendall(json.dumps(environment).encode() + b"\\n")
s.recv(1)
"""


class Machine:
    """A machine that has connected."""

    def __init__(self, listener: socket.socket) -> None:
        self._socket, _ = listener.accept()
        self._socket.settimeout(PATIENCE)
        with self._socket.makefile() as lines:
            self.environment = json.loads(lines.readline())

    def close(self) -> None:
        self._socket.close()

    def shut_down(self) -> None:
        self._socket.sendall(b"!")

    def wait_for_its_end(self) -> None:
        if self._socket.recv(1) != b"":
            raise AssertionError("the machine sent another byte")


class Hooks(Case):
    def setUp(self) -> None:
        super().setUp()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        self.addCleanup(self.listener.close)

    def command(self, *more: str) -> list[str]:
        port = str(self.listener.getsockname()[1])
        return [sys.executable, "-I", "-S", "-c", MACHINE, port, *more]

    def hook(self, *more: str) -> None:
        self.admin("PUT", "hook", {"command": self.command(*more)})

    def machine(self) -> Machine:
        """Waits for the next machine that connects."""
        machine = Machine(self.listener)
        self.addCleanup(machine.close)
        return machine

    def test_a_machine_starts_when_its_instance_runs_and_knows_its_id(self) -> None:
        self.hook()
        self.admin("PUT", "delays", {"running": 10})
        instance = self.run_one(UserData="hello")
        self.assertEqual(self.admin("GET", "processes"), {})
        self.advance(10)
        machine = self.machine()
        environment = machine.environment
        self.assertEqual(environment["EC2_INSTANCE_ID"], instance)
        self.assertEqual(base64.b64decode(environment["EC2_USER_DATA"]), b"hello")
        path = environment["EC2_METADATA"].removeprefix(self.server.url)
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        self.assertEqual(self.server.fetch("PUT", f"{path}/latest/api/token", headers=headers)[0], 200)
        self.assertEqual(list(self.admin("GET", "processes")), [instance])

    def test_a_machine_ends_and_starts_with_its_instance(self) -> None:
        self.hook()
        instance = self.run_one()
        first = self.machine()
        self.ec2.stop_instances(InstanceIds=[instance])
        first.wait_for_its_end()
        self.assertEqual(self.admin("GET", "processes"), {})
        self.ec2.start_instances(InstanceIds=[instance])
        second = self.machine()
        self.assertEqual(second.environment["EC2_INSTANCE_ID"], instance)
        self.ec2.terminate_instances(InstanceIds=[instance])
        second.wait_for_its_end()

    def test_a_machine_that_ignores_sigterm_is_killed(self) -> None:
        self.hook("stubborn")
        instance = self.run_one()
        machine = self.machine()
        self.ec2.terminate_instances(InstanceIds=[instance])
        machine.wait_for_its_end()

    def test_a_machine_that_shuts_itself_down_stops_or_ends_its_instance(self) -> None:
        self.hook()
        for behaviour, state in (("stop", "stopped"), ("terminate", "terminated")):
            instance = self.run_one(InstanceInitiatedShutdownBehavior=behaviour)
            machine = self.machine()
            machine.shut_down()
            machine.wait_for_its_end()
            waiter = self.ec2.get_waiter(f"instance_{state}")
            waiter.wait(InstanceIds=[instance], WaiterConfig={"Delay": 0, "MaxAttempts": 1000})

    def test_a_reset_ends_all_machines(self) -> None:
        """It also restores the command that the server was started with, here none."""
        self.hook()
        self.run_one()
        machine = self.machine()
        self.assertEqual(self.admin("POST", "reset")["hook"], [])
        machine.wait_for_its_end()

    def test_no_machine_outlives_the_server_however_it_ends(self) -> None:
        arguments = ("--grace", "0.2", "--clock", "real", "--", *self.command("stubborn"))
        for number in (signal.SIGTERM, signal.SIGKILL):
            server = Server(*arguments)
            self.addCleanup(server.end)
            # With the real clock, time passes without `POST clock`, which the server refuses.
            server.admin("PUT", "delays", {"running": 0.05})
            self.assertIn("error", server.admin("POST", "clock", {"advance": 1}))
            named = {"ImageId": self.image(), "InstanceType": "m5.large"}
            server.ec2.run_instances(MinCount=1, MaxCount=1, **named)
            machine = self.machine()
            server.process.send_signal(number)
            machine.wait_for_its_end()
