"""Instances whose transitions take time, which refuse calls in the wrong state, and which hold
capacity. moto's instances do none of that.

`install` replaces moto's by these.

Not here: the instances of a fleet (`fleets`), and the machine of an instance (`hook`).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Any

import moto.ec2.models.instances as models
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.tags import TagResponse
from moto.ec2.utils import filter_reservations

from .capacity import NO_CAPACITY, NO_SPOT_CAPACITY, ON_DEMAND, SPOT, Capacity, Kind
from .hook import HOOK
from .idempotency import Mismatch
from .world import WORLD

CODES = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}
# A stopped instance holds no capacity, so a start can be refused.
HOLDS_CAPACITY = ("pending", "running", "stopping", "shutting-down")
GONE = ("shutting-down", "terminated")
STARTABLE = ("pending", "running", "stopped")
STOPPABLE = ("running", "stopping", "stopped")


class Instance(models.Instance):
    """An instance whose transitions take as long as the world says."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._moves = 0
        self.visible_at = 0.0
        self.notice: dict[str, str] | None = None
        self.spot_instance_request_id: str | None = None
        super().__init__(*arguments, **named)
        WORLD.instances[self.id] = self
        self._move("pending", "running", WORLD.delays.running)

    @property
    def usage(self) -> str:
        return SPOT if self.lifecycle == SPOT else ON_DEMAND

    @property
    def kind(self) -> Kind:
        return kind(self.instance_type, self.placement.zone or "", self.usage)

    @property
    def holds_capacity(self) -> bool:
        return self.state in HOLDS_CAPACITY

    @property
    def is_visible(self) -> bool:
        return WORLD.clock.now() >= self.visible_at

    def start(self) -> models.InstanceState:
        if self.state != "stopped":
            return copy.copy(self._state)
        previous = super().start()
        self._move("pending", "running", WORLD.delays.running)
        return previous

    def stop(self) -> models.InstanceState:
        if self.state in ("stopping", "stopped"):
            return copy.copy(self._state)
        previous = super().stop()
        self._move("stopping", "stopped", WORLD.delays.stopped)
        HOOK.end(self.id)
        return previous

    def terminate(self) -> models.InstanceState:
        if self.state in GONE:
            return copy.copy(self._state)
        previous = super().terminate()
        self._move("shutting-down", "terminated", WORLD.delays.terminated)
        HOOK.end(self.id)
        return previous

    def shut_itself_down(self) -> None:
        """Handles the machine's own `shutdown`. A one-time spot instance cannot be stopped."""
        if self.state != "running":
            return
        if self.instance_initiated_shutdown_behavior == "terminate" or self.usage == SPOT:
            self.terminate()
        else:
            self.stop()

    def interrupt(self, action: str, after: float, when: str) -> None:
        """Gives a spot instance its notice now, and terminates it later."""
        self.notice = {"action": action, "time": when}
        WORLD.after(after, self.terminate)

    def _move(self, through: str, to: str, delay: float) -> None:
        """Sets the state `through` now and `to` after the delay, unless another move began by then."""
        self._moves += 1
        this_move = self._moves
        self._state = _state(through)

        def arrive() -> None:
            if self._moves == this_move:
                self._state = _state(to)
                if to == "running":
                    HOOK.start(self)

        WORLD.after(delay, arrive)


def _state(name: str) -> models.InstanceState:
    return models.InstanceState(name, CODES[name])


def kind(type_name: str, zone: str, usage: str) -> Kind:
    facts = INSTANCE_TYPES.get(type_name)
    return Kind(type_name, zone, usage, facts["VCpuInfo"]["DefaultVCpus"] if facts else 1)


def capacity_in(backend: Any) -> Capacity:
    """The remaining capacity of this account and region."""
    every = (it for group in backend.reservations.values() for it in group.instances)
    held = (instance.kind for instance in every if instance.holds_capacity)
    return Capacity.beside(held, WORLD.capacity, WORLD.quotas)


@functools.cache
def _offers(region: str) -> frozenset[tuple[str, str]]:
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
    return frozenset((it["InstanceType"], it["Location"]) for it in offered)


def is_offered(region: str, type_name: str, zone: str) -> bool:
    """Whether this zone offers this type; moto has EC2's tables."""
    return (type_name, zone) in _offers(region)


def refused(code: str, of: Kind) -> EC2ClientError:
    """The error of a call that gets no instance."""
    # EC2 documents the code for spot for fleets only; a single call gets the plain one.
    code = NO_CAPACITY if code == NO_SPOT_CAPACITY else code
    return EC2ClientError(code, explanation(code, of))


def explanation(code: str, of: Kind) -> str:
    if code == NO_CAPACITY:
        return (
            f"We currently do not have sufficient {of.type} capacity in the Availability Zone "
            f"you requested ({of.zone})."
        )
    if code == NO_SPOT_CAPACITY:
        return "Unable to fulfill capacity due to your request configuration."
    return f"{of.usage} {of.type} in {of.zone} is refused: {code}"


def once(response: Any, action: str, make: Callable[[], ActionResult]) -> ActionResult:
    """Performs a call once for each client token."""
    token = response._get_param("ClientToken")
    if not token:
        return make()
    key = (response.current_account, response.region, action, token)
    try:
        return WORLD.tokens.once(key, response.params, make)
    except Mismatch:
        text = "Arguments on this idempotent request are inconsistent with arguments used before."
        raise EC2ClientError("IdempotentParameterMismatch", text) from None


def install() -> None:
    """Replaces moto's instances and their calls."""
    models.Instance = Instance
    backend = models.InstanceBackend
    _install_launch(backend)
    _install_visibility(backend)
    _install_transitions(backend)
    _install_answers()


def _install_launch(backend: Any) -> None:
    original = backend.run_instances

    def run_instances(self: Any, *arguments: Any, **named: Any) -> models.Reservation:
        reservation = original(self, *arguments, **named)
        # Only now: moto itself looks the new instances up, to attach their volumes.
        for instance in reservation.instances:
            instance.visible_at = WORLD.clock.now() + WORLD.delays.visible
        return reservation

    backend.run_instances = run_instances


def _install_visibility(backend: Any) -> None:
    original = backend.all_reservations
    create = TagResponse.create_tags

    def all_reservations(self: Any, filters: Any = None) -> list[models.Reservation]:
        reservations = original(self)
        for reservation in reservations:
            reservation.instances = [it for it in reservation.instances if it.is_visible]
        reservations = [reservation for reservation in reservations if reservation.instances]
        return reservations if filters is None else filter_reservations(reservations, filters)

    def create_tags(self: Any) -> ActionResult:
        wanted = [it for it in self._get_param("Resources", []) if it.startswith("i-")]
        if wanted:
            self.ec2_backend.get_multi_instances_by_id(wanted)
        return create(self)

    backend.all_reservations = all_reservations
    TagResponse.create_tags = create_tags


def _install_transitions(backend: Any) -> None:
    start, stop = backend.start_instances, backend.stop_instances

    def start_instances(self: Any, instance_ids: list[str]) -> Any:
        instances = self.get_multi_instances_by_id(instance_ids)
        _require(instances, STARTABLE, "started")
        capacity = capacity_in(self)
        for instance in instances:
            code = capacity.take(instance.kind) if instance.state == "stopped" else None
            if code:
                raise refused(code, instance.kind)
        return start(self, instance_ids)

    def stop_instances(self: Any, instance_ids: list[str]) -> Any:
        instances = self.get_multi_instances_by_id(instance_ids)
        _require(instances, STOPPABLE, "stopped")
        for instance in instances:
            if instance.usage == SPOT:
                text = f"You can't stop the Spot Instance '{instance.id}': its request is one-time."
                raise EC2ClientError("UnsupportedOperation", text)
        return stop(self, instance_ids)

    backend.start_instances = start_instances
    backend.stop_instances = stop_instances


def _require(instances: Iterable[Instance], states: tuple[str, ...], what: str) -> None:
    """Refuses the call if one instance is in another state, before it changes any."""
    for instance in instances:
        if instance.state not in states:
            text = f"The instance '{instance.id}' is not in a state from which it can be {what}."
            raise EC2ClientError("IncorrectInstanceState", text)


def _install_answers() -> None:
    run = InstanceResponse.run_instances

    def run_instances(self: Any) -> ActionResult:
        self.error_on_dryrun()
        return once(self, "RunInstances", lambda: _run_what_fits(self, run))

    InstanceResponse.run_instances = run_instances
    for action, answer in (
        ("start_instances", "StartingInstances"),
        ("stop_instances", "StoppingInstances"),
        ("terminate_instances", "TerminatingInstances"),
    ):
        setattr(InstanceResponse, action, _with_true_states(action, answer))


def _run_what_fits(response: Any, run: Callable[[Any], ActionResult]) -> ActionResult:
    """Launches as many as fit between `MinCount` and `MaxCount`; moto launches `MinCount`."""
    wanted = _wanted_kind(response)
    if not is_offered(response.region, wanted.type, wanted.zone):
        text = f"{wanted.type} is not supported in your requested Availability Zone ({wanted.zone})."
        raise EC2ClientError("Unsupported", text)
    capacity = capacity_in(response.ec2_backend)
    least = int(response._get_param("MinCount", 1))
    fits = 0
    while fits < int(response._get_param("MaxCount", 1)):
        code = capacity.take(wanted)
        if code and fits < least:
            raise refused(code, wanted)
        if code:
            break
        fits += 1
    # moto reads the number of instances to launch from this parameter.
    response.params["MinCount"] = fits
    return run(response)


def _wanted_kind(response: Any) -> Kind:
    backend = response.ec2_backend
    template = response._get_param("LaunchTemplate")
    data = backend._get_template_from_args(template).data if template else {}
    subnet = response._get_param("SubnetId")
    zone = response._get_param("Placement.AvailabilityZone") or f"{response.region}a"
    if subnet:
        zone = backend.get_subnet(subnet).availability_zone
    type_name = response._get_param("InstanceType") or data.get("InstanceType") or "m1.small"
    is_spot = response._get_param("InstanceMarketOptions.MarketType") == SPOT
    return kind(type_name, zone, SPOT if is_spot else ON_DEMAND)


def _with_true_states(action: str, answer: str) -> Callable[[Any], ActionResult]:
    """Corrects moto's answers, which have the usual next state also for a terminated instance."""
    original = getattr(InstanceResponse, action)

    def wrapped(self: Any) -> ActionResult:
        result = original(self)
        for change in result.result[answer]:
            change["CurrentState"] = WORLD.instances[change["InstanceId"]].instance_state
        return result

    return wrapped


