"""``weft.js`` on a plan and WGSL that are written by hand: sizes, weights, errors."""

import json
import struct
from importlib.resources import files

import pages
import pytest

WGSL = """\
@group(0) @binding(0) var<uniform> u: array<vec4u, 4>;
@group(0) @binding(1) var<storage, read_write> a: array<f32>;
@group(0) @binding(2) var<storage, read_write> w: array<f32>;
@group(0) @binding(3) var<storage, read_write> s: array<atomic<u32>>;
@compute @workgroup_size(64)
fn go(@builtin(global_invocation_id) g: vec3u, @builtin(num_workgroups) n: vec3u) {
  let x = u[2].x; let f = u[2].y; let y = u[2].z; let size = u[3].x;
  for (var i = g.x; i < size; i += n.x * 64u) {
    a[y + i] = a[x + i] * w[f] + w[f + 1u];
    if (a[x + i] < 0.0) { atomicStore(&s[4], i); atomicStore(&s[6], size); atomicStore(&s[0], 1u); }
  }
}
"""
PLAN = {
    "format": 1, "name": "hand", "description": "", "arena": 0, "allocations": [],
    "variables": [{"name": "n", "min": 1, "max": 1000}],
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["n"], "slot": 0}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["n"], "place": ["output", 0]}],
    "slots": {"inputs": [{"nbytes": ["mul", "n", 4]},
                         {"nbytes": 8, "weight": {"block": 0, "offset": 256}}],
              "outputs": [["mul", "n", 4]]},
    "weights": {"blocks": [512], "files": [{"name": "hand.weights-0.bin", "nbytes": 303},
                                           {"name": "hand.weights-1.bin", "nbytes": 209}]},
    "programs": [{"name": "p", "shader": 0, "bindings": ["uniform", 0, 1, "status"],
                  "entries": [{"name": "go", "groups": 0, "items": 64}],
                  "shared": 0, "own": 0, "elements": [4, 4, 4]}],
    "launches": [{"program": 0, "buffers": [["input", 0, 0], ["input", 1, 0], ["output", 0, 0]],
                  "groups": [-1, 0], "variables": ["n"],
                  "messages": [{"text": "gather: index out of range", "bounds": True,
                                "where": "net.py:3"}]}],
    "shaders": [WGSL],
}  # fmt: skip
SCRIPT = """
const { load } = await import("./weft.js");
const progress = [];
const model = await load("./hand.plan.json", { onProgress: (p) => progress.push(p.loaded) });
const results = [];
for (const n of [3, 1000, 5, 7, 8, 9, 3]) {
  const [y] = await model(Float32Array.from({ length: n }, (_, i) => i));
  results.push([y.name, y.shape, y.data[n - 1]]);
}
const named = (await model({ x: [1, 2, 3] })).y.data;
const many = await Promise.all([1, 2, 3].map((v) => model([v])));
const errors = [];
for (const given of [[], [new Int32Array(3)], [[1, 2, -3, 4]], [{ data: [1, 2], shape: [1, 2] }],
                     [{ z: 1 }], [new Float32Array(1001)], ["a"], [null], [[[1], [2, 3]]],
                     [{ data: [1, 2], shape: [3] }]]) {
  errors.push(await failed(() => model(...given)));
}
const well = (await model([7]))[0].data[0];
model.device.destroy();
await model.lost;
await new Promise((done) => { setTimeout(done, 50); });
errors.push(await failed(() => model([1])));
const other = await load("./hand.plan.json");
const again = (await other([7]))[0].data[0];
other.destroy();
errors.push(await failed(() => other([1])));
for (const name of ["none", "short", "old", "wrong"]) {
  errors.push(await failed(() => load(`./${name}.plan.json`)));
}
return { progress, results, named, many: many.map((r) => r[0].data[0]), errors, well, again };
"""
ERRORS = [
    "InputError: found 0 inputs, expected 1: x",
    "InputError: x: found a Int32Array, expected a Float32Array (float32)",
    "KernelError: gather: index out of range: found index 2, expected 0 to 3 (net.py:3)",
    "InputError: x: found the shape [1, 2], expected [n]",
    "InputError: found the input z, expected x",
    "InputError: x: found the size 1001 on axis 0, expected n from 1 to 1000",
    "InputError: x: found string, expected a float32 array",
    "InputError: x: found null, expected a float32 array",
    "InputError: x: nested arrays of unequal lengths",
    "InputError: x: found 2 elements for [3]",
    "DeviceLostError: hand: the GPU was lost",
    "WeftError: hand: the model was destroyed",
    "none.plan.json: the server answers 404",
    "hand.weights-0.bin: found 303 bytes, expected 304",
    "found a plan of format 0, expected 1",
    "LoadError: hand: ",
]


@pytest.mark.requires("chromium")
@pytest.mark.slow
def test_a_plan_by_hand(tmp_path):
    static = files("weft.web").joinpath("static")
    (tmp_path / "weft.js").write_text(static.joinpath("weft.js").read_text())
    weights = bytes(256) + struct.pack("<2f", 2, 1) + bytes(248)
    (tmp_path / "hand.weights-0.bin").write_bytes(weights[:303])
    (tmp_path / "hand.weights-1.bin").write_bytes(weights[303:])
    short = {**PLAN["weights"], "files": [{"name": "hand.weights-0.bin", "nbytes": 304}]}
    for name, plan in [("hand", PLAN), ("short", PLAN | {"weights": short}),
                       ("old", PLAN | {"format": 0}), ("wrong", PLAN | {"shaders": ["no WGSL"]})]:
        (tmp_path / f"{name}.plan.json").write_text(json.dumps(plan))
    found = pages.run(tmp_path, SCRIPT)
    assert found["results"] == [["y", [n], 2 * n - 1] for n in (3, 1000, 5, 7, 8, 9, 3)]
    assert found["progress"] == [0, 303, 512]
    assert found["named"].tolist() == [3, 5, 7]
    assert found["many"] == [3, 5, 7]
    assert found["well"] == found["again"] == 15
    assert len(found["errors"]) == len(ERRORS)
    for error, expected in zip(found["errors"], ERRORS, strict=True):
        assert expected in (error or ""), (error, expected)
