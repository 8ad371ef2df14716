"""What programs ask of compiled kernels, devices and numba's own tools."""

import io

import ml_dtypes
import numpy as np
import pytest

from weft.compat import cuda, float32, int32, int64, stencil, void
from weft.compat.cuda import bf16, cudadrv
from weft.errors import KernelError, LaunchError


@cuda.jit
def moved(x, y, n):
    s = cuda.shared.array(64, float32)
    near = cuda.local.array(4, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    if i < n:
        s[t] = x[i]
    cuda.syncthreads()
    if i < n:
        for k in range(4):
            near[k] = s[(t + k) % 64]
        y[i] = near[0] + near[n % 4]


@cuda.jit(void(float32[:], int32))
def signed(x, n):
    x[0] = n


@pytest.fixture(scope="module")
def launched():
    x = np.arange(64, dtype=np.float32)
    moved[1, 64](x, np.zeros_like(x), 64)
    return moved


class TestForms:
    def test_resources_by_form(self, launched):
        types = (float32[::1], float32[::1], int64)
        assert launched.signatures == [types]
        assert launched.get_shared_mem_per_block() == {types: 256}
        assert launched.get_local_mem_per_thread(types) == 16
        assert launched.get_const_mem_size(types) == 0
        assert launched.get_regs_per_thread(void(*types)) > 0
        assert launched.get_max_threads_per_block()[types] == 1024

    def test_forms_are_a_mapping(self, launched):
        (types, form), = launched.overloads.items()
        assert types in launched.overloads
        assert len(launched.overloads) == 1
        assert form.signature.args == types
        assert form.max_cooperative_grid_blocks((8, 8)) == form.max_cooperative_grid_blocks(64) > 0
        assert launched.definition.shared_mem_per_block == form.shared_mem_per_block
        assert not form.cooperative

    def test_a_form_that_waits_for_the_grid(self):
        @cuda.jit
        def meet(x):
            cuda.cg.this_grid().sync()
            x[0] = 1

        meet[2, 4](np.zeros(1))
        assert next(iter(meet.overloads.values())).cooperative

    def test_texts(self, launched):
        (llvm,), (code,) = (t.values() for t in (launched.inspect_llvm(), launched.inspect_asm()))
        assert "define" in llvm
        assert "ret" in code
        assert launched.inspect_sass() == launched.inspect_asm()
        file = io.StringIO()
        launched.inspect_types(file=file)
        assert "moved" in file.getvalue()
        assert "f32" in file.getvalue()

    def test_a_signature_compiles_it_where_it_is_asked(self):
        assert signed.get_regs_per_thread((float32[:], int32)) > 0
        assert next(iter(signed.overloads))[1] is int32
        x = np.zeros(2, np.float32)
        signed[1, 1](x, 3)
        assert x[0] == 3

    def test_there_may_be_none(self):
        @cuda.jit
        def never(x):
            x[0] = 1

        assert never.inspect_asm() == {}
        with pytest.raises(KernelError, match="a launch first"):
            never.inspect_asm((float32[:],))

    def test_a_specialised_kernel_is_one(self, launched):
        x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
        special = launched.specialize(x, y, 64)
        special[1, 64](x, y, 64)
        assert special.specialized
        assert not launched.specialized
        np.testing.assert_array_equal(y, x + x)
        assert launched.stats.cache_hits == {}


class TestDevices:
    def test_all_attributes(self):
        device = cuda.get_current_device()
        for name, number in cudadrv.enums.ATTRIBUTES.items():
            assert isinstance(getattr(device, name), int)
            assert getattr(cudadrv.enums, f"CU_DEVICE_ATTRIBUTE_{name}") == number
        assert device.CLOCK_RATE > 0
        assert f"{device.name}" == device.name.decode("utf-8")
        assert cuda.current_context().get_max_potential_block_size(None, None, 0, 128)[1] == 128
        with pytest.raises(AttributeError, match="NOTHING"):
            device.NOTHING  # noqa: B018

    @pytest.mark.parametrize("ask", [
        lambda: cuda.compile_ptx(lambda x: x, (int32,), device=True),
        lambda: cuda.set_memory_manager(cuda.HostOnlyCUDAMemoryManager),
        lambda: cuda.to_device(np.zeros(2)).get_ipc_handle(),
        lambda: __import__("weft.compat.extending", fromlist=["intrinsic"]).intrinsic,
    ], ids=["ptx", "memory", "ipc", "intrinsic"])  # fmt: skip
    def test_refusals_say_what_to_do(self, ask):
        with pytest.raises((KernelError, LaunchError), match="expected"):
            ask()


@cuda.jit(fma=False)
def halves(a, out):
    i = cuda.grid(1)
    if i < a.size:
        b = bf16.bfloat16(a[i])
        c = b * b
        c += bf16.bfloat16(1.0)
        out[0, i] = float32(c)
        out[1, i] = float32(bf16.hsqrt(c))
        out[2, i] = float32(bf16.hfma(b, b, c))
        out[3, i] = float32(bf16.hmul_sat(b, b))
        out[4, i] = float32(bf16.hfma_relu(b, c, -c))
        out[5, i] = float32(bf16.hdiv(b, c))
        out[6, i] = bf16.hlt(b, c)


def test_bfloat16():
    a = np.concatenate([np.linspace(-3, 3, 61), [0.0, -0.0, np.nan]]).astype(np.float32)
    out = np.zeros((7, a.size), np.float32)
    halves[1, 64](a, out)
    narrow = ml_dtypes.bfloat16
    b = a.astype(narrow)
    c = b * b + narrow(1)
    wide = b.astype(np.float64), c.astype(np.float64)
    want = [c, np.sqrt(wide[1]), wide[0] ** 2 + wide[1],
            np.nan_to_num(np.clip(wide[0] ** 2, 0, 1)),
            np.maximum(wide[0] * wide[1] - wide[1], 0), b / c, b < c]  # fmt: skip
    for k, found in enumerate(want):
        np.testing.assert_array_equal(out[k], found.astype(narrow).astype(np.float32), str(k))
    assert cuda.is_bfloat16_supported()


def test_breakpoints_do_nothing():
    @cuda.jit(debug=True, opt=False)
    def stopped(x):
        breakpoint()
        x[cuda.grid(1)] = 1

    x = np.zeros(3)
    stopped[1, 3](x)
    assert x.sum() == 3


def test_assertions_raise_pythons_own():
    @cuda.jit(debug=True, opt=False)
    def above(a):
        assert a > 1, "error information"

    for _ in range(4):  # also by native paths
        with pytest.raises(AssertionError, match=r"found error information in thread \(0, 0, 0\)"):
            above[1, 1](1)
        above[1, 1](2)


@pytest.mark.parametrize(("options", "edge"), [({}, 0), ({"cval": 7}, 7)], ids=["zero", "cval"])
def test_stencils_stay_python(options, edge):
    smooth = stencil(**options)(lambda a: (a[-1, 0] + a[1, 0] + a[0, 2]) / 2)
    a = np.arange(30.0).reshape(5, 6)
    found = smooth(a)
    np.testing.assert_array_equal(found[1:-1, :-2], (a[:-2, :-2] + a[2:, :-2] + a[1:-1, 2:]) / 2)
    assert (found[0] == edge).all()
    assert (found[:, -2:] == edge).all()
