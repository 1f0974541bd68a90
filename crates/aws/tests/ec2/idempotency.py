"""Client tokens: the same call twice is one call.

Not here: which calls have them (`fleets`, `instances`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class Mismatch(Exception):
    """The token was used before, with other parameters."""


class Tokens:
    """The answers that were given, by token. A call that failed leaves none, and may be repeated."""

    def __init__(self) -> None:
        self._given: dict[Hashable, tuple[str, Any]] = {}

    def once(
        self, key: Hashable, parameters: Mapping[str, Any], make: Callable[[], Answer]
    ) -> Answer:
        """The answer of the first call with this key; makes it if this is the first."""
        said = json.dumps(dict(parameters), sort_keys=True, default=str)
        if key not in self._given:
            self._given[key] = (said, make())
        before, answer = self._given[key]
        if before != said:
            raise Mismatch
        return answer

    def clear(self) -> None:
        self._given.clear()
