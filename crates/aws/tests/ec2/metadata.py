"""The instance metadata service, version 2: every request needs a token.

Not here: which instance asks; the server finds it by the path.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from typing import Any

TTL = "HTTP_X_AWS_EC2_METADATA_TOKEN_TTL_SECONDS"
TOKEN = "HTTP_X_AWS_EC2_METADATA_TOKEN"
TTL_MAX = 21_600

# A status and a body.
Answer = tuple[int, bytes]


class Metadata:
    """Answers requests. A token is valid for one instance and never expires."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    def answer(self, method: str, path: str, headers: Mapping[str, str], instance: Any) -> Answer:
        """The answer to a request of this instance; 404 if it does not run."""
        if instance is None or instance.state != "running":
            return 404, b""
        if path == "latest/api/token":
            return self._new_token(method, headers, instance)
        if self._tokens.get(headers.get(TOKEN, "")) != instance.id:
            return 401, b""
        if method != "GET":
            return 405, b""
        found = _find(instance, path.removeprefix("latest/"))
        return (404, b"") if found is None else (200, found)

    def _new_token(self, method: str, headers: Mapping[str, str], instance: Any) -> Answer:
        wanted = headers.get(TTL, "")
        if method != "PUT":
            return 405, b""
        if not wanted.isdecimal() or not 1 <= int(wanted) <= TTL_MAX:
            return 400, b""
        token = secrets.token_urlsafe(32)
        self._tokens[token] = instance.id
        return 200, token.encode()


def _find(instance: Any, path: str) -> bytes | None:
    if path == "user-data":
        return base64.b64decode(str(instance.user_data)) if instance.user_data else None
    if path == "dynamic/instance-identity/document":
        return json.dumps(_document(instance)).encode()
    if path.startswith("meta-data/"):
        text = _item(instance, path.removeprefix("meta-data/"))
        return None if text is None else text.encode()
    return None


def _item(instance: Any, name: str) -> str | None:
    if name.startswith("tags/instance/"):
        return _tag(instance, name.removeprefix("tags/instance/"))
    notice = instance.notice
    items = {
        "ami-id": instance.image_id,
        "instance-id": instance.id,
        "instance-type": instance.instance_type,
        "instance-life-cycle": instance.usage,
        "local-ipv4": instance.private_ip,
        "placement/availability-zone": instance.placement.zone,
        "placement/region": instance.region_name,
        "spot/instance-action": json.dumps(notice) if notice else None,
        "spot/termination-time": notice["time"] if notice else None,
    }
    return items.get(name)


def _tag(instance: Any, key: str) -> str | None:
    if instance.metadata_options.instance_metadata_tags != "enabled":
        return None
    return {tag["key"]: tag["value"] for tag in instance.get_tags()}.get(key)


def _document(instance: Any) -> dict[str, Any]:
    return {
        "accountId": instance.owner_id,
        "architecture": instance.architecture,
        "availabilityZone": instance.placement.zone,
        "imageId": instance.image_id,
        "instanceId": instance.id,
        "instanceType": instance.instance_type,
        "privateIp": instance.private_ip,
        "region": instance.region_name,
    }
