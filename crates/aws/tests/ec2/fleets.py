"""CreateFleet as far as a control plane needs it: overrides that are refused one by one, types by
requirements, partial fleets with `Errors`, one call for one token.

moto keeps the list of fleets; this module decides what they launch.

Not here: the order in which fleets use capacity (`capacity`), which types match (`requirements`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import moto.ec2.models.fleets as models
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError, UnvailableAMIIdError
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.spot_requests import SpotFleetLaunchSpec, SpotInstanceRequest
from moto.ec2.responses.fleets import Fleets
from moto.ec2.utils import random_spot_request_id

from . import requirements
from .capacity import ON_DEMAND, SPOT, Filling, Offer, fill
from .instances import Instance, capacity_in, explanation, is_offered, kind, once

# An override with requirements means this many types: the smallest that match.
TYPES_MAX = 40
# The defaults for a device of a launch template.
VOLUME = {"VolumeSize": 8, "DeleteOnTermination": True}


class OneTimeRequest(SpotInstanceRequest):
    """The request of an instance that a fleet has already launched. moto's own request would launch
    another instance, and would be persistent."""

    def __init__(self, backend: Any, spec: SpotFleetLaunchSpec, instance: Instance) -> None:
        self._launched = instance
        super().__init__(
            ec2_backend=backend,
            spot_request_id=random_spot_request_id(),
            price="",
            image_id=spec.image_id,
            spot_instance_type="one-time",
            valid_from=None,
            valid_until=None,
            launch_group=None,
            availability_zone_group=None,
            key_name=spec.key_name,
            security_groups=[],
            user_data=spec.user_data,
            instance_type=spec.instance_type,
            placement=instance.placement.zone,
            kernel_id=None,
            ramdisk_id=None,
            monitoring_enabled=False,
            subnet_id=spec.subnet_id,
            tags=spec.tag_specifications,
            spot_fleet_id=None,
            instance_interruption_behaviour=None,
            launch_spec=spec,
        )
        instance.spot_instance_request_id = self.id

    def launch_instance(self) -> Instance:
        return self._launched


class Fleet(models.Fleet):
    """A fleet that gets as many instances as there is capacity for."""

    def __init__(
        self,
        ec2_backend: Any,
        fleet_id: str,
        on_demand_options: dict[str, Any],
        spot_options: dict[str, Any],
        target: dict[str, Any],
        configs: list[dict[str, Any]],
        *others: Any,
    ) -> None:
        self.errors: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        expanded = [_with_types(ec2_backend, config) for config in configs]
        super().__init__(
            ec2_backend, fleet_id, on_demand_options, spot_options, target, expanded, *others
        )
        self.launch_template_configs = configs
        # Before the first launch: moto asks for the fleet of every instance that is terminated, also of
        # instances that a failed call has left behind.
        ec2_backend.fleets[fleet_id] = self
        for usage, wanted in _shares(target).items():
            options = (spot_options if usage == SPOT else on_demand_options) or {}
            if wanted > 0:
                self._launch(usage, wanted, options)

    def create_on_demand_requests(self, weight_to_add: float) -> None:
        """moto's own launching is not used."""

    def create_spot_requests(self, weight_to_add: float) -> list[SpotInstanceRequest]:
        """moto's own launching is not used."""
        return self.spot_requests

    @property
    def instances(self) -> list[dict[str, Any]] | None:
        """The instances in an instant fleet's answer: a group for each override that gave any."""
        return self.groups if self.fleet_type == "instant" else None

    def _launch(self, usage: str, wanted: float, options: Mapping[str, Any]) -> None:
        specs = self._sound_specs(usage)
        offers = [self._offer(spec, usage) for spec in specs]
        strategy = options.get("AllocationStrategy", "lowest-price")
        filling = fill(offers, wanted, capacity_in(self.ec2_backend), strategy)
        for at, code in filling.refused.items():
            self._refuse(specs[at], usage, code, explanation(code, offers[at].kind))
        if filling.weight >= float(options.get("MinTargetCapacity") or 0):
            self._launch_picked(specs, usage, filling)

    def _sound_specs(self, usage: str) -> list[SpotFleetLaunchSpec]:
        """The specs without a fault, which only capacity can refuse. Reports a shared fault once."""
        sound, faults = [], set()
        for spec in self.launch_specs:
            fault = self._fault_of(spec)
            if fault is None:
                sound.append(spec)
            elif fault not in faults:
                faults.add(fault)
                self._refuse(spec, usage, *fault)
        return sound

    def _launch_picked(
        self, specs: list[SpotFleetLaunchSpec], usage: str, filling: Filling
    ) -> None:
        for at in sorted(set(filling.picked)):
            spec, count = specs[at], filling.picked.count(at)
            instances = [self._launch_one(spec, usage) for _ in range(count)]
            self.fulfilled_capacity += spec.weighted_capacity * count
            self.groups.append(
                {
                    "Lifecycle": usage,
                    "InstanceIds": [instance.id for instance in instances],
                    "InstanceType": spec.instance_type,
                    "LaunchTemplateAndOverrides": _named(spec),
                }
            )

    def _launch_one(self, spec: SpotFleetLaunchSpec, usage: str) -> Instance:
        """Launches an instance in a reservation of its own: moto's pages count reservations, EC2's
        count instances."""
        template = _template_of(spec)
        data = self.ec2_backend._get_template_from_args(template).data | (spec.overrides or {})
        tags = dict(spec.tag_specifications)
        tags["instance"] = tags.get("instance", {}) | {"aws:ec2:fleet-id": self.id}
        reservation = self.ec2_backend.run_instances(
            image_id=spec.image_id,
            count=1,
            user_data=spec.user_data,
            security_group_names=[],
            launch_template=template,
            instance_type=spec.instance_type,
            is_instance_type_default=False,
            key_name=spec.key_name,
            subnet_id=spec.subnet_id,
            placement=self._zone_of(spec),
            region_name=self.ec2_backend.region_name,
            fleet_id=self.id,
            tags=tags,
            lifecycle=SPOT if usage == SPOT else None,
            **_of_template(self.ec2_backend.account_id, data),
        )
        instance = reservation.instances[0]
        if usage == SPOT:
            request = OneTimeRequest(self.ec2_backend, spec, instance)
            self.ec2_backend.spot_instance_requests[request.id] = request
            self.spot_requests.append(request)
        else:
            entry = {"id": reservation.id, "instance": instance, "launch_spec": spec}
            self.on_demand_instances.append(entry)
        return instance

    def _refuse(self, spec: SpotFleetLaunchSpec, usage: str, code: str, message: str) -> None:
        self.errors.append(
            {
                "LaunchTemplateAndOverrides": _named(spec),
                "Lifecycle": usage,
                "ErrorCode": code,
                "ErrorMessage": message,
            }
        )

    def _offer(self, spec: SpotFleetLaunchSpec, usage: str) -> Offer:
        priority = (spec.overrides or {}).get("Priority")
        return Offer(
            kind(spec.instance_type, self._zone_of(spec), usage),
            spec.weighted_capacity,
            math.inf if priority is None else float(priority),
        )

    def _zone_of(self, spec: SpotFleetLaunchSpec) -> str:
        return _zone(self.ec2_backend, {"SubnetId": spec.subnet_id} | (spec.overrides or {}))

    def _fault_of(self, spec: SpotFleetLaunchSpec) -> tuple[str, str] | None:
        """Why this override gives no instance even with capacity; `None` if it is sound."""
        try:
            if not self.ec2_backend.describe_images(ami_ids=[spec.image_id]):
                # moto's description omits a deregistered image.
                raise UnvailableAMIIdError(spec.image_id)
            zone = self._zone_of(spec)
            self._require_one_network(spec)
        except EC2ClientError as error:
            return error.code, error.message
        if spec.instance_type not in INSTANCE_TYPES:
            text = f"Invalid value '{spec.instance_type}' for InstanceType."
            return "InvalidParameterValue", text
        if not is_offered(self.ec2_backend.region_name, spec.instance_type, zone):
            return "Unsupported", f"{spec.instance_type} is not supported in {zone}."
        return None

    def _require_one_network(self, spec: SpotFleetLaunchSpec) -> None:
        if not spec.subnet_id:
            return
        network = self.ec2_backend.get_subnet(spec.subnet_id).vpc_id
        data = self.ec2_backend._get_template_from_args(_template_of(spec)).data
        for name in _security_groups(data):
            group = self.ec2_backend.get_security_group_from_id(name)
            if group is None:
                text = f"The security group '{name}' does not exist"
                raise EC2ClientError("InvalidGroup.NotFound", text)
            if group.vpc_id != network:
                text = f"Security group {name} and subnet {spec.subnet_id} belong to different networks."
                raise EC2ClientError("InvalidParameter", text)


def _shares(target: Mapping[str, Any]) -> dict[str, float]:
    """The target for each usage; the rest is of the default usage."""
    shares = {
        ON_DEMAND: float(target.get("OnDemandTargetCapacity") or 0),
        SPOT: float(target.get("SpotTargetCapacity") or 0),
    }
    rest = float(target["TotalTargetCapacity"]) - sum(shares.values())
    shares[target.get("DefaultTargetCapacityType") or ON_DEMAND] += max(rest, 0.0)
    return shares


def _with_types(backend: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with one override for each type that requirements match."""
    template = backend._get_template_from_args(config["LaunchTemplateSpecification"])
    overrides = [
        each
        for override in config.get("Overrides") or [{}]
        for each in _expanded(backend, override, template.data)
    ]
    return {**config, "Overrides": overrides}


def _expanded(
    backend: Any, override: Mapping[str, Any], template: Mapping[str, Any]
) -> Iterable[dict[str, Any]]:
    wanted = override.get("InstanceRequirements")
    if wanted and override.get("InstanceType"):
        text = "InstanceType and InstanceRequirements cannot both be specified"
        raise EC2ClientError("InvalidParameterCombination", text)
    if not wanted and not override.get("InstanceType"):
        wanted = template.get("InstanceRequirements")
    if not wanted:
        return [dict(override)]
    _check(wanted)
    rest = {name: value for name, value in override.items() if name != "InstanceRequirements"}
    image = override.get("ImageId") or template.get("ImageId")
    types = requirements.matching(wanted, _architectures(backend, image), INSTANCE_TYPES)
    types = _offered(backend, {**template, **override}, types)
    if not types:
        text = "No instance types match the specified instance requirements."
        raise EC2ClientError("InvalidParameterValue", text)
    return [{**rest, "InstanceType": name} for name in types[:TYPES_MAX]]


def _zone(backend: Any, wanted: Mapping[str, Any]) -> str:
    if wanted.get("SubnetId"):
        return backend.get_subnet(wanted["SubnetId"]).availability_zone
    return wanted.get("AvailabilityZone") or f"{backend.region_name}a"


def _offered(backend: Any, wanted: Mapping[str, Any], types: list[str]) -> list[str]:
    """The types that the zone offers. If it offers none, or the subnet does not exist, at least one type
    stays, for the launch to refuse."""
    try:
        zone = _zone(backend, wanted)
    except EC2ClientError:
        return types
    offered = [name for name in types if is_offered(backend.region_name, name, zone)]
    return offered or types[:1]


def _check(wanted: Mapping[str, Any]) -> None:
    try:
        requirements.check(wanted)
    except requirements.Unclear as unclear:
        raise EC2ClientError(unclear.code, unclear.message) from None


def _architectures(backend: Any, image: str | None) -> list[str]:
    images = backend.describe_images(filters={"image-id": [image]}) if image else []
    return [images[0].architecture] if images else ["x86_64"]


def _template_of(spec: SpotFleetLaunchSpec) -> dict[str, Any]:
    named = spec.launch_template_spec or {}
    return {name: named[name] for name in ("LaunchTemplateId", "Version") if name in named}


def _named(spec: SpotFleetLaunchSpec) -> dict[str, Any]:
    named: dict[str, Any] = {"LaunchTemplateSpecification": spec.launch_template_spec}
    if spec.overrides:
        named["Overrides"] = spec.overrides
    return named


def _security_groups(data: Mapping[str, Any]) -> list[str]:
    of_interfaces = (it.get("Groups") or [] for it in data.get("NetworkInterfaces") or [])
    return [*(data.get("SecurityGroupIds") or []), *(it for some in of_interfaces for it in some)]


def _of_template(account: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a launch template that moto's fleets ignore."""
    named: dict[str, Any] = {
        "nics": [dict(it) for it in data.get("NetworkInterfaces") or []],
        "metadata_options": data.get("MetadataOptions") or {},
        "ebs_optimized": data.get("EbsOptimized") or False,
        "instance_initiated_shutdown_behavior": data.get("InstanceInitiatedShutdownBehavior"),
    }
    profile = data.get("IamInstanceProfile") or {}
    if profile:
        arn = profile.get("Arn") or f"arn:aws:iam::{account}:instance-profile/{profile['Name']}"
        named["iam_instance_profile"] = {"Arn": arn, "Id": "AIPATEST"}
    devices = data.get("BlockDeviceMappings")
    if devices:
        named["block_device_mappings"] = [
            {**device, "Ebs": VOLUME | device.get("Ebs", {})}
            for device in devices
        ]
    return named


def install() -> None:
    """Replaces moto's fleets and their calls."""
    models.Fleet = Fleet
    create = Fleets.create_fleet

    def create_fleet(self: Any) -> ActionResult:
        return once(self, "CreateFleet", lambda: _with_errors(self, create(self)))

    Fleets.create_fleet = create_fleet
    Fleets.get_instance_types_from_instance_requirements = _types_from_requirements


def _with_errors(response: Any, result: ActionResult) -> ActionResult:
    fleet = response.ec2_backend.get_fleet(result.result["FleetId"])
    if fleet.fleet_type == "instant":
        result.result["Errors"] = fleet.errors
    return result


def _types_from_requirements(self: Any) -> ActionResult:
    wanted = self._get_param("InstanceRequirements", {})
    _check(wanted)
    architectures = self._get_param("ArchitectureTypes") or []
    types = requirements.matching(wanted, architectures, INSTANCE_TYPES)
    start = int(self._get_param("NextToken") or 0)
    end = start + int(self._get_param("MaxResults") or 1000)
    page: dict[str, Any] = {"InstanceTypes": [{"InstanceType": it} for it in types[start:end]]}
    if end < len(types):
        page["NextToken"] = str(end)
    return ActionResult(page)
