"""State dicts in files."""

import collections
import gzip
import io
import json
import os
import pickle
import time
import zipfile

import numpy as np
import pytest

import weft
from fuzz import load_files
from seeds import seeds
from weft import nn, optim
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


@pytest.mark.parametrize("seed", seeds(1))
def test_damaged_files(seed, tmp_path):
    """Each loads what its format says, or raises an error of Weft's, in little memory."""
    assert 0 < load_files.check(np.random.default_rng(seed), 300, tmp_path) < 300


def with_header(text, data=b""):
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("structure", [
    '{"Pict":[["a",{"tensor":"b"}]]}', '{"dict":[["a",["b"]]]}', '{"dict":["ab"]}', '{"dict":7}',
    '{"dict":[[null,1]]}', '{"dict":[[true,1]]}', '{"dict":[["a",1,2]]}', '{"dict":[],"list":[]}',
    '{"dict":[["a",{}]]}', '{"dict":[["a",{"tensor":["b"]}]]}', '{"dict":[["a",{"tensor":"c"}]]}',
    '{"dict":[["a",{"list":"bc"}]]}', '{"list":[]}', "[]", "7", "{",
    '{"dict":' * 200 + "7" + "}" * 200, '{"dict":[]}', '{"dict":[["a",1],["a",{"tensor":"t"}]]}',
    '{"dict":[["a",{"tensor":"t"}],["b",{"tensor":"t"}]]}',
    '{"dict":[["a",{"tensor":"t"}],["b","\\ud800"]]}',
    '{"dict":[[18446744073709551616,{"tensor":"t"}]]}',
    '{"dict":[["\\ud800",{"tensor":"t"}]]}',
    '{"dict":[["a",{"tensor":"t"}],["b",18446744073709551616]]}',
])  # fmt: skip
def test_structures_that_save_never_wrote(tmp_path, structure):
    """A tensor that is not in the structure would be lost without a word."""
    entry = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
    tensors = {"t": entry} if '"t"' in structure or structure == '{"dict":[]}' else {}
    text = json.dumps({"__metadata__": {"weft.structure": structure}, **tensors}).encode()
    (tmp_path / "f").write_bytes(with_header(text, b"1" * len(tensors)))
    with pytest.raises(ParseError, match="the structure"):
        weft.load(tmp_path / "f")


@pytest.mark.parametrize(("content", "message"), [
    (with_header(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                 b'"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1"), "an overlap"),
    (with_header(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"12"), "a hole"),
    (with_header(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"12"), "2 bytes of"),
    (with_header(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                 b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"1"), "'a' twice"),
    (with_header(b'{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', b"1"), "[1.0]"),
    (with_header(b'{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', b"1"), "[True]"),
    (with_header(b'{"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}', b"\2\7"), "byte 7"),
    (with_header(b'{"a":' * 20_000), "nested without end"),
    (with_header(b'{"a":{"dtype":"U8","shape":[0,2305843009213693952,9],"data_offsets":[0,0]}}'),
     "sizes that can be addressed"),
    (with_header(b'{"a":{"dtype":"C64","shape":[],"data_offsets":[0,8]}}', bytes(8)), "C64"),
])  # fmt: skip
def test_invalid_safetensors(tmp_path, content, message):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(weft.WeftError, match="load") as caught:
        weft.load(tmp_path / "f")
    assert message in str(caught.value)


@pytest.mark.slow
def test_time_to_refuse_grows_with_the_header(tmp_path):
    """Names that stand twice among many, and sizes of thousands of digits."""
    names = [f"{n:06d}" for n in range(100_000)]
    twice = "{" + ",".join(f'"{n}":0' for n in [*names, "x", "x"]) + "}"
    sizes = ",".join(["9" * 4000] * 2000)
    long = f'{{"a":{{"dtype":"U8","shape":[{sizes}],"data_offsets":[0,0]}}}}'
    few = f'{{"a":{{"dtype":"U8","shape":[{sizes[: 4001 * 60 - 1]}],"data_offsets":[0,0]}}}}'
    with zipfile.ZipFile(tmp_path / "z", "w") as room:
        for name in [*names[:10_000], "x"]:
            room.writestr(name + ".npy", b"")
        with pytest.warns(UserWarning, match="Duplicate"):
            room.writestr("x.npy", b"")
    contents = [with_header(text.encode()) for text in (twice, long, few)]
    for content in [*contents, (tmp_path / "z").read_bytes()]:
        (tmp_path / "f").write_bytes(content)
        began = time.process_time()
        with pytest.raises(ParseError, match=r"twice|addressed"):
            weft.load(tmp_path / "f")
        assert time.process_time() - began < 10  # minutes where it grows with the square


def a_zip(**parts):
    room = io.BytesIO()
    with zipfile.ZipFile(room, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), part)
    return room.getvalue()


def npy(array):
    room = io.BytesIO()
    np.save(room, array, allow_pickle=True)
    return room.getvalue()


def npy_header(text):
    text = f"{{'descr': {text}}}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


DIGITS = "0x" + "f" * 5000  # more than Python writes in decimals
KINDS = {
    "empty": (b"", "an empty file"),
    "short": (b"\x00" * 5, "a file of 5 bytes"),
    "cut": (with_header(b'{"a":' + b" " * 50)[:40], "not written or downloaded to its end"),
    "pickle": (pickle.dumps({"a": np.ones(3)}, 4), "a pickle"),
    "old torch": (pickle.dumps(0x1950A86A20F9469CFC6C, 2) + bytes(20), "a pickle"),
    "torch": (a_zip(model__data_dot_pkl=b"x", model__data__0=b"y"), "PyTorch"),
    "zip": (a_zip(readme=b"x"), "zip archive"),
    "gguf": (b"GGUF" + bytes(60), "GGUF"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(60), "HDF5"),
    "gzip": (gzip.compress(b"x" * 100), "gzip"),
    "html": (b"<!DOCTYPE html><html>login</html>", "HTML"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
    "index": (b'{"metadata": {}, "weight_map": {}}', "JSON"),
    "text": (b"1.0 2.0\n3.0 4.0\n", "text"),
    "other": (bytes(range(1, 200)), "no format that Weft knows"),
    "objects": (npy(np.array([{}], object)), "never unpickles"),
    "strings": (npy(np.array(["a"])), "type '<U1'"),
    "complex": (npy(np.ones(2, complex)), "bool, integers or floats"),
    "records": (npy(np.zeros(2, [("a", int)])), "bool, integers or floats"),
    "long double": (npy(np.zeros(2, np.longdouble)), "bool, integers or floats"),
    "too many digits": (npy_header(f"'<f4', 'fortran_order': False, 'shape': ({DIGITS},)"),
                        "damaged"),
    "digits as a type": (npy_header(f"{DIGITS}, 'fortran_order': False, 'shape': ()"), "damaged"),
    "digits among types": (npy_header(f"[{DIGITS}], 'fortran_order': False, 'shape': ()"),
                           "damaged"),
    "too large": (npy_header(f"'<f4', 'fortran_order': False, 'shape': ({1 << 62},)"), "damaged"),
    "objects in npz": (a_zip(a_dot_npy=npy(np.array([{}], object))), "never unpickles"),
}


@pytest.mark.parametrize("name", KINDS)
def test_other_files_are_named(tmp_path, name):
    content, message = KINDS[name]
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(weft.WeftError, match="load") as caught:
        weft.load(tmp_path / "f")
    assert message in str(caught.value)


def test_a_path_must_be_one():
    for call in (lambda: weft.load(0), lambda: weft.save({}, 1), lambda: weft.load(None)):
        with pytest.raises(weft.DTypeError, match="path"):
            call()


def test_opening_touches_no_data(tmp_path):
    """A sparse file of 8 GiB opens, and one row of it is read: 512 MiB would take 0.2 s to read."""
    rows = 1 << 21
    head = json.dumps({"x": {"dtype": "F32", "shape": [rows, 1024],
                             "data_offsets": [0, rows * 4096]}}).encode()  # fmt: skip
    head += b" " * (-len(head) % 8)
    with open(tmp_path / "f", "wb") as file:
        file.write(with_header(head))
        file.seek(rows * 2048)
        file.write(np.full(1024, 3, np.float32).tobytes())
        file.truncate(len(head) + 8 + rows * 4096)
    before = resident()
    found = weft.load(tmp_path / "f")["x"]
    part = found[rows // 2 - 1 : rows // 2 + 1].numpy()
    assert part.max() == 3
    assert resident() - before < 16 << 20


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_writes_do_not_reach_the_file(tmp_path, compiled):
    """In place, by a captured function that takes over memory, and by a consumer of DLPack."""
    weft.save({"x": weft.ones(1000)}, tmp_path / "f")
    x = weft.load(tmp_path / "f")["x"]
    step = weft.jit(lambda t: (x.mul_(2).add_(t), x.sum())[1])
    for _ in range(3):
        step(weft.ones(1000))
    assert x.sum().item() == 15000
    y = weft.load(tmp_path / "f")["x"]
    y[3:] = 7
    y.realize()
    z = np.from_dlpack(weft.load(tmp_path / "f")["x"])
    assert not z.flags.writeable
    assert weft.load(tmp_path / "f")["x"].sum().item() == 1000


def test_metadata_is_kept(tmp_path):
    weft.save({"x": weft.ones(2)}, tmp_path / "f", metadata={"made by": "a test", "é": "ü"})
    found = weft.load(tmp_path / "f")
    assert found.metadata == {"made by": "a test", "é": "ü"}
    found["y"] = weft.zeros(1)
    weft.save(found, tmp_path / "f")
    assert weft.load(tmp_path / "f").metadata == found.metadata
    weft.save(found, tmp_path / "f", metadata={})
    assert weft.load(tmp_path / "f").metadata == {}
    with pytest.raises(weft.DTypeError, match="metadata"):
        weft.save({}, tmp_path / "f", metadata={"a": 1})


def same(a, b):
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, weft.Tensor):
        return a.dtype is b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    return type(a) is type(b) and (a == b or a != a)


def test_nested_state(tmp_path):
    """What was trained goes on from the file as from memory."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    adam = optim.AdamW(model.parameters(), lr=0.01)

    def train():
        adam.zero_grad()
        loss = model(weft.ones(5, 3)).square().mean()
        loss.backward()
        adam.step()
        return loss.item()

    train()
    state = {"model": model.state_dict(), "adam": adam.state_dict(), "epoch": 3, "name": "é",
             "list": [1.5, None, True, (weft.ones(2), float("nan")), {}], 7: weft.arange(3),
             "a.b": weft.ones(1), "a": {"b": weft.zeros(1)}}  # fmt: skip
    weft.save(state, tmp_path / "f")
    found = weft.load(tmp_path / "f")
    assert same(state, found)
    following = [train() for _ in range(3)]
    model.load_state_dict(found["model"])
    adam.load_state_dict(found["adam"])
    assert [train() for _ in range(3)] == pytest.approx(following)


@pytest.mark.parametrize("value", [object(), {1.5: 2}, {"a": {1, 2}}, {"a": lambda: 0}, {"a": 1j},
                                   {"a": "\ud800"}, {"\ud800": 1}, {"a": 1 << 70},
                                   {1 << 64: 1}])  # fmt: skip
def test_what_no_file_holds(tmp_path, value):
    with pytest.raises(weft.DTypeError, match="save"):
        weft.save(value, tmp_path / "f")
    assert not list(tmp_path.iterdir())


def test_elements_lie_at_multiples_of_their_size(tmp_path):
    """So that all can be used where they are in the file."""
    values = {d: weft.ones(3).to(getattr(weft, d)) for d in ("bool", "float16", "float64", "int32")}
    weft.save(values, tmp_path / "f")
    content = (tmp_path / "f").read_bytes()
    length = int.from_bytes(content[:8], "little")
    for entry in json.loads(content[8 : 8 + length]).values():
        width = int(entry["dtype"][1:]) // 8 if entry["dtype"] != "BOOL" else 1
        assert (8 + length + entry["data_offsets"][0]) % width == 0
    assert same(values, dict(weft.load(tmp_path / "f")))


ARRAYS = [np.arange(6).reshape(2, 3), np.ones((), np.float32), np.zeros((0, 3), np.float16),
          np.arange(6.0).reshape(2, 3).T, np.arange(4, dtype=">i2"), np.array([True, False]),
          np.asfortranarray(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))]  # fmt: skip


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_that_numpy_wrote(tmp_path, save):
    for array in ARRAYS:
        np.save(tmp_path / "a.npy", array)
        found = weft.load(tmp_path / "a.npy")
        assert found.dtype.name == array.dtype.name
        np.testing.assert_array_equal(found.numpy(), array)
    save(tmp_path / "a.npz", *ARRAYS, named=ARRAYS[0])
    found = weft.load(tmp_path / "a.npz")
    assert next(iter(found)) == "named"
    for number, array in enumerate(ARRAYS):
        np.testing.assert_array_equal(found[f"arr_{number}"].numpy(), array)


def test_files_that_numpy_reads(tmp_path):
    for array in ARRAYS:
        weft.save(weft.tensor(array), tmp_path / "a.npy")
        found = np.load(tmp_path / "a.npy")
        assert found.dtype.name == array.dtype.name
        np.testing.assert_array_equal(found, array)
    weft.save({"x": weft.ones(2, 3), "y/z": weft.arange(3)}, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as found:
        assert found["x"].tolist() == [[1.0] * 3] * 2
        assert found["y/z"].tolist() == [0, 1, 2]
    for value, name in (({"a": weft.ones(1)}, "b.npy"), (weft.ones(1), "b.npz"),
                        ({"a": {"b": weft.ones(1)}}, "b.npz"), ({"a": 1}, "b.npz"),
                        (weft.ones(1).bfloat16(), "b.npy")):  # fmt: skip
        with pytest.raises(weft.DTypeError, match="save"):
            weft.save(value, tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "a.npz"]


def test_loaded_dicts_go_to_captured_functions(tmp_path, compiled):
    weft.save({"x": weft.ones(2), "more": {"y": weft.arange(2.0)}}, tmp_path / "f")
    weft.save({"x": weft.ones(2)}, tmp_path / "g")
    nested = weft.jit(lambda d: {"z": d["x"] + d["more"]["y"]})
    flat = weft.jit(lambda d: weft.load(tmp_path / "g") if d is None else d)
    for turn in range(4):
        assert nested(weft.load(tmp_path / "f"))["z"].tolist() == [1.0, 2.0]
        given = {"x": weft.ones(2) * turn}
        assert flat(given)["x"].tolist() == [turn, turn]
        assert flat(collections.OrderedDict(given))["x"].tolist() == [turn, turn]
