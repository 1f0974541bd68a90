"""The server as a child process, its client, and helpers for the tests.

One server serves all tests of a run; each test begins with a reset.
"""

from __future__ import annotations

import atexit
import functools
import json
import pathlib
import subprocess
import sys
import unittest
import urllib.error
import urllib.request
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

PACKAGE = pathlib.Path(__file__).parent.parent
REGION = "us-east-1"
IMAGES = {
    image["architecture"]: image["ami_id"]
    for image in json.loads((PACKAGE / "images.json").read_text())
}
# The longest wait on a busy machine; only a failing test waits this long.
PATIENCE = 30.0


class Server:
    """A running test EC2."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-B", "-m", PACKAGE.name, *arguments],
            cwd=PACKAGE.parent,
            stdout=subprocess.PIPE,
            # moto prints its errors there, and some tests provoke them.
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.url = self.process.stdout.readline().strip()
        self.ec2 = boto3.client(
            "ec2",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=16),
        )

    def admin(self, method: str, route: str, body: Any = None) -> Any:
        return json.loads(self.fetch(method, f"/_bullpen/{route}", json.dumps(body).encode())[1])

    def fetch(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        request = urllib.request.Request(
            f"{self.url}{path}", method=method, data=body, headers=headers or {}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def end(self) -> int:
        self.process.terminate()
        with self.process.stdout:
            return self.process.wait(PATIENCE)


@functools.cache
def shared() -> Server:
    server = Server("--grace", "0.2")
    atexit.register(server.end)
    return server


class Case(unittest.TestCase):
    """A test with a server in its state at the start."""

    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = shared()

    def setUp(self) -> None:
        self.admin("POST", "reset")
        self.ec2 = self.server.ec2

    def admin(self, method: str, route: str, body: Any = None) -> Any:
        return self.server.admin(method, route, body)

    def advance(self, seconds: float) -> None:
        self.admin("POST", "clock", {"advance": seconds})

    def refused(self, call: Any, **named: Any) -> tuple[str, int]:
        """The error code and the status of a call that the server refuses."""
        with self.assertRaises(ClientError) as caught:
            call(**named)
        answer = caught.exception.response
        return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]

    def image(self, architecture: str = "x86_64") -> str:
        return IMAGES[architecture]

    def subnet(self, zone: str) -> str:
        found = self.ec2.describe_subnets(
            Filters=[{"Name": "availability-zone", "Values": [f"{REGION}{zone}"]}]
        )
        return found["Subnets"][0]["SubnetId"]

    def template(self, **data: Any) -> str:
        created = self.ec2.create_launch_template(
            LaunchTemplateName="template", LaunchTemplateData={"ImageId": self.image()} | data
        )
        return created["LaunchTemplate"]["LaunchTemplateId"]

    def run_one(self, **named: Any) -> str:
        named = {"ImageId": self.image(), "InstanceType": "m5.large"} | named
        return self.ec2.run_instances(MinCount=1, MaxCount=1, **named)["Instances"][0]["InstanceId"]

    def fleet(self, template: str, overrides: list[dict[str, Any]], count: int, **named: Any) -> Any:
        """Creates an instant fleet."""
        usage = named.pop("usage", "on-demand")
        target = {"TotalTargetCapacity": count, "DefaultTargetCapacityType": usage}
        config = {
            "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "$Latest"},
            "Overrides": overrides,
        }
        return self.ec2.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[config],
            TargetCapacitySpecification=named.pop("target", target),
            **named,
        )

    def state(self, instance: str) -> str:
        return self.describe(instance)["State"]["Name"]

    def describe(self, instance: str) -> dict[str, Any]:
        found = self.ec2.describe_instances(InstanceIds=[instance])
        return found["Reservations"][0]["Instances"][0]


def launched(fleet: Any) -> list[str]:
    return [name for group in fleet["Instances"] for name in group["InstanceIds"]]


def codes(fleet: Any) -> list[str]:
    return [error["ErrorCode"] for error in fleet["Errors"]]
