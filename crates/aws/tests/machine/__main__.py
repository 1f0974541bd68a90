"""One boot of a machine that the launch hook starts; this is the first process of its namespace."""

import base64
import os
import pathlib

from . import root
from .init import Init


def main() -> None:
    environment = dict(os.environ)
    user_data = base64.b64decode(environment.pop("EC2_USER_DATA", ""))
    if "EC2_METADATA" in environment:
        environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = environment["EC2_METADATA"]
    home = pathlib.Path(environment["BULLPEN_MACHINES"]).resolve() / environment["EC2_INSTANCE_ID"]
    first = not home.exists()
    if first:
        (home / "root").mkdir(parents=True)
        root.make(home / "root", environment.get("BULLPEN_IMAGE"))
    journal = (home / "journal").open("a")
    root.enter(home / "root", environment.get("BULLPEN_SHARED", ""))
    speed = float(environment.get("BULLPEN_MACHINE_SPEED", "1"))
    init = Init(journal, environment, speed)
    init.note("boot")
    init.boot(user_data if first else b"")
    init.serve()


main()
