"""Kills the machines that the launch hook started, if the server ends without ending them.

Reads lines: `+<pid>` for a process group that has started, `-<pid>` for a process group that has ended.
The server's end closes the input.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable


def left_over(lines: Iterable[str]) -> list[int]:
    """The process groups that have started and not ended."""
    alive: list[int] = []
    for line in lines:
        pid = int(line[1:])
        if line.startswith("+"):
            alive.append(pid)
        else:
            alive.remove(pid)
    return alive


if __name__ == "__main__":
    for group in left_over(sys.stdin):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
