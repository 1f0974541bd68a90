"""The admin API, below `/_bullpen/`, with which a test changes settings and causes events.

Every route takes and returns JSON. `README.md` has the table of routes.

Not here: what the settings do (`world` has them, and the modules that read them).
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends
from moto.moto_api._internal.models import moto_api_backend

from .capacity import Rule
from .hook import HOOK
from .world import WORLD, Delays, Fault

# The seconds from the notice to the end of a spot instance.
NOTICE_TIME = 120.0
# The instance profile that `POST ground` creates.
PROFILE = "bullpen-instance"


class Refused(Exception):
    """An invalid request; the text says why."""


def answer(method: str, route: str, body: Any) -> Any:
    """Handles one request; the caller holds the world's lock."""
    handler = ROUTES.get((method, route))
    if handler is None:
        raise Refused(f"there is no {method} {route}")
    try:
        return handler(body)
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"{method} {route}: {error!r}") from error


def _get_all(_: Any) -> Any:
    return {
        "now": WORLD.clock.now(),
        "capacity": [dataclasses.asdict(rule) for rule in WORLD.capacity],
        "quotas": WORLD.quotas,
        "delays": dataclasses.asdict(WORLD.delays),
        "faults": [dataclasses.asdict(fault) for fault in WORLD.faults],
        "hook": HOOK.command,
    }


def _put_capacity(body: Any) -> Any:
    WORLD.capacity[:] = [Rule(**rule) for rule in body]
    return _get_all(None)


def _put_quotas(body: Any) -> Any:
    WORLD.quotas = {usage: int(vcpus) for usage, vcpus in body.items()}
    return _get_all(None)


def _put_delays(body: Any) -> Any:
    WORLD.delays = Delays(**body)
    return _get_all(None)


def _post_faults(body: Any) -> Any:
    WORLD.faults.append(Fault(**body))
    return _get_all(None)


def _post_clock(body: Any) -> Any:
    if not WORLD.clock.by_hand:
        raise Refused("the clock is the real one")
    WORLD.advance(float(body["advance"]))
    return _get_all(None)


def _put_hook(body: Any) -> Any:
    HOOK.command = [str(part) for part in body["command"]]
    return _get_all(None)


def _post_interrupt(body: Any) -> Any:
    instance = WORLD.instances[body["instance"]]
    after = float(body.get("in", NOTICE_TIME))
    # The notice has a real time; the world's clock counts seconds from the start.
    when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=after)
    instance.interrupt("terminate", after, when.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return instance.notice


def _post_ground(body: Any) -> Any:
    """Creates what operators have before they use Bullpen: a role with a profile, and a network of one
    region."""
    iam = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    if PROFILE not in {profile.name for profile in iam.instance_profiles.values()}:
        iam.create_role(PROFILE, "{}", "/", None, "", [], 3600)
        iam.create_instance_profile(PROFILE, "/", [PROFILE])
    ec2 = ec2_backends[DEFAULT_ACCOUNT_ID][body["region"]]
    vpc = ec2.get_default_vpc()
    group = ec2.get_default_security_group(vpc.id)
    subnets = [subnet.id for subnet in ec2.describe_subnets() if subnet.vpc_id == vpc.id]
    return {"profile": PROFILE, "group": group.id, "subnets": sorted(subnets)}


def _post_reset(_: Any) -> Any:
    HOOK.end_all()
    HOOK.command = HOOK.usual
    WORLD.forget()
    moto_api_backend.reset()
    return _get_all(None)


ROUTES: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("GET", ""): _get_all,
    ("GET", "calls"): lambda _: dict(sorted(WORLD.calls.items())),
    ("GET", "processes"): lambda _: HOOK.processes(),
    ("PUT", "capacity"): _put_capacity,
    ("PUT", "quotas"): _put_quotas,
    ("PUT", "delays"): _put_delays,
    ("PUT", "hook"): _put_hook,
    ("POST", "faults"): _post_faults,
    ("POST", "clock"): _post_clock,
    ("POST", "interrupt"): _post_interrupt,
    ("POST", "ground"): _post_ground,
    ("POST", "reset"): _post_reset,
}
