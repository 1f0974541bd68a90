"""ministack, with clocks for its queues that tests set.

A test advances the time instead of waiting: each account has a clock of its own, the text of the
file `<BULLPEN_CLOCKS>/<account>`, in seconds. An account without such a file has the real time.

It ends when its standard input does, so that it never outlives its parent.

Not here: changes to ministack's answers. `docs/aws.md` lists where they differ from AWS's.
"""

import os
import pathlib
import sys
import threading
import time

from ministack.core.responses import get_account_id
from ministack.services import sqs

CLOCKS = pathlib.Path(os.environ["BULLPEN_CLOCKS"])


class TimeByHand:
    """Replaces the module `time` for the queues."""

    def time(self) -> float:
        try:
            return float((CLOCKS / get_account_id()).read_text())
        except FileNotFoundError:
            return time.time()

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)


def end_with_standard_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


sqs.time = TimeByHand()

if __name__ == "__main__":
    from ministack.app import main

    threading.Thread(target=end_with_standard_input, daemon=True).start()
    sys.argv = ["ministack"]
    main()
