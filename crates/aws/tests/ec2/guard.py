"""Ends what the launch hook started if the server goes without doing so.

Reads lines: `+<pid>` for a process group that began, `-<pid>` for one that is gone. The end of the
input is the end of the server.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable


def left_over(lines: Iterable[str]) -> list[int]:
    """The groups that began and did not end."""
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
