"""What tests of kernels share."""

from typing import Any

import pytest

from weft.lang.launch.launch import Configured


@pytest.fixture
def misses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What went the Python way."""
    seen: list[Any] = []
    kept = Configured._launch

    def launch(self: Any, args: Any, kwargs: Any) -> None:
        seen.append(args)
        kept(self, args, kwargs)

    monkeypatch.setattr(Configured, "_launch", launch)
    return seen
