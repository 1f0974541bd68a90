"""Instances over the wire: transitions that take time, and calls that are refused."""

from .harness import Case, launched


class Transitions(Case):
    def test_a_launch_is_pending_until_its_time(self) -> None:
        self.admin("PUT", "delays", {"running": 10})
        instance = self.run_one()
        self.assertEqual(self.state(instance), "pending")
        self.advance(9)
        self.assertEqual(self.state(instance), "pending")
        self.advance(1)
        self.assertEqual(self.state(instance), "running")

    def test_a_stop_and_a_start_take_their_time(self) -> None:
        instance = self.run_one()
        self.admin("PUT", "delays", {"running": 5, "stopped": 20})
        stopped = self.ec2.stop_instances(InstanceIds=[instance])["StoppingInstances"][0]
        self.assertEqual(stopped["PreviousState"]["Name"], "running")
        self.assertEqual(stopped["CurrentState"]["Name"], "stopping")
        call = self.ec2.start_instances
        self.assertEqual(self.refused(call, InstanceIds=[instance])[0], "IncorrectInstanceState")
        self.advance(20)
        self.assertEqual(self.state(instance), "stopped")
        self.ec2.start_instances(InstanceIds=[instance])
        self.assertEqual(self.state(instance), "pending")
        self.advance(5)
        self.assertEqual(self.state(instance), "running")

    def test_a_termination_takes_time_and_cannot_be_undone(self) -> None:
        instance = self.run_one()
        self.admin("PUT", "delays", {"terminated": 30})
        self.ec2.terminate_instances(InstanceIds=[instance])
        self.assertEqual(self.state(instance), "shutting-down")
        self.advance(30)
        self.assertEqual(self.state(instance), "terminated")
        for call in (self.ec2.start_instances, self.ec2.stop_instances):
            self.assertEqual(self.refused(call, InstanceIds=[instance])[0], "IncorrectInstanceState")
        again = self.ec2.terminate_instances(InstanceIds=[instance])["TerminatingInstances"][0]
        self.assertEqual(again["CurrentState"]["Name"], "terminated")

    def test_a_termination_overtakes_a_start(self) -> None:
        self.admin("PUT", "delays", {"running": 10, "terminated": 1})
        instance = self.run_one()
        self.ec2.terminate_instances(InstanceIds=[instance])
        self.advance(60)
        self.assertEqual(self.state(instance), "terminated")

    def test_a_pending_instance_cannot_be_stopped(self) -> None:
        self.admin("PUT", "delays", {"running": 10})
        instance = self.run_one()
        call = self.ec2.stop_instances
        self.assertEqual(self.refused(call, InstanceIds=[instance]), ("IncorrectInstanceState", 400))

    def test_a_call_that_is_refused_for_one_instance_changes_none(self) -> None:
        good, gone = self.run_one(), self.run_one()
        self.ec2.terminate_instances(InstanceIds=[gone])
        call = self.ec2.stop_instances
        self.assertEqual(
            self.refused(call, InstanceIds=[good, gone])[0], "IncorrectInstanceState"
        )
        self.assertEqual(self.state(good), "running")

    def test_a_one_time_spot_instance_cannot_be_stopped(self) -> None:
        fleet = self.fleet(self.template(), [{"InstanceType": "m5.large"}], 1, usage="spot")
        call = self.ec2.stop_instances
        self.assertEqual(
            self.refused(call, InstanceIds=launched(fleet)), ("UnsupportedOperation", 400)
        )


class Visibility(Case):
    def test_no_call_knows_a_new_id_yet(self) -> None:
        self.admin("PUT", "delays", {"visible": 3})
        instance = self.run_one()
        for call in (
            self.ec2.describe_instances,
            self.ec2.stop_instances,
            self.ec2.terminate_instances,
        ):
            code = self.refused(call, InstanceIds=[instance])[0]
            self.assertEqual(code, "InvalidInstanceID.NotFound")
        tags = [{"Key": "k", "Value": "v"}]
        code = self.refused(self.ec2.create_tags, Resources=[instance], Tags=tags)[0]
        self.assertEqual(code, "InvalidInstanceID.NotFound")
        self.assertEqual(self.ec2.describe_instances()["Reservations"], [])
        self.advance(3)
        self.assertEqual(self.state(instance), "running")
        self.ec2.create_tags(Resources=[instance], Tags=tags)

    def test_an_id_that_is_not_visible_holds_capacity(self) -> None:
        self.admin("PUT", "delays", {"visible": 3})
        self.admin("PUT", "capacity", [{"limit": 1}])
        self.run_one()
        self.assertEqual(self.refused(self.run_one)[0], "InsufficientInstanceCapacity")


class Starts(Case):
    def test_a_start_is_refused_when_another_instance_has_the_capacity(self) -> None:
        first = self.run_one()
        self.ec2.stop_instances(InstanceIds=[first])
        self.admin("PUT", "capacity", [{"limit": 1}])
        other = self.run_one()
        call = self.ec2.start_instances
        refusal = self.refused(call, InstanceIds=[first])
        self.assertEqual(refusal, ("InsufficientInstanceCapacity", 500))
        self.assertEqual(self.state(first), "stopped")
        self.ec2.terminate_instances(InstanceIds=[other])
        self.ec2.start_instances(InstanceIds=[first])
        self.assertEqual(self.state(first), "running")

    def test_a_start_is_refused_over_the_quota(self) -> None:
        instance = self.run_one()
        self.ec2.stop_instances(InstanceIds=[instance])
        self.admin("PUT", "quotas", {"on-demand": 1})
        call = self.ec2.start_instances
        self.assertEqual(self.refused(call, InstanceIds=[instance]), ("VcpuLimitExceeded", 400))


class Runs(Case):
    def test_a_call_launches_what_fits_between_its_minimum_and_maximum(self) -> None:
        self.admin("PUT", "capacity", [{"limit": 3}])
        named = {"ImageId": self.image(), "InstanceType": "m5.large"}
        answer = self.ec2.run_instances(MinCount=1, MaxCount=4, **named)
        self.assertEqual(len(answer["Instances"]), 3)
        call = self.ec2.run_instances
        refusal = self.refused(call, MinCount=1, MaxCount=1, **named)
        self.assertEqual(refusal, ("InsufficientInstanceCapacity", 500))

    def test_a_type_that_the_zone_does_not_have(self) -> None:
        placement = {"AvailabilityZone": "us-east-1e"}
        call = self.run_one
        refusal = self.refused(call, InstanceType="m7i.large", Placement=placement)
        self.assertEqual(refusal, ("Unsupported", 400))

    def test_the_same_token_is_the_same_instance(self) -> None:
        first = self.run_one(ClientToken="token")
        self.assertEqual(self.run_one(ClientToken="token"), first)
        self.assertNotEqual(self.run_one(ClientToken="other"), first)
        call = self.run_one
        refusal = self.refused(call, ClientToken="token", InstanceType="m5.xlarge")
        self.assertEqual(refusal, ("IdempotentParameterMismatch", 400))

    def test_a_dry_run_uses_up_nothing(self) -> None:
        self.admin("PUT", "capacity", [{"limit": 1}])
        call = self.run_one
        self.assertEqual(self.refused(call, DryRun=True, ClientToken="t")[0], "DryRunOperation")
        self.assertEqual(self.state(self.run_one(ClientToken="u")), "running")


class Templates(Case):
    def test_a_version_inherits_missing_data_from_its_source(self) -> None:
        template = self.template(InstanceType="m5.large", UserData="b25l")
        version = self.ec2.create_launch_template_version(
            LaunchTemplateId=template, SourceVersion="1", LaunchTemplateData={"UserData": "dHdv"}
        )["LaunchTemplateVersion"]
        data = version["LaunchTemplateData"]
        self.assertEqual((data["ImageId"], data["InstanceType"]), (self.image(), "m5.large"))
        self.assertEqual(data["UserData"], "dHdv")
        fleet = self.fleet(template, [{"SubnetId": self.subnet("a")}], 1)
        name = launched(fleet)[0]
        found = self.ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
        self.assertEqual(found["UserData"]["Value"], "dHdv")

    def test_a_version_without_a_source_inherits_nothing(self) -> None:
        template = self.template(InstanceType="m5.large")
        version = self.ec2.create_launch_template_version(
            LaunchTemplateId=template, LaunchTemplateData={"ImageId": self.image()}
        )["LaunchTemplateVersion"]
        self.assertNotIn("InstanceType", version["LaunchTemplateData"])

    def test_user_data_of_any_version_have_to_be_base64(self) -> None:
        template = self.template()
        call = self.ec2.create_launch_template_version
        named = {"LaunchTemplateId": template, "LaunchTemplateData": {"UserData": "#!/bin/sh"}}
        self.assertEqual(self.refused(call, **named), ("InvalidUserData.Malformed", 400))

    def test_a_missing_source_is_refused(self) -> None:
        template = self.template()
        call = self.ec2.create_launch_template_version
        named = {"LaunchTemplateId": template, "SourceVersion": "7", "LaunchTemplateData": {}}
        code = self.refused(call, **named)[0]
        self.assertEqual(code, "InvalidLaunchTemplateId.VersionNotFound")
