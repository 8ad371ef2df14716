"""Exported functions and kernels in a browser, beside the interpretation of their graphs."""

import inspect
import json

import numpy as np
import pages
import pytest

import weft
from weft import gpu, nn
from weft.driver.check import graph
from weft.errors import CaptureError, LaunchError, UnsupportedError
from weft.web.capture import capture_for_browser
from weft.web.device import browser
from weft.web.export import export
from weft.web.inputs import Spec, arguments_of, parse_inputs

TILE = 8


@weft.kernel
def saxpy(a, x, y):
    """y += a * x."""
    i = gpu.grid(1)
    if i < y.size:
        y[i] += a * x[i]


@weft.kernel
def matmul(a, b, c):
    left = gpu.shared.array((TILE, TILE), weft.float32)
    right = gpu.shared.array((TILE, TILE), weft.float32)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    j, i = gpu.grid(2)
    total = weft.float32(0)
    for k in range(0, a.shape[1], TILE):
        left[ty, tx] = a[i, k + tx] if i < a.shape[0] and k + tx < a.shape[1] else weft.float32(0)
        right[ty, tx] = b[k + ty, j] if k + ty < b.shape[0] and j < b.shape[1] else weft.float32(0)
        gpu.syncthreads()
        for m in range(TILE):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


@weft.kernel
def count(values, counts):
    i = gpu.grid(1)
    if i < values.size:
        gpu.atomic.add(counts, values[i], 1)


@weft.kernel
def histogram(values, counts):  # in memory of the group first
    mine = gpu.shared.array(16, weft.int32)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    if t < 16:
        mine[t] = 0
    gpu.syncthreads()
    if i < values.size:
        gpu.atomic.add(mine, values[i], 1)
    gpu.syncthreads()
    if t < 16:
        gpu.atomic.add(counts, t, mine[t])


@weft.kernel
def numbers(out):  # which reads no array
    i = gpu.grid(1)
    if i < out.size:
        out[i] = i * i


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.last = nn.Linear(6 * 16, 5)

    def forward(self, x):
        x = self.norm(self.conv(x)).relu().max_pool2d(2)
        return self.last(x.flatten(1)).softmax(-1)


def functions():
    """Return what is exported: functions, example inputs, options, and values of sizes."""
    weft.manual_seed(0)
    net = Net().eval()
    weights = weft.randn(16, 5)

    @weft.jit
    def mixed(x, flags, words, wide):
        return {"where": weft.where(flags, x, -x), "sum": words + 3,
                "wide": wide * 2 + 1, "order": x.argsort(-1), "any": flags.any(1),
                "small": (words & 255).to(weft.uint8)}  # fmt: skip

    @weft.jit
    def rows(x, rate):
        hidden = (x @ weights).softmax(-1)
        return hidden * rate, hidden.sum(0), x.reshape(-1)[1:], x.cumsum(0)

    @weft.jit
    def floats(half, short, double):
        return {"half": half * 2 - 1, "short": short + 3, "double": double * 3 - 1}  # fmt: skip

    @weft.jit
    def same(x):
        return x, x * 2, weights

    rng = np.random.default_rng(5)
    return {
        "net": (net, {"x": Spec(weft.float32, (3, 1, 8, 8))}, {"file_bytes": 1000}, [{}]),
        "mixed": (mixed, (rng.random((4, 9), np.float32), np.zeros((4, 9), bool),
                          np.zeros((4, 9), np.int32), np.zeros((4, 9), np.int64)), {}, [{}]),
        "rows": (rows, parse_inputs(["x=f32[n:1..300,16]", "rate=0.5"]), {},
                 [{"n": n} for n in (1, 7, 300)]),
        "floats": (floats, parse_inputs(["half=f16[33]", "short=bf16[33]", "double=f64[33]"]), {},
                   [{}]),
        "same": (same, parse_inputs(["x=f32[5]"]), {}, [{}]),
        "saxpy": (saxpy, parse_inputs(["a=f32(2.5)", "x=f32[1000]", "y=f32[1000]"]), {}, [{}]),
        "matmul": (matmul, parse_inputs(["a=f32[19,30]", "b=f32[30,21]", "c=f32[19,21]"]),
                   {"grid": (3, 3), "block": (TILE, TILE)}, [{}]),
        "histogram": (histogram, parse_inputs(["values=i32[3000]", "counts=i32[16]"]), {}, [{}]),
        "numbers": (numbers, parse_inputs(["out=i32[77]"]), {}, [{}]),
        "count": (count, parse_inputs(["values=i32[700]", "counts=i32[16]"]), {}, [{}]),
    }  # fmt: skip


def values_for(rng, dtype, shape):
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(0, 2 if dtype.is_bool else 16, shape).astype(dtype.numpy)


def interpreted(function, inputs, options, arrays, sizes):
    """Return the results of a function by the interpretation of its graph."""
    from weft.web import export as module

    plain, called = module._plain(function)
    given = arguments_of(called.__weft_function__ if called else plain, inputs, called is not None)
    if called:
        plain = module._launched(plain, given, options.get("grid"), options.get("block"))
    browser()
    captured = capture_for_browser(plain, given)
    known = {s: a.reshape(-1) for (_, s), a in zip(captured.inputs, arrays, strict=True)}
    known |= {new: graph.array_of(old.buffer, old.dtype, (old.size,))
              for new, old in captured.weights.items()}
    found = graph.evaluate(captured.roots, graph.Environment(known, sizes))
    return [(array, found[captured.roots[root]]) for array, root in captured.outputs]


SCRIPT = """
globalThis.Half = globalThis.Float16Array ?? Uint16Array;
const found = {};
for (const [name, calls] of Object.entries(CALLS)) {
  const model = await (await import(`./${name}.js`)).load();
  found[name] = [];
  for (const call of calls) {
    const given = [];
    for (const [file, kind, shape] of call) {
      given.push({ data: await data(file, globalThis[kind]), shape });
    }
    const results = await model(...given);
    found[name].push(results.map(({ name, dtype, shape, data }) => ({ name, dtype, shape, data })));
  }
}
return found;
"""
KINDS = {"float32": "Float32Array", "int32": "Int32Array", "bool": "Uint8Array",
         "int64": "BigInt64Array", "float16": "Half", "bfloat16": "Uint16Array",
         "float64": "Float64Array"}


@pytest.mark.requires("chromium")
@pytest.mark.slow
def test_results_are_those_of_the_interpreter(tmp_path):
    """Several models on one page: networks, kernels, symbolic sizes, types."""
    rng = np.random.default_rng(7)
    calls, expected = {}, {}
    for name, (function, inputs, options, cases) in functions().items():
        export(function, tmp_path, inputs, name=name, **options)
        plan = json.loads((tmp_path / f"{name}.plan.json").read_text())
        calls[name], expected[name] = [], []
        for case, sizes in enumerate(cases):
            call, arrays = [], []
            for i, array in enumerate(plan["inputs"]):
                shape = [sizes.get(n, n) for n in array["shape"]]
                arrays.append(values_for(rng, weft.ir.dtype.as_dtype(array["dtype"]), shape))
                file = f"{name}-{case}-{i}.bin"
                arrays[-1].tofile(tmp_path / file)
                call.append([file, KINDS[array["dtype"]], shape])
            calls[name].append(call)
            expected[name].append(interpreted(function, inputs, options, arrays, sizes))
    found = pages.run(tmp_path, SCRIPT.replace("CALLS", json.dumps(calls)))
    for name, cases in expected.items():
        for case, results in enumerate(cases):
            assert len(results) == len(found[name][case])
            for (array, wanted), got in zip(results, found[name][case], strict=True):
                assert (got["name"], got["dtype"]) == (array.name, array.dtype.name)
                assert tuple(got["shape"]) == wanted.shape, name
                values = got["data"].view(array.dtype.numpy).reshape(wanted.shape)
                if array.dtype.is_float:
                    close = 1e-12 if array.dtype is weft.float64 else 2e-5
                    np.testing.assert_allclose(values.astype(float), wanted.astype(float), close,
                                               close / 10, err_msg=f"{name}: {array.name}")
                else:
                    np.testing.assert_array_equal(values.astype(wanted.dtype), wanted, name)
    files = sorted(p.name for p in tmp_path.glob("net.weights*"))
    assert len(files) > 1
    assert all((tmp_path / f).stat().st_size <= 1000 for f in files)


@pytest.mark.requires("chromium")
@pytest.mark.slow
def test_a_failed_check_names_the_line(tmp_path):
    @weft.jit
    def pick(table, index):
        return table[index]

    @weft.kernel
    def shifted(x, out):
        i = gpu.grid(1)
        out[i] = x[i + 1]

    export(pick, tmp_path, parse_inputs(["table=f32[10,3]", "index=i32[4]"]))
    export(shifted, tmp_path, parse_inputs(["x=f32[256]", "out=f32[256]"]))
    errors = pages.run(tmp_path, """
const pick = await (await import("./pick.js")).load();
const shifted = await (await import("./shifted.js")).load();
const table = new Float32Array(30);
const x = new Float32Array(256);
return [await failed(() => pick(table, [0, 1, -12, 3])), await failed(() => shifted(x, x)),
        await failed(() => pick(table, [0, 1, -10, 9]))];
""")
    line = inspect.getsourcelines(test_a_failed_check_names_the_line)[1]
    assert errors[0].startswith("KernelError: ")
    assert "found index -12, expected -10 to 9" in errors[0]
    assert errors[0].endswith(f"(test_web_export.py:{line + 5})")
    assert errors[1].endswith("found index 256, expected 0 to 255 "
                              f"(test_web_export.py:{line + 10})"), errors[1]
    assert errors[2] is None


@pytest.mark.requires("chromium")
@pytest.mark.slow
def test_the_page(tmp_path):
    function, inputs, options, _ = functions()["rows"]
    export(function, tmp_path, inputs, name="rows", **options)
    found = pages.run(tmp_path, """
const page = await frame("index.html");
const status = () => page.getElementById("status").textContent;
const ready = status();
page.querySelector("button").click();
await wait(() => status() !== ready);
const done = status();
const shown = page.getElementById("outputs").innerText;
page.querySelector("textarea").value = "1 2 x";
page.querySelector("button").click();
await wait(() => status() !== done);
return { ready, done, shown, wrong: status(), kind: page.getElementById("status").className };
""")
    assert found["ready"] == "Ready."
    assert found["done"].startswith("Done in ")
    assert "y0: float32[8, 5]" in found["shown"]
    assert found["wrong"] == "x: numbers are expected"
    assert found["kind"] == "error"


@pytest.mark.requires("chromium")
@pytest.mark.slow
def test_a_page_says_what_to_do_where_it_cannot_run(tmp_path):
    export(saxpy, tmp_path, parse_inputs(["a=f32(2.5)", "x=f32[10]", "y=f32[10]"]))
    said = pages.run(tmp_path, """
const page = await frame("index.html");
const { load, NoWebGPUError } = await import("./saxpy.js");
let known = false;
try { await load(); } catch (error) { known = error instanceof NoWebGPUError; }
return [page.getElementById("status").textContent, known];
""", adapter=False)
    assert "no GPU that it may use: turn on hardware acceleration" in said[0], said
    assert said[1]
    text = pages.text_of_file(tmp_path / "index.html")
    assert "Serve this folder instead: run “python3 -m http.server” in it" in text


def test_what_is_written(tmp_path):
    paths = export(saxpy, tmp_path, parse_inputs(["a=f32(2.5)", "x=f32[10]", "y=f32[10]"]))
    assert {p.name for p in paths} == {p.name for p in tmp_path.iterdir()} == {
        "saxpy.js", "saxpy.d.ts", "saxpy.plan.json", "weft.js", "weft.d.ts", "index.html",
        "page.js"}
    types = (tmp_path / "saxpy.d.ts").read_text()
    assert 'Inputs = [x: Input<"float32">, y: Input<"float32">];' in types
    assert 'Outputs = [y: Tensor<"float32">];' in types
    plan = json.loads((tmp_path / "saxpy.plan.json").read_text())
    assert plan["description"] == "y += a * x."
    page = (tmp_path / "index.html").read_text()
    assert "http" not in page.replace("http.server", "").replace("http://localhost:8000", "")


def test_what_no_page_does_is_refused(tmp_path):
    weft.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    total = weft.zeros(3)

    def grow(x):
        total.add_(x)
        return x

    x = {"x": Spec(weft.float32, (3, 4))}
    cases = [
        (UnsupportedError, "eval", net, {"input": x["x"]}),
        (UnsupportedError, "random numbers", lambda x: weft.rand(3, 4) + x, x),
        (UnsupportedError, "changes tensors", grow, parse_inputs(["x=f32[3]"])),
        (UnsupportedError, "no example inputs", lambda x: x, None),
        (UnsupportedError, "without arrays", lambda x: x, {"x": 1}),
        (UnsupportedError, "does not take", lambda x: x, {"y": x["x"]}),
        (UnsupportedError, "returns no tensor", lambda x: None, x),
        (CaptureError, "item", lambda x: x * x.sum().item(), x),
        (LaunchError, "no grid", matmul, parse_inputs(["a=f32[8,8]", "b=f32[8,8]", "c=f32[8,8]"])),
    ]
    for kind, text, function, inputs in cases:
        options = {"block": (8, 8)} if function is matmul else {}
        with pytest.raises(kind) as error:
            export(function, tmp_path / "none", inputs, name="f", **options)
        assert text in str(error.value), error.value
    assert not (tmp_path / "none").exists()
