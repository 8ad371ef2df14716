"""Damaged files for `weft.load`: each loads what its format says, or raises an error of Weft's.

Valid files of safetensors, npy and npz are changed where their structure is: in names, types,
shapes and offsets of the header, in its text, in lengths, in the data, and byte by byte. What a
safetensors file holds is told by a second reader, `reference`, written from the specification
alone; it marks bytes instead of sorting offsets. NumPy is the second reader of its files, and what
`weft.save` writes of nested containers is changed part by part. Archives with names of all kinds
and the beginnings of other formats have to be refused. Each file is read into memory and on the
device ``disk``, which agree.

Run by `make fuzz`. Options: ``--seconds N`` (default 120), ``--seed N``.
"""

import argparse
import contextlib
import io
import itertools
import json
import math
import os
import re
import sys
import tempfile
import time
import tracemalloc
import warnings
import zipfile
from pathlib import Path

TESTS = Path(__file__).parent.parent
if __name__ == "__main__":
    sys.path[:0] = [str(TESTS), str(TESTS.parent / "src")]

import numpy as np  # noqa: E402

import weft  # noqa: E402

WIDTHS = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8,
          "F16": 2, "BF16": 2, "F32": 4, "F64": 8, "F8_E4M3": 1, "F8_E5M2": 1}  # fmt: skip
MEMORY = 64 << 20  # bytes that a file of a few kilobytes may need while it is read
SECONDS = 5  # of processor time, which it may take
OWN = {"bool": "BOOL", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}
NUMBERS = (-1, 0, 1, 2, 3, 7, 8, 255, 1 << 31, 1 << 32, 1 << 61, (1 << 63) - 1, 1 << 63, 1 << 64,
           10**30, 0.0, 1.0, 2.5, True, False, None, "4", [4], {}, math.nan)  # fmt: skip
TEXTS = ("", "a", "a.b", "x" * 300, "__metadata__", "é", "\u4e2d", "\ud800", "\x00",
         "weft.structure")  # fmt: skip

LITERALS = ("(" * 4000, "", "-1", "9" * 30, "None", "1.0", "{", "O", "2**9", "0x" + "f" * 5000, "0",
            "1", "(1,)", "f16", "<f4", "i1", "True", "'", ",", "[]", "1 if")  # fmt: skip
STRUCTURES = ("dict", "list", "tuple", "tensor", "[]", "{}", '"b"', "", "[[", "7", "1e999", "null",
              "9" * 5000, '"\\ud800"', "{" * 2000, "-1", '{"tensor":"b"}', '["a",1]')  # fmt: skip
MEMBERS = ("archive/data.pkl", "archive/data/0", "data.pkl", "../a.npy", "/a.npy", "a.npy/", ".npy",
           "a.npy", "é.npy", "a\\b.npy", "C:a.npy", "x" * 60_000, "x" * 60_000 + ".npy", "a\nb.npy",
           "\ud800.npy", "", "a.NPY", "__metadata__.npy", "weft.structure.npy")  # fmt: skip


class Raw(str):
    """Text that stands in the header as it is."""


def valid(rng):
    """Return the parts of a valid file: entries by name, metadata or None, data."""
    entries, data, at = [], bytearray(), 0
    for number in range(int(rng.integers(0, 5))):
        kind = str(rng.choice(list(WIDTHS)))
        shape = [int(n) for n in rng.integers(0, 4, int(rng.integers(0, 4)))]
        size = math.prod(shape) * WIDTHS[kind]
        entries.append([f"t{number}", {"dtype": kind, "shape": shape,
                                       "data_offsets": [at, at + size]}])  # fmt: skip
        data += rng.integers(0, 2 if kind == "BOOL" else 256, size, np.uint8).tobytes()
        at += size
    order = rng.permutation(len(entries))
    return [entries[i] for i in order], {"made": "here"} if rng.random() < 0.3 else None, data


def written(entries, metadata, data, text=None, length=None):
    """Return the bytes of a file; names may stand twice."""
    pairs = [] if metadata is None else [["__metadata__", metadata]]
    made = ",".join(f"{json.dumps(name)}:{_json(entry)}" for name, entry in pairs + entries)
    header = (f"{{{made}}}" if text is None else text).encode("utf-8", "surrogatepass")
    length = len(header) if length is None else length
    return (length % (1 << 64)).to_bytes(8, "little") + header + bytes(data)


def _json(value):
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_json(v)}" for k, v in value.items()) + "}"
    return str(value) if isinstance(value, Raw) else json.dumps(value)


def _pick(rng, values):
    return values[int(rng.integers(len(values)))]


def damaged(rng):
    """Return a safetensors file with some changes, none of which need make it invalid."""
    entries, metadata, data = valid(rng)
    options = {}
    for _ in range(int(rng.integers(0, 4))):
        change = _pick(rng, (_in_an_entry, _in_offsets, _in_names, _in_data))
        entries, metadata, data = change(rng, entries, metadata, data)
    if rng.random() < 0.15:
        options["text"] = _header_text(rng, entries, metadata)
    content = written(entries, metadata, data, **options)
    if rng.random() < 0.15:
        length = int.from_bytes(content[:8], "little") + int(_pick(rng, (-9, -1, 1, 2, 8, 1 << 40)))
        content = (length % (1 << 64)).to_bytes(8, "little") + content[8:]
    if rng.random() < 0.1:
        at = int(rng.integers(len(content)))
        content = content[:at] + bytes([int(rng.integers(256))]) + content[at + 1 :]
    if rng.random() < 0.05:
        content = content[: int(rng.integers(len(content)))]
    return content


def _in_an_entry(rng, entries, metadata, data):
    if not entries:
        return entries, _pick(rng, (None, {}, {"a": 1}, {"a": "b"}, [], "a", {"a": None})), data
    _, entry = _pick(rng, entries)
    if not isinstance(entry, dict):
        return entries, metadata, data
    key = _pick(rng, ("dtype", "shape", "data_offsets", "more"))
    what = rng.integers(6)
    if what == 0:
        entry.pop(key, None)
    elif what == 1:
        entry[key] = _pick(rng, NUMBERS)
    elif what == 2:
        entry["dtype"] = _pick(rng, (*WIDTHS, "F4", "C64", "f32", "F31", ""))
    elif what == 3 and isinstance(entry.get(key), list):
        entry[key] = entry[key] + [_pick(rng, NUMBERS)]
    elif what == 4 and isinstance(entry.get(key), list) and entry[key]:
        entry[key] = list(entry[key])
        entry[key][int(rng.integers(len(entry[key])))] = _pick(rng, NUMBERS)
    else:
        entry["shape"] = Raw(_pick(rng, ("[1e2]", "[1.0]", "[" + "9" * 5000 + "]", "[-0]", "[01]",
                                         "[0, 2305843009213693952]", "[1,]", "[]", "[NaN]",
                                         "[" * 900 + "]" * 900, f"[{'1,' * 70}1]")))  # fmt: skip
    return entries, metadata, data


def _in_offsets(rng, entries, metadata, data):
    whole = [e for _, e in entries if isinstance(e, dict) and isinstance(
        e.get("data_offsets"), list) and len(e["data_offsets"]) == 2
        and all(type(n) is int for n in e["data_offsets"])]  # fmt: skip
    if whole:
        first, second = _pick(rng, whole), _pick(rng, whole)
        start, end = first["data_offsets"]
        by = int(_pick(rng, (-8, -4, -1, 1, 4, 8)))
        first["data_offsets"] = _pick(rng, ([start + by, end + by], [end, start], [start, end + by],
                                            second["data_offsets"]))  # fmt: skip
    return entries, metadata, data


def _in_names(rng, entries, metadata, data):
    name = _pick(rng, TEXTS)
    if entries and rng.random() < 0.5:
        entries = [*entries, [entries[0][0], dict(entries[0][1])]]
    elif entries:
        entries = [[name, entries[0][1]], *entries[1:]]
    else:
        metadata = {name: _pick(rng, TEXTS)}
    return entries, metadata, data


def _in_data(rng, entries, metadata, data):
    by = int(rng.integers(1, 9))
    what = rng.integers(3)
    if what == 0:
        return entries, metadata, data + bytes(by)
    if what == 1:
        return entries, metadata, data[:-by]
    return entries, metadata, bytes([int(rng.integers(256))]) * len(data)


def _header_text(rng, entries, metadata):
    made = written(entries, metadata, b"")[8:].decode("utf-8", "surrogatepass")
    return _pick(rng, (
        made + " " * 7, made + "\n", " " + made, made + "x", made + "\x00", "\ufeff" + made,
        made[:-1], made[1:], made.replace('"', "'"), "[]", "{}", '{"a":{}}', "null", "{" * 3000,
        '{"a":' * 3000, '{"a":' + "[" * 200_000, made + made, made[:-1] + ',"a":1}',
        '{"__metadata__":{"weft.structure":"[[["}}', '{"__metadata__":{"weft.structure":"{}"}}',
        '{"__metadata__":{"weft.structure":"{\\"dict\\":[[[],1]]}"}}',
        '{"__metadata__":{"weft.structure":"{\\"dict\\":[[\\"a\\",{\\"tensor\\":\\"b\\"}]]}"}}',
    ))  # fmt: skip


def numpy_file(rng):
    """Return a file of NumPy's, npy or npz, with some changes."""
    array = np.asarray(rng.integers(0, 2, tuple(rng.integers(0, 4, int(rng.integers(0, 4))))))
    array = array.astype(_pick(rng, ("?", "u1", "<i4", ">i4", "<f4", ">f8", "<c8", "<U3", "O", "V3",
                                     "<f2", "<M8[s]")))  # fmt: skip
    if rng.random() < 0.3:
        array = np.asfortranarray(array)
    room = io.BytesIO()
    np.save(room, array)
    one = room.getvalue()
    if rng.random() < 0.7:
        head = _changed(rng, one[10 : -array.nbytes or None].decode("latin1"), LITERALS).encode()
        head = head[: (1 << 16) - 1]
        one = one[:8] + len(head).to_bytes(2, "little") + head + array.tobytes("A")
    if rng.random() < 0.1:
        one = one[: int(rng.integers(len(one) + 1))]
    if rng.random() < 0.5:
        return one
    room = io.BytesIO()
    with zipfile.ZipFile(room, "w", _pick(rng, (0, 8, 14))) as archive:
        archive.writestr("a.npy", one)
        if rng.random() < 0.2:
            archive.writestr(_pick(rng, ("b.npy", "data.pkl", "b")), one)
    content = bytearray(room.getvalue())
    for _ in range(int(rng.integers(0, 3))):
        content[int(rng.integers(len(content)))] = int(rng.integers(256))
    return bytes(content)


def _changed(rng, text, news):
    """Return text with a few of its words, numbers and signs replaced, repeated or swapped."""
    parts = re.findall(r"\w+|\s+|.", text)
    for _ in range(int(rng.integers(3))):
        what, (at, other) = rng.random(), rng.integers(len(parts), size=2)
        numbers = [i for i, part in enumerate(parts) if part.isdecimal()]
        if numbers and rng.random() < 0.3:
            at = _pick(rng, numbers)
        if what < 0.6:
            parts[at] = _pick(rng, news)
        elif what < 0.8:
            parts[at], parts[other] = parts[other], parts[at]
        else:
            parts[at] = parts[other]
    return "".join(parts)


def structured(rng):
    """Return a file that `weft.save` wrote of nested containers, with a change of its structure."""
    names = iter("abcdefghijklmnopqrstuvwxyz" * 100)

    def part(depth):
        what = int(rng.integers(7 if depth < 4 else 3))
        if what < 2:
            return weft.tensor(rng.integers(0, 9, int(rng.integers(3))))
        if what == 2:
            return _pick(rng, (0, -1, 2.5, True, None, "", "é", math.inf, (1 << 64) - 1))
        parts = [part(depth + 1) for _ in range(int(rng.integers(4)))]
        return parts if what == 3 else tuple(parts) if what == 4 else {
            _pick(rng, (next(names), 7, "a.b")): p for p in parts}  # fmt: skip

    room = Path(tempfile.gettempdir()) / f"weft-structured-{os.getpid()}"
    weft.save({"a": part(0), "b": part(1), 0: part(2)}, room)
    content = room.read_bytes()
    room.unlink()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    text = header["__metadata__"]["weft.structure"]
    text = _changed(rng, text, STRUCTURES)
    header["__metadata__"]["weft.structure"] = text
    if rng.random() < 0.2:
        header.pop(next(reversed(header)))
    made = json.dumps(header).encode()
    return len(made).to_bytes(8, "little") + made + content[begin:]


def other_file(rng):
    """Return an archive of any names, or a beginning of another format."""
    if rng.random() < 0.5:
        start = _pick(rng, (b"GGUF\x03\0\0\0", b"PK\x03\x04", b"PK\x05\x06", b"\x80\x02", b"{",
                            b"\x80\x04\x95", b"\x93NUMPY", b"\x93NUMPY\x03\0", b"\x89HDF", b"",
                            b"\x89HDF\r\n\x1a\n", b"lmgg", b"\x1f\x8b", b"PAR1"))  # fmt: skip
        return start + rng.integers(0, 256, int(rng.integers(0, 600)), np.uint8).tobytes()
    room = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(room, "w", _pick(rng, (0, 8))) as archive:
        warnings.simplefilter("ignore")  # of names that stand twice
        for _ in range(int(rng.integers(0, 4))):
            name = _pick(rng, MEMBERS)
            data = io.BytesIO()
            np.save(data, rng.integers(0, 9, 3))
            with contextlib.suppress(UnicodeEncodeError):
                archive.writestr(zipfile.ZipInfo(name), data.getvalue())
    content = bytearray(room.getvalue())
    for _ in range(int(rng.integers(0, 3))):
        at = int(rng.integers(len(content)))
        content[at] = _pick(rng, (0, 255, int(rng.integers(256))))
    return bytes(content)


def reference(content):
    """Return what a safetensors file holds by the specification; None if it is invalid.

    Values are given as dtype, shape and bytes. Types that Weft has not count as invalid.
    """
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, 100_000_000):
        return None
    header, data = content[8 : 8 + length], content[8 + length :]
    twice = []

    def pairs(items):
        twice.extend(items if len(dict(items)) < len(items) else [])
        return dict(items)

    try:
        text = header.decode("utf-8")
        found = json.loads(text, object_pairs_hook=pairs, parse_constant=lambda c: 1 / 0)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError, ZeroDivisionError):
        return None
    metadata = found.pop("__metadata__", {}) if isinstance(found, dict) else None
    if twice or text[:1] != "{" or not isinstance(metadata, dict) or not all(
        isinstance(v, str) for v in metadata.values()
    ):
        return None
    used = bytearray(len(data))
    held = {name: _held(entry, data, used) for name, entry in found.items()}
    if None in held.values() or any(n != 1 for n in used):
        return None
    starts = sorted(e["data_offsets"] for e in found.values())
    if any(a[1] != b[0] for a, b in itertools.pairwise(starts)):
        return None  # something empty in the midst of something else
    return held


def _held(entry, data, used):
    try:
        kind, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        width = WIDTHS[kind]
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    if not isinstance(shape, list) or not isinstance(entry["data_offsets"], list):
        return None
    if any(type(n) is not int or n < 0 for n in [*shape, start, end]):
        return None
    if len(shape) > 64 or math.prod(n for n in shape if n) * width >= 1 << 63:
        return None  # of NumPy's arrays: nobody could look at the values
    if not start <= end <= len(data) or end - start != math.prod(shape) * width:
        return None
    part = data[start:end]
    if kind == "BOOL" and any(b > 1 for b in part):
        return None
    used[start:end] = bytes(b + 1 for b in used[start:end])
    return kind, tuple(shape), part


def fault(content, path):
    """Return what `weft.load` does wrong with a file, None if nothing."""
    path.write_bytes(content)
    expected = reference(content)
    tracemalloc.reset_peak()
    began = time.process_time()
    try:
        found = weft.load(path)
        values = list(_values(found, ()))
    except weft.WeftError as error:
        used, seconds = tracemalloc.get_traced_memory()[1], time.process_time() - began
        if expected is not None and b"weft.structure" not in content:
            return f"refuses a valid file: {error}"
        if used > MEMORY or seconds > SECONDS:
            return f"{used} bytes and {seconds} s for an error"
        return _refused_on_disk(path)
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    if content.startswith(b"PK"):
        return _differs(found, path)
    on_disk = weft.load(path, device="disk") if _native(content) else found
    if list(_values(on_disk, ())) != values:
        return f"reads {values}, and {list(_values(on_disk, ()))} on disk"
    if content.startswith(b"\x93NUMPY"):
        return _differs({"": found}, path)
    if b"weft.structure" in content:
        held = sorted((tuple(shape), part) for _, shape, part in (expected or {}).values())
        found = sorted(value[2:] for value in values if len(value) == 4)
        return None if held == found else f"reads {found} in containers, not {held}"
    if expected is None:
        return f"takes an invalid file: {values}"
    own = {name: (OWN.get(d.name) or f"{d.kind.upper()}{d.bits}", shape, part)
           for (name,), d, shape, part in values[1:]}  # fmt: skip
    return None if own == expected else f"reads {own}, not {expected}"


def _values(part, where):
    """Yield what containers hold, with the keys that lead there."""
    if isinstance(part, weft.Tensor):
        # a kernel reads the elements where they are in the file
        same = part.clone().numpy().tobytes() == part.numpy().tobytes()
        yield where, part.dtype, part.shape, part.numpy().tobytes() if same else b"another copy"
    elif isinstance(part, (dict, list, tuple)):
        yield where, type(part).__name__, len(part)
        for key, inner in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _values(inner, (*where, key))
    else:
        yield where, type(part).__name__, repr(part)


def _native(content):
    """Whether a file has a place for each of its tensors."""
    return not content.startswith(b"\x93NUMPY") or b">" not in content[:80]


def _refused_on_disk(path):
    """Return what is wrong where a file is read on the device ``disk`` that memory refuses."""
    try:
        list(_values(weft.load(path, device="disk"), ()))
    except weft.WeftError:
        return None
    except Exception as error:
        return f"raises {type(error).__name__} on disk: {error}"
    return "is read on disk alone"


def _differs(found, path):
    """Return how arrays by name differ from what NumPy reads."""
    try:
        theirs = np.load(path, allow_pickle=False)
        arrays = {"": theirs} if isinstance(theirs, np.ndarray) else dict(theirs.items())
    except Exception as error:
        return f"takes what NumPy refuses ({error})"
    if set(arrays) != set(found):
        return f"finds {list(found)}, not {list(arrays)}"
    wrong = [name for name, a in arrays.items()
             if found[name].shape != a.shape or found[name].dtype.numpy != a.dtype.newbyteorder("=")
             or found[name].numpy().tobytes() != a.astype(a.dtype.newbyteorder("=")).tobytes()]
    return f"reads {wrong} otherwise than NumPy" if wrong else None


KINDS = ((damaged, 11), (numpy_file, 5), (structured, 2), (other_file, 2))  # of 20 files


def check(rng, count, folder):
    """Return how many of `count` files were valid; raise AssertionError for the first fault."""
    tracemalloc.start()
    try:
        valid_ones = 0
        for _ in range(count):
            content = _pick(rng, [kind for kind, share in KINDS for _ in range(share)])(rng)
            wrong = fault(content, Path(folder) / "file")
            assert wrong is None, f"{wrong}\n{content[:400]!r}"
            valid_ones += reference(content) is not None
        return valid_ones
    finally:
        tracemalloc.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    began, number, count = time.monotonic(), options.seed, 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - began < options.seconds:
            try:
                check(np.random.default_rng(number), 500, folder)
            except AssertionError as error:
                sys.exit(f"seed {number}: {error}")
            number, count = number + 1, count + 500
    print(f"{count} files, seeds {options.seed} to {number - 1}: none wrong", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("WEFT_CACHE_DIR", tempfile.mkdtemp(prefix="weft-fuzz-cache-"))
    main()
