"""Client tokens: the same call twice is one call.

Not here: which calls have them (`fleets`, `instances`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class Mismatch(Exception):
    """An earlier call used the token with other parameters."""


class Tokens:
    """The answers by token. A failed call leaves none, and may be repeated."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, tuple[str, Any]] = {}

    def once(
        self, key: Hashable, parameters: Mapping[str, Any], make: Callable[[], Answer]
    ) -> Answer:
        """The answer of the first call with this key; performs the call if this is the first."""
        encoded = json.dumps(dict(parameters), sort_keys=True, default=str)
        if key not in self._answers:
            self._answers[key] = (encoded, make())
        first, answer = self._answers[key]
        if first != encoded:
            raise Mismatch
        return answer

    def clear(self) -> None:
        self._answers.clear()
