"""Whole instances: the test EC2 launches them, and the hook runs a machine for each."""

from __future__ import annotations

import pathlib
import tempfile
import time

from ec2.tests.harness import PATIENCE, Case

HOOK = pathlib.Path(__file__).parent.parent / "hook"
# A service that logs the boot's id and does not end.
UNIT = "[Service]\\nExecStart=/opt/stay\\n[Install]\\nWantedBy=multi-user.target\\n"
USER_DATA = f"""#!/bin/sh
set -e
printf '#!/bin/sh\\ncat /proc/sys/kernel/random/boot_id >>/var/lib/bullpen/boots\\nexec sleep 3600\\n' >/opt/stay
chmod +x /opt/stay
printf '{UNIT}' >/etc/systemd/system/stay.service
systemctl enable --now stay.service
"""


class Machines(Case):
    def setUp(self) -> None:
        super().setUp()
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        # End the machines before their directory is removed.
        self.addCleanup(self.admin, "POST", "reset")
        self.machines = pathlib.Path(scratch.name)

    def launch(self, user_data: str, **environment: str) -> str:
        settings = {"BULLPEN_MACHINES": str(self.machines), **environment}
        pairs = [f"{name}={value}" for name, value in settings.items()]
        self.admin("PUT", "hook", {"command": ["env", *pairs, str(HOOK)]})
        return self.run_one(UserData=user_data, InstanceInitiatedShutdownBehavior="terminate")

    def journal(self, instance: str) -> list[str]:
        path = self.machines / instance / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, instance: str, line: str, times: int = 1) -> list[str]:
        until = time.monotonic() + PATIENCE
        while (journal := self.journal(instance)).count(line) < times:
            self.assertLess(time.monotonic(), until, journal)
            time.sleep(0.01)
        return journal

    def wait_until_ended(self, instance: str) -> None:
        waiter = self.ec2.get_waiter("instance_terminated")
        waiter.wait(InstanceIds=[instance], WaiterConfig={"Delay": 0.01, "MaxAttempts": 1000})

    def test_user_data_run_once_and_enabled_units_at_every_boot(self) -> None:
        instance = self.launch(USER_DATA)
        self.wait_for(instance, "user data end: 0")
        self.ec2.stop_instances(InstanceIds=[instance])
        self.wait_for(instance, "off: SIGTERM")
        self.ec2.start_instances(InstanceIds=[instance])
        journal = self.wait_for(instance, "stay.service started", times=2)
        self.assertEqual(journal.count("user data begin"), 1)
        self.assertEqual(journal.count("boot"), 2)
        boots = self.machines / instance / "root/var/lib/bullpen/boots"
        until = time.monotonic() + PATIENCE
        while len(found := boots.read_text().split()) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(len(set(found)), 2)

    def test_a_machine_that_powers_itself_off_is_terminated(self) -> None:
        for command in ("poweroff", "systemctl poweroff --force", "systemctl poweroff"):
            instance = self.launch(f"#!/bin/sh\n{command}\nsleep 3600\n")
            self.wait_until_ended(instance)
            self.assertEqual(self.journal(instance)[-2], f"call {command}")

    def test_a_transient_timer_powers_the_machine_off(self) -> None:
        command = "systemd-run --unit=soon --on-active=60s systemctl poweroff --force"
        instance = self.launch(f"#!/bin/sh\n{command}\nsleep 3600\n", BULLPEN_MACHINE_SPEED="1000")
        self.wait_until_ended(instance)
        self.assertIn("soon.timer armed: 60 s", self.journal(instance))

    def test_a_use_that_is_not_played_is_refused(self) -> None:
        for command in ("systemctl reboot", "systemd-run true", "systemctl start no.service"):
            instance = self.launch(f"#!/bin/sh\n{command} || echo refused >/var/log/result\npoweroff -f\n")
            self.wait_until_ended(instance)
            result = (self.machines / instance / "root/var/log/result").read_text()
            self.assertEqual(result, "refused\n", command)

    def test_a_machine_sees_the_hosts_files_and_keeps_its_own(self) -> None:
        script = "touch /etc/mine /opt/mine /home/mine /var/log/mine; test -e /etc/ssl && poweroff -f"
        instance = self.launch(f"#!/bin/sh\n{script}\n")
        self.wait_until_ended(instance)
        for directory in ("etc", "opt", "home", "var/log"):
            self.assertTrue((self.machines / instance / "root" / directory / "mine").exists())
            self.assertFalse(pathlib.Path(f"/{directory}/mine").exists())
