"""Versions of launch templates: a new version inherits missing data from its source version, and its user
data have to be base64.

Not here: all other calls for launch templates, which are moto's.
"""

from __future__ import annotations

import copy
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.responses.launch_templates import LaunchTemplates
from moto.ec2.utils import parse_user_data


def install() -> None:
    """Replaces moto's call."""
    create = LaunchTemplates.create_launch_template_version

    def create_launch_template_version(self: Any) -> ActionResult:
        data = dict(self._get_param("LaunchTemplateData") or {})
        if data.get("UserData"):
            # moto checks the user data of the first version only.
            data["UserData"] = parse_user_data(str(data["UserData"]))
        self.params["LaunchTemplateData"] = {**_source(self), **data}
        return create(self)

    LaunchTemplates.create_launch_template_version = create_launch_template_version


def _source(response: Any) -> dict[str, Any]:
    version = response._get_param("SourceVersion")
    if not version:
        return {}
    named = response._get_param("LaunchTemplateName")
    template = (
        response.ec2_backend.get_launch_template_by_name(named)
        if named
        else response.ec2_backend.get_launch_template(response._get_param("LaunchTemplateId"))
    )
    return copy.deepcopy(template.get_version(version).data)
