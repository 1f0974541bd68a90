"""CreateFleet, over the wire."""

from typing import Any

from .harness import Case, codes, launched

NEEDS = {"VCpuCount": {"Min": 2, "Max": 2}, "MemoryMiB": {"Min": 0}}


class Capacity(Case):
    def overrides(self) -> list[dict[str, Any]]:
        return [{"InstanceType": "m5.large", "SubnetId": self.subnet(zone)} for zone in "ab"]

    def test_a_fleet_gets_what_fits_and_an_error_for_each_shortage(self) -> None:
        self.admin("PUT", "capacity", [{"limit": 2, "zone": "*a"}, {"limit": 1, "zone": "*b"}])
        fleet = self.fleet(self.template(), self.overrides(), 5)
        zones = [self.describe(it)["Placement"]["AvailabilityZone"][-1] for it in launched(fleet)]
        self.assertEqual(zones, ["a", "a", "b"])
        self.assertEqual(codes(fleet), ["InsufficientInstanceCapacity"] * 2)
        error = fleet["Errors"][0]
        self.assertEqual(error["Lifecycle"], "on-demand")
        named = error["LaunchTemplateAndOverrides"]["Overrides"]
        self.assertEqual(named, self.overrides()[0])

    def test_a_call_for_a_fleet_without_capacity_succeeds(self) -> None:
        self.admin("PUT", "capacity", [{"limit": 0, "usage": "spot"}])
        fleet = self.fleet(self.template(), self.overrides(), 3, usage="spot")
        self.assertEqual(launched(fleet), [])
        self.assertEqual(codes(fleet), ["UnfulfillableCapacity"] * 2)

    def test_an_ended_instance_gives_its_capacity_back(self) -> None:
        self.admin("PUT", "capacity", [{"limit": 1}])
        template = self.template()
        first = launched(self.fleet(template, self.overrides(), 1))
        self.assertEqual(launched(self.fleet(template, self.overrides(), 1)), [])
        self.ec2.terminate_instances(InstanceIds=first)
        self.assertEqual(len(launched(self.fleet(template, self.overrides(), 1))), 1)

    def test_quotas_are_of_one_usage(self) -> None:
        self.admin("PUT", "quotas", {"on-demand": 4, "spot": 2})
        template = self.template()
        fleet = self.fleet(template, self.overrides(), 3)
        self.assertEqual((len(launched(fleet)), codes(fleet)[0]), (2, "VcpuLimitExceeded"))
        fleet = self.fleet(template, self.overrides(), 3, usage="spot")
        self.assertEqual(
            (len(launched(fleet)), codes(fleet)[0]), (1, "MaxSpotInstanceCountExceeded")
        )

    def test_less_than_the_minimum_launches_nothing(self) -> None:
        self.admin("PUT", "capacity", [{"limit": 2}])
        options = {"MinTargetCapacity": 3}
        fleet = self.fleet(self.template(), self.overrides(), 4, OnDemandOptions=options)
        self.assertEqual(launched(fleet), [])
        self.assertIn("InsufficientInstanceCapacity", codes(fleet))

    def test_each_usage_gets_its_share(self) -> None:
        target = {
            "TotalTargetCapacity": 5,
            "OnDemandTargetCapacity": 2,
            "DefaultTargetCapacityType": "spot",
        }
        fleet = self.fleet(self.template(), self.overrides(), 5, target=target)
        counts = {it["Lifecycle"]: len(it["InstanceIds"]) for it in fleet["Instances"]}
        self.assertEqual(counts, {"on-demand": 2, "spot": 3})

    def test_a_bad_override_is_an_error_beside_the_good_ones(self) -> None:
        template = self.template()
        other = self.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        group = self.ec2.create_security_group(GroupName="g", Description="d", VpcId=other)
        good = self.overrides()[0]
        for bad, code in (
            ({"InstanceType": "m5.large", "SubnetId": "subnet-00000000"}, "InvalidSubnetID.NotFound"),
            ({"InstanceType": "x9.huge", "SubnetId": good["SubnetId"]}, "InvalidParameterValue"),
            ({"InstanceType": "m5.large", "AvailabilityZone": "us-east-1z"}, "Unsupported"),
            ({**good, "ImageId": "ami-00000000"}, "InvalidAMIID.NotFound"),
        ):
            fleet = self.fleet(template, [bad, good], 1)
            self.assertEqual((codes(fleet), len(launched(fleet))), ([code], 1), bad)
        self.ec2.create_launch_template_version(
            LaunchTemplateId=template,
            SourceVersion="1",
            LaunchTemplateData={"SecurityGroupIds": [group["GroupId"]]},
        )
        fleet = self.fleet(template, [good], 1)
        self.assertEqual((codes(fleet), launched(fleet)), (["InvalidParameter"], []))

    def test_a_deregistered_image_launches_nothing(self) -> None:
        template = self.template()
        image = self.ec2.describe_images(Filters=[{"Name": "architecture", "Values": ["x86_64"]}])
        self.ec2.deregister_image(ImageId=image["Images"][0]["ImageId"])
        fleet = self.fleet(template, self.overrides()[:1], 1)
        self.assertEqual((codes(fleet), launched(fleet)), (["InvalidAMIID.Unavailable"], []))


class Types(Case):
    def test_types_follow_the_requirements_and_the_images_architecture(self) -> None:
        needs = NEEDS | {"AllowedInstanceTypes": ["m5.large", "m6g.large", "t3.large"]}
        override = {"InstanceRequirements": needs, "SubnetId": self.subnet("a")}
        template = self.template()
        fleet = self.fleet(template, [override], 1)
        self.assertEqual([it["InstanceType"] for it in fleet["Instances"]], ["m5.large"])
        self.ec2.create_launch_template_version(
            LaunchTemplateId=template, LaunchTemplateData={"ImageId": self.image("arm64")}
        )
        fleet = self.fleet(template, [override], 1)
        self.assertEqual([it["InstanceType"] for it in fleet["Instances"]], ["m6g.large"])

    def test_requirements_skip_types_that_the_zone_does_not_offer(self) -> None:
        needs = NEEDS | {"AllowedInstanceTypes": ["m4.large", "c5.large"]}
        template = self.template()
        for zone, name in (("a", "c5.large"), ("e", "m4.large")):
            override = {"InstanceRequirements": needs, "SubnetId": self.subnet(zone)}
            fleet = self.fleet(template, [override], 1)
            types = [it["InstanceType"] for it in fleet["Instances"]]
            self.assertEqual((types, fleet["Errors"]), ([name], []), zone)
        nothing = NEEDS | {"AllowedInstanceTypes": ["c5.large"]}
        override = {"InstanceRequirements": nothing, "SubnetId": self.subnet("e")}
        self.assertEqual(codes(self.fleet(template, [override], 1)), ["Unsupported"])

    def test_a_fault_that_many_types_share_is_reported_once(self) -> None:
        override = {"InstanceRequirements": NEEDS, "SubnetId": "subnet-00000000"}
        fleet = self.fleet(self.template(), [override], 1)
        self.assertEqual(codes(fleet), ["InvalidSubnetID.NotFound"])

    def test_the_next_type_is_taken_when_one_is_short(self) -> None:
        self.admin("PUT", "capacity", [{"limit": 1, "type": "c5.large"}])
        needs = NEEDS | {"AllowedInstanceTypes": ["m5.large", "c5.large"]}
        fleet = self.fleet(self.template(), [{"InstanceRequirements": needs}], 2)
        types = [it["InstanceType"] for it in fleet["Instances"]]
        self.assertEqual(types, ["c5.large", "m5.large"])

    def test_requirements_are_refused_where_ec2_would(self) -> None:
        template = self.template()
        for override, code in (
            ({"InstanceRequirements": NEEDS, "InstanceType": "m5.large"}, "InvalidParameterCombination"),
            (
                {"InstanceRequirements": NEEDS | {"AllowedInstanceTypes": ["no.*"]}},
                "InvalidParameterValue",
            ),
        ):
            named = {"template": template, "overrides": [override], "count": 1}
            self.assertEqual(self.refused(self.fleet, **named), (code, 400))

    def test_types_are_listed_in_pages(self) -> None:
        paginate = self.ec2.get_paginator("get_instance_types_from_instance_requirements").paginate
        pages = list(
            paginate(
                ArchitectureTypes=["x86_64"],
                VirtualizationTypes=["hvm"],
                InstanceRequirements=NEEDS | {"AllowedInstanceTypes": ["?5.large"]},
                PaginationConfig={"PageSize": 2},
            )
        )
        names = [it["InstanceType"] for page in pages for it in page["InstanceTypes"]]
        self.assertEqual(names, ["c5.large", "m5.large", "r5.large"])
        self.assertEqual(len(pages), 2)


class Launches(Case):
    def test_an_instance_has_the_settings_of_its_template(self) -> None:
        network = self.ec2.describe_subnets()["Subnets"][0]["VpcId"]
        group = self.ec2.create_security_group(GroupName="g", Description="d", VpcId=network)
        template = self.template(
            UserData="aGVsbG8=",
            IamInstanceProfile={"Name": "profile"},
            InstanceInitiatedShutdownBehavior="terminate",
            MetadataOptions={"HttpTokens": "required"},
            NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [group["GroupId"]]}],
            BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 33}}],
            TagSpecifications=[{"ResourceType": "volume", "Tags": [{"Key": "k", "Value": "v"}]}],
        )
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "mine", "Value": "yes"}]}]
        override = {"InstanceType": "m5.large", "SubnetId": self.subnet("b")}
        fleet = self.fleet(template, [override], 1, TagSpecifications=tags)
        instance = self.describe(launched(fleet)[0])
        self.assertTrue(instance["IamInstanceProfile"]["Arn"].endswith(":instance-profile/profile"))
        self.assertEqual(instance["MetadataOptions"]["HttpTokens"], "required")
        self.assertEqual(instance["SubnetId"], self.subnet("b"))
        self.assertEqual(instance["NetworkInterfaces"][0]["Groups"][0]["GroupId"], group["GroupId"])
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        self.assertEqual((tags["mine"], tags["aws:ec2:fleet-id"]), ("yes", fleet["FleetId"]))
        volumes = self.ec2.describe_volumes()["Volumes"]
        self.assertEqual([(it["Size"], it["Tags"][0]["Value"]) for it in volumes], [(33, "v")])

    def test_a_spot_instance_has_a_one_time_request(self) -> None:
        fleet = self.fleet(self.template(), [{"InstanceType": "m5.large"}], 1, usage="spot")
        instance = self.describe(launched(fleet)[0])
        self.assertEqual(instance["InstanceLifecycle"], "spot")
        request = self.ec2.describe_spot_instance_requests()["SpotInstanceRequests"][0]
        self.assertEqual(request["SpotInstanceRequestId"], instance["SpotInstanceRequestId"])
        self.assertEqual((request["Type"], request["InstanceId"]), ("one-time", launched(fleet)[0]))

    def test_pages_count_instances(self) -> None:
        self.fleet(self.template(), [{"InstanceType": "m5.large"}], 12)
        pages = self.ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5})
        counts = [sum(len(it["Instances"]) for it in page["Reservations"]) for page in pages]
        self.assertEqual(counts, [5, 5, 2])

    def test_the_same_token_is_the_same_fleet(self) -> None:
        template = self.template()
        override = [{"InstanceType": "m5.large"}]
        first = self.fleet(template, override, 2, ClientToken="token")
        again = self.fleet(template, override, 2, ClientToken="token")
        self.assertEqual((first["FleetId"], launched(first)), (again["FleetId"], launched(again)))
        other = self.fleet(template, override, 2, ClientToken="other")
        self.assertNotEqual(launched(first), launched(other))
        named = {"template": template, "overrides": override, "count": 3}
        refusal = self.refused(self.fleet, **named, ClientToken="token")
        self.assertEqual(refusal, ("IdempotentParameterMismatch", 400))

    def test_instances_of_a_call_that_failed_half_way_can_be_terminated(self) -> None:
        """moto runs out of a small subnet's addresses in the middle of a fleet."""
        network = self.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        small = self.ec2.create_subnet(VpcId=network, CidrBlock="10.9.0.0/28")["Subnet"]["SubnetId"]
        override = {"InstanceType": "m4.large", "SubnetId": small}
        named = {"template": self.template(), "overrides": [override], "count": 20}
        self.assertEqual(self.refused(self.fleet, **named), ("InternalError", 500))
        there = self.ec2.describe_instances()["Reservations"]
        left_behind = [it["InstanceId"] for group in there for it in group["Instances"]]
        self.assertTrue(0 < len(left_behind) < 20)
        self.ec2.terminate_instances(InstanceIds=left_behind)
        self.assertEqual({self.state(name) for name in left_behind}, {"terminated"})

    def test_a_failed_call_leaves_its_instances_behind_and_its_token_finds_them(self) -> None:
        template = self.template()
        fault = {"code": "InternalError", "status": 500, "action": "CreateFleet", "carried_out": True}
        self.admin("POST", "faults", fault)
        named = {"template": template, "overrides": [{"InstanceType": "m5.large"}], "count": 2}
        refusal = self.refused(self.fleet, **named, ClientToken="t")
        self.assertEqual(refusal, ("InternalError", 500))
        there = self.ec2.describe_instances()["Reservations"]
        left_behind = sorted(it["Instances"][0]["InstanceId"] for it in there)
        self.assertEqual(len(left_behind), 2)
        again = self.fleet(**named, ClientToken="t")
        self.assertEqual(sorted(launched(again)), left_behind)
