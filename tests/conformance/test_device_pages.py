"""The pages of what devices have: made of the records, which say what devices report here."""

import device_pages
import device_records
import numpy as np
import pytest
from device_errors import MEASURED, OPS, TYPES, inputs, true_values
from values import ulps

from capabilities import CAPABILITIES
from graphs import el
from ulp_bounds import bound
from weft.driver.context import context
from weft.ir import dtype as dt
from weft.ir.op import BY_NAME, Op

RECORDS = device_records.load()


@pytest.mark.parametrize("name", ["coverage.md", "accuracy.md"])
def test_pages_are_those_of_the_records(name):
    """Run ``make device-pages`` where this fails."""
    assert (device_pages.PAGES / name).read_text("utf-8") == device_pages.pages()[name]


def test_every_device_has_a_column_and_a_capability():
    assert list(RECORDS) == list(device_records.DEVICES)
    for name in (*RECORDS, *device_pages.UNRECORDED):
        family = name.partition(":")[0]
        assert name in CAPABILITIES or family in CAPABILITIES or "no " in (
            device_pages.UNRECORDED.get(name, ""))  # fmt: skip


def test_a_column_says_what_the_device_reports(device):
    """What a driver reports is all that a column is made of."""
    name = context(device.name).name
    if device.name.partition(":")[0] in ("far", "late"):  # devices of the tests alone
        return
    driver, facts = device_records.reported(name)
    here = device_pages.cells(name, driver, context(device.name).target)
    assert here == device_pages.cells(name, driver, device_records.target(name, facts))


@pytest.mark.parametrize("most", [64, 128, 4096])
def test_a_group_has_no_more_items_than_its_device_takes(most):
    vulkan = device_records.target("vulkan:x", {"maxComputeWorkGroupInvocations": most})
    opencl = device_records.target("opencl:x/threads", {"max_threads": most})
    for target in (vulkan, opencl):
        assert target.group_items <= target.max_items <= most


@pytest.mark.parametrize("name", MEASURED)
def test_recorded_errors_are_within_the_bounds(name):
    record = RECORDS[name]
    target = device_records.target(name, record["facts"])
    assert set(record["errors"]) <= {op.name for op in OPS}
    for op, found in record["errors"].items():
        for d, error in found.items():
            assert float(error) <= bound(target, BY_NAME[op], dt.as_dtype(d)), (op, d)


def test_bounds_follow_from_the_form_that_a_target_asks_for():
    tables, plain = (device_records.target("cpu", {"tables": t}) for t in (True, False))
    single = device_records.target("webgpu:poor", RECORDS["webgpu:poor"]["facts"])
    assert bound(tables, Op.SIN, dt.float32) < bound(plain, Op.SIN, dt.float32)
    assert bound(plain, Op.SIN, dt.float32) < bound(single, Op.SIN, dt.float32)
    assert {bound(t, Op.EXP, dt.float16) for t in (tables, plain, single)} == {0.51}


@pytest.mark.grid
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_errors_are_within_the_bound_of_the_device(op, device, rng):
    """Fresh inputs: every exponent, where functions bend, multiples of a quarter turn."""
    target = context(device.name).target
    types = [d for d in TYPES if d.bits >= 32] if device.name != "interpreter" else [dt.float32]
    for d in types:
        columns = inputs(op, d, rng, 0.05)
        (got,) = device.compute(el(op, *map(device.leaf, columns)))
        error = ulps(got, true_values(op, columns), d)
        at = int(np.argmax(error))
        assert error[at] <= bound(target, op, d), (op.name, d.name, [c[at] for c in columns])
