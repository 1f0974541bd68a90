"""The metadata service, with the requests of an instance."""

import json

from .harness import Case, launched

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"


class Metadata(Case):
    def token(self, instance: str) -> str:
        path = f"/_bullpen/metadata/{instance}/latest/api/token"
        return self.server.fetch("PUT", path, headers={TTL: "60"})[1].decode()

    def ask(self, instance: str, path: str) -> tuple[int, bytes]:
        path = f"/_bullpen/metadata/{instance}/latest/{path}"
        return self.server.fetch("GET", path, headers={TOKEN: self.token(instance)})

    def test_every_request_needs_a_token_of_its_own_instance(self) -> None:
        mine, other = self.run_one(), self.run_one()
        path = f"/_bullpen/metadata/{mine}/latest/meta-data/instance-id"
        self.assertEqual(self.server.fetch("GET", path)[0], 401)
        headers = {TOKEN: self.token(other)}
        self.assertEqual(self.server.fetch("GET", path, headers=headers)[0], 401)
        self.assertEqual(self.ask(mine, "meta-data/instance-id"), (200, mine.encode()))

    def test_a_request_for_a_token_needs_put_and_a_lifetime(self) -> None:
        path = f"/_bullpen/metadata/{self.run_one()}/latest/api/token"
        for headers in ({}, {TTL: "0"}, {TTL: "21601"}, {TTL: "soon"}):
            self.assertEqual(self.server.fetch("PUT", path, headers=headers)[0], 400, headers)
        self.assertEqual(self.server.fetch("GET", path, headers={TTL: "60"})[0], 405)

    def test_an_instance_reads_its_type_place_tags_and_identity(self) -> None:
        template = self.template(MetadataOptions={"InstanceMetadataTags": "enabled"})
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "stack", "Value": "s"}]}]
        override = {"InstanceType": "m5.large", "SubnetId": self.subnet("b")}
        instance = launched(self.fleet(template, [override], 1, TagSpecifications=tags))[0]
        for path, value in (
            ("meta-data/instance-type", b"m5.large"),
            ("meta-data/placement/availability-zone", b"us-east-1b"),
            ("meta-data/instance-life-cycle", b"on-demand"),
            ("meta-data/tags/instance/stack", b"s"),
        ):
            self.assertEqual(self.ask(instance, path), (200, value))
        document = json.loads(self.ask(instance, "dynamic/instance-identity/document")[1])
        self.assertEqual((document["instanceId"], document["region"]), (instance, "us-east-1"))

    def test_tags_are_readable_only_if_enabled(self) -> None:
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "stack", "Value": "s"}]}]
        instance = self.run_one(TagSpecifications=tags)
        self.assertEqual(self.ask(instance, "meta-data/tags/instance/stack")[0], 404)

    def test_user_data_are_returned_byte_for_byte(self) -> None:
        instance = self.run_one(UserData="#!/bin/sh\n")
        self.assertEqual(self.ask(instance, "user-data"), (200, b"#!/bin/sh\n"))
        self.assertEqual(self.ask(self.run_one(), "user-data")[0], 404)

    def test_an_instance_that_is_off_gets_no_answer(self) -> None:
        instance = self.run_one()
        token = self.token(instance)
        self.ec2.stop_instances(InstanceIds=[instance])
        path = f"/_bullpen/metadata/{instance}/latest/meta-data/instance-id"
        self.assertEqual(self.server.fetch("GET", path, headers={TOKEN: token})[0], 404)

    def test_an_interrupted_spot_instance_gets_a_notice_and_ends(self) -> None:
        fleet = self.fleet(self.template(), [{"InstanceType": "m5.large"}], 1, usage="spot")
        instance = launched(fleet)[0]
        action = "meta-data/spot/instance-action"
        self.assertEqual(self.ask(instance, action)[0], 404)
        self.admin("POST", "interrupt", {"instance": instance})
        notice = json.loads(self.ask(instance, action)[1])
        self.assertEqual((notice["action"], sorted(notice)), ("terminate", ["action", "time"]))
        self.advance(119)
        self.assertEqual(self.state(instance), "running")
        self.advance(1)
        self.assertEqual(self.state(instance), "terminated")
