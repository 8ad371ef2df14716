"""What people try in their first hour: each error says what was found and what to write instead."""

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.errors import (
    BoundsError,
    DeviceError,
    DTypeError,
    KernelError,
    RangeError,
    ShapeError,
    UnsupportedError,
    WeftError,
)


@pytest.mark.parametrize(("layer", "value"), [
    (lambda: nn.Linear(3, 2), (4, 3)), (lambda: nn.Conv1d(3, 2, 3), (1, 3, 8)),
    (lambda: nn.Conv2d(3, 2, 3), (1, 3, 8, 8)), (lambda: nn.ConvTranspose2d(3, 2, 3), (1, 3, 4, 4)),
])  # fmt: skip
def test_layers_take_inputs_of_their_dtype(layer, value):
    for dtype in (weft.float64, weft.float16, weft.int64):
        with pytest.raises(DTypeError, match=f"an input of {dtype.name}, a weight of float32"):
            layer()(weft.ones(*value, dtype=dtype))
    assert layer().to(weft.float64)(weft.ones(*value, dtype=weft.float64)).dtype is weft.float64


@pytest.mark.parametrize("make", [optim.Adam, optim.AdamW, optim.RMSprop, optim.SGD])
def test_optimisers_ask_for_parameters(make):
    net = nn.Linear(2, 2)
    for wrong in (net, net.parameters, 3):
        with pytest.raises(DTypeError, match=r"expected parameters, such as net\.parameters\(\)"):
            make(wrong, lr=0.1)


def test_complex_numbers_say_what_to_do():
    for call in (lambda: weft.ones(2) * 1j, lambda: 1j + weft.ones(2), lambda: weft.tensor(1j)):
        with pytest.raises(DTypeError, match=r"no complex numbers yet"):
            call()


def test_unknown_devices_say_what_there_is():
    with pytest.raises(DeviceError, match=r"'gpu'.*weft devices"):
        weft.ones(2, device="gpu")


def test_loop_nests_that_return_say_where_results_go():
    @weft.compute
    def double(x, out):
        for i in weft.ndrange(x.shape[0]):
            out[i] = x[i] * 2
        return out

    with pytest.raises(KernelError, match="write results to an array"):
        double(np.ones(4), np.ones(4))


def test_indices_that_are_data_name_the_line_that_used_them():
    embedding = nn.Embedding(6, 4)
    for function in (
        lambda: embedding(weft.tensor([1, 7])),
        lambda: nn.functional.cross_entropy(weft.rand(2, 3), weft.tensor([0, 5])),
        lambda: nn.functional.nll_loss(weft.rand(2, 3), weft.tensor([0, 5])),
        lambda: weft.rand(2, 3).gather(1, weft.tensor([[4], [0]])),
    ):
        made = function()
        line = function.__code__.co_firstlineno
        with pytest.raises(BoundsError) as found:
            made.numpy()
        assert found.value.where.file == __file__
        assert found.value.where.line == line


MISTAKES = [  # what is written, the error, and parts of its message
    ("weft.ones(2, dtpye=weft.float32)", UnsupportedError, ("ones: found dtpye=", "dtype=?")),
    ("weft.softmax(x, dims=1)", UnsupportedError, ("softmax: found dims=", "dim=?")),
    ("F.gelu(x, aproximate='tanh')", UnsupportedError,
     ("gelu: found aproximate=", "approximate=?")),
    ("x + [1, 2, 3]", DTypeError, ("add: found a list", "weft.tensor([...])")),
    ("x.__setitem__(0, 'a')", DTypeError, ("copy_: found a str", "a tensor, an array")),
    ("F.cross_entropy(x, [0, 1])", DTypeError, ("cross_entropy: found a list", "weft.tensor")),
    ("weft.cat(x, x)", DTypeError, ("cat: found a tensor for dim", "cat([a, b])")),
    ("weft.stack(x, x)", DTypeError, ("stack: found a tensor for dim", "stack([a, b])")),
    ("x.sum(x)", DTypeError, ("sum: found a Tensor, expected an integer",)),
    ("x.to('floaty')", DeviceError, ("'floaty'", "a dtype, or a device")),
    ("x.cuda()", DeviceError, ("'cuda'",)),
    ("nn.Linear(3, 2).cuda()", DeviceError, ("'cuda'",)),
    ("weft.normal(0.0, -1.0, (2,))", RangeError, ("normal: found std=-1.0", "at least 0")),
    ("weft.tune(3)", DTypeError, ("tune: found 3", "a function")),
    ("nn.Parameter(np.ones(3))", DTypeError, ("Parameter: found", "weft.tensor")),
    ("nn.Parameter([1.0])", DTypeError, ("Parameter: found [1.0]", "a tensor")),
    ("setattr(nn.Linear(2, 2), 'weight', np.ones((2, 2)))", DTypeError,
     ("Linear.weight: found a ndarray", "a Parameter")),
    ("setattr(nn.Linear(2, 2), 'weight', weft.ones(2, 2))", DTypeError,
     ("Linear.weight: found a Tensor", "weft.nn.Parameter(tensor)")),
    ("setattr(nn.Sequential(nn.ReLU()), '0', weft.relu)", DTypeError, ("a function", "a Module")),
    ("setattr(nn.BatchNorm1d(2), 'running_mean', [0, 0])", DTypeError, ("a list", "a Tensor")),
    ("nn.Module().register_buffer('a', [1, 2])", DTypeError, ("register_buffer", "a list")),
    ("nn.Module().register_parameter('a', weft.ones(2))", DTypeError, ("register_parameter",)),
    ("nn.Module().add_module('a', weft.relu)", DTypeError, ("add_module: found a function",)),
    ("nn.Linear(3, 2).load_state_dict('model.safetensors')", DTypeError,
     ("load_state_dict: found 'model.safetensors'", "weft.load(path)")),
    ("nn.Sequential([nn.ReLU()])", WeftError, ("Sequential: found a list", "Sequential(*layers)")),
    ("nn.Sequential(nn.ReLU)", WeftError, ("Sequential: found a type", "ReLU()")),
    ("nn.Sequential(weft.relu)", WeftError, ("Sequential: found a function", "a Module around")),
    ("optim.SGD([], lr=0.1)", ShapeError, ("no parameters", "nn.ModuleList")),
    ("optim.lr_scheduler.StepLR(nn.Linear(2, 2), 3)", DTypeError,
     ("StepLR: found a Linear", "an optimiser")),
    ("optim.lr_scheduler.LambdaLR(nn.Linear(2, 2), len)", DTypeError,
     ("LambdaLR: found a Linear",)),
    ("nn.utils.clip_grad_norm_(nn.Linear(2, 2), 1.0)", DTypeError,
     ("found a Linear", "net.parameters()")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "parts"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_mistakes_say_what_was_found_and_what_to_write(text, kind, parts):
    names = {"weft": weft, "nn": nn, "optim": optim, "F": nn.functional, "np": np,
             "x": weft.zeros(2, 3)}  # fmt: skip
    with pytest.raises(kind) as found:
        eval(text, names)
    assert all(part in str(found.value) for part in parts), str(found.value)
    assert found.value.where is not None


def test_errors_of_a_function_are_not_taken_for_wrong_keywords():
    def fails(value):
        raise TypeError("of the user's own")

    with pytest.raises(TypeError, match="of the user's own"):
        weft.sum(Reads(fails), keepdim=True)


class Reads:
    """An array whose values cannot be read."""

    def __init__(self, fails):
        self.fails = fails

    def __array__(self, *args, **options):
        return self.fails(self)


def test_names_of_pytorch_say_where_to_look():
    for name in ("cuda", "DataLoader", "compile", "FloatTensor", "linalg"):
        assert not hasattr(weft, name)
        with pytest.raises(AttributeError, match=rf"no attribute '{name}' \(.+\)$"):
            getattr(weft, name)
    with pytest.raises(AttributeError) as found:
        nn.Linear(2, 2).wieght  # noqa: B018
    assert (found.value.name, type(found.value.obj)) == ("wieght", nn.Linear)


def test_files_that_cannot_be_written_name_their_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such folder.*nowhere"):
        weft.save({"x": weft.ones(1)}, tmp_path / "nowhere" / "x.safetensors")


def test_tab_shows_public_names_only():
    for module in (weft, nn, nn.init, nn.utils, optim, optim.lr_scheduler, weft.gpu, weft.build,
                   weft.autograd, weft.random):  # fmt: skip
        assert dir(module) == sorted(module.__all__)
        assert all(hasattr(module, name) for name in dir(module))
        assert not {"annotations", "Any", "sys", "importing"} & set(dir(module))
    names = set(dir(nn.functional))
    assert {"softmax", "dropout", "linear"} <= names
    assert not names & {"tensor", "check_tensor", "cast", "wrapping", "Any", "annotations"}


def test_masks_are_bool():
    x, mask = weft.arange(4.0), weft.tensor([1, 0, 1, 1])
    for call in (lambda m: x.masked_select(m), lambda m: x.masked_fill(m, 0.0),
                 lambda m: x.masked_scatter(m, x)):  # fmt: skip
        with pytest.raises(DTypeError, match="of int64, expected bool"):
            call(mask)
        call(mask != 0).realize()
