"""State dicts in files."""

import json

import numpy as np
import pytest

import weft
from weft import nn
from weft.errors import ParseError


def test_round_trip(tmp_path):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    weft.save(model.state_dict(), tmp_path / "model.safetensors")
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    other.load_state_dict(weft.load(tmp_path / "model.safetensors"))
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_every_dtype(tmp_path):
    from weft.ir import dtype as dt

    values = {d.name: weft.tensor([[0, 1, 1]]).to(d) for d in dt.ALL} | {"none": weft.zeros(0, 3)}
    weft.save(values, tmp_path / "f")
    found = weft.load(tmp_path / "f")
    for name, value in values.items():
        assert found[name].dtype is value.dtype
        assert found[name].shape == value.shape
        assert found[name].tolist() == value.tolist()


def entry(**changes):
    made = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | changes
    header = json.dumps({"x": made}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        (1 << 60).to_bytes(8, "little"),
        b"\x02" + bytes(7) + b"[]",
        b"\x03" + bytes(7) + b"{x}",
        entry(dtype="F31"),
        entry(shape=[2]),
        entry(shape=[-1]),
        entry(shape="a"),
        entry(data_offsets=[0, 8]),
        entry(data_offsets=[-4, 0]),
        entry(data_offsets=[4]),
    ],
)
def test_malformed(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ParseError):
        weft.load(tmp_path / "f")


def test_a_failed_save_leaves_the_old_file(tmp_path):
    weft.save({"x": weft.ones(2)}, tmp_path / "f")
    with pytest.raises(weft.BoundsError):
        weft.save({"x": weft.ones(2)[weft.tensor([5])]}, tmp_path / "f")
    assert weft.load(tmp_path / "f")["x"].tolist() == [1.0, 1.0]
    assert len(list(tmp_path.iterdir())) == 1
