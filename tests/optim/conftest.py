"""The front end is tested on the graph oracle: what it builds, apart from how that is compiled."""

import pytest

import weft.driver
from oracle import OracleDriver


@pytest.fixture(autouse=True)
def oracle(request, monkeypatch):
    """Run every graph on plain NumPy, but in tests that ask for ``compiled``."""
    if "compiled" in request.fixturenames:
        return
    for name in ("realize", "compute", "compile", "allocate", "from_host"):
        monkeypatch.setattr(weft.driver, name, getattr(OracleDriver, name))


@pytest.fixture
def compiled():
    """Ask for the real compiler."""
