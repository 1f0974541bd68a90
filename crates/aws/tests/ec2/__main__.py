"""Starts the test EC2 on loopback and prints its address in one line: `http://127.0.0.1:<port>`."""

import argparse
import pathlib
import signal
import sys
from typing import Any

from .hook import HOOK
from .server import bind
from .world import WORLD


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ec2", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0, the default, is any free port")
    parser.add_argument("--clock", choices=["by-hand", "real"], default="by-hand")
    parser.add_argument("--grace", type=float, default=5.0, help="seconds from SIGTERM to SIGKILL")
    parser.add_argument("--logs", type=pathlib.Path, help="directory of the hook's output")
    parser.add_argument("hook", nargs="*", help="the launch hook's command, after `--`")
    return parser.parse_args()


def end(*_: Any) -> None:
    sys.exit(0)


def main() -> None:
    options = arguments()
    WORLD.clock.by_hand = options.clock == "by-hand"
    HOOK.grace, HOOK.logs = options.grace, options.logs
    HOOK.command = HOOK.usual = options.hook
    signal.signal(signal.SIGTERM, end)
    server = bind(options.port)
    print(HOOK.address, flush=True)
    try:
        server.serve_forever()
    finally:
        with WORLD.lock:
            HOOK.end_all()


if __name__ == "__main__":
    main()
