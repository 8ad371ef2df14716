"""Random graphs of up to 30 operations: compiled and run, against the oracle."""

import pytest
from devices import DEVICES, Device
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from programs import compare, describe, programs


@pytest.mark.parametrize("name", DEVICES)
@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_programs(name, data):
    device = Device(name)
    program, outputs = data.draw(programs(device))
    note(describe(outputs))
    compare(device.compute(*outputs), outputs, program.exact)
