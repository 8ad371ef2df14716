"""Docstring sections of the methods of `weft.nn.Module`."""

from __future__ import annotations

from typing import Final

from weft.nn.sections import SECTIONS
from weft.tensors.docs.documented import Row

__all__ = ["ENTRIES", "MODULE"]

ENTRIES: Final = SECTIONS | {
    "hook:after": """hook : callable
    Takes this module, the tuple of its arguments and its result; what it returns, unless it
    is None, takes the result's place.""",
    "hook:before": """hook : callable
    Takes this module and the tuple of its arguments; what it returns, unless it is None,
    takes their place.""",
    "hook:gradients": """hook : callable
    Takes this module, a tuple with the gradient of each argument (None for what is no tensor) and
    one with those of the results; a tuple that it returns takes the arguments' place.""",
    "hook:outgoing": """hook : callable
    Takes this module and a tuple with the gradients of its results; a tuple that it returns takes
    their place.""",
    "prepend": """prepend : bool
    Whether it is called before the hooks that are there.""",
    "with_kwargs:after": """with_kwargs : bool
    Whether the hook takes the dict of keywords as well, behind the arguments.""",
    "with_kwargs:before": """with_kwargs : bool
    Whether the hook takes the dict of keywords as well, and returns arguments and keywords.""",
    "hook:no_function": """DTypeError
    If `hook` cannot be called.""",
    "memo": """memo : set of Module, optional
    Modules to leave out; those that are met are added.""",
    "remove_duplicate": """remove_duplicate : bool
    False for all paths of what is there several times.""",
    "destination": """destination : dict, optional
    What the entries are added to.""",
    "keep_vars": """keep_vars : bool
    Whether the entries are the parameters themselves.""",
    "assign": """assign : bool
    Whether the values take the place of parameters and buffers, with their dtypes.""",
    "tensor": """tensor : Tensor or None
    The first value.""",
    "persistent": """persistent : bool
    Whether it is part of the state dict.""",
    "no_tensor": """DTypeError
    If `tensor` is something else.""",
    "parameter": """parameter : Parameter or None
    The parameter.""",
    "no_parameter": """DTypeError
    If `parameter` is something else.""",
    "module": """module : Module or None
    The layer.""",
    "no_module": """DTypeError
    If `module` is something else.""",
    "target:module": """target : str
    Such as ``"layers.0.attention"``; empty for this module.""",
    "target:parameter": """target : str
    Such as ``"layers.0.weight"``.""",
    "target:buffer": """target : str
    Such as ``"norm.running_mean"``.""",
    "function": """function : callable
    Takes a module; its result is ignored.""",
    "mode": """mode : bool
    False sets evaluation mode.""",
    "requires_grad": """requires_grad : bool
    False freezes them.""",
    "set_to_none": """set_to_none : bool
    False sets gradients to zeros.""",
    "state_dict": """state_dict : mapping of str to Tensor or array
    Values by path.""",
    "strict": """strict : bool
    False leaves paths alone that are missing or unknown.""",
    "state": """DTypeError
    If `state_dict` is no dict, but the name of a file, for instance.
StateError
    If a path is missing or unknown, unless `strict` is False.
ShapeError
    If a shape differs; nothing is changed then.""",
}  # fmt: skip

MODULE: Final[dict[str, Row]] = {
    "register_forward_hook": (
        "hook:after prepend with_kwargs:after", "handle", "hook:no_function", """\
>>> layer = weft.nn.ReLU()
>>> handle = layer.register_forward_hook(lambda module, args, result: result * 2)
>>> layer(weft.tensor([1.0])).tolist()
[2.0]"""),
    "register_forward_pre_hook": (
        "hook:before prepend with_kwargs:before", "handle", "hook:no_function", """\
>>> layer = weft.nn.ReLU()
>>> handle = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
>>> layer(weft.tensor([1.0])).tolist()
[2.0]"""),
    "register_full_backward_hook": (
        "hook:gradients prepend", "handle", "hook:no_function", """\
>>> layer, x = weft.nn.ReLU(), weft.ones(2, requires_grad=True)
>>> handle = layer.register_full_backward_hook(lambda module, g, outgoing: (g[0] * 3,))
>>> layer(x).sum().backward()
>>> x.grad
tensor([3., 3.])"""),
    "register_full_backward_pre_hook": (
        "hook:outgoing prepend", "handle", "hook:no_function", """\
>>> layer, x = weft.nn.ReLU(), weft.ones(2, requires_grad=True)
>>> handle = layer.register_full_backward_pre_hook(lambda module, outgoing: (outgoing[0] * 3,))
>>> layer(x).sum().backward()
>>> x.grad
tensor([3., 3.])"""),
    "register_buffer": (
        "name tensor persistent", "", "no_tensor", """\
>>> layer = weft.nn.Module()
>>> layer.register_buffer("count", weft.zeros(1))
>>> list(layer.state_dict())
['count']"""),
    "register_parameter": (
        "name parameter", "", "no_parameter", """\
>>> layer = weft.nn.Module()
>>> layer.register_parameter("weight", weft.nn.Parameter(weft.zeros(2)))
>>> layer.weight.shape
(2,)"""),
    "add_module": ("name module", "", "no_module", """\
>>> net = weft.nn.Module()
>>> net.add_module("first", weft.nn.ReLU())
>>> net.first
ReLU()"""),
    "named_modules": (
        "memo prefix remove_duplicate",
        "iterator of (str, Module)\n    Parents first; the path of this module is `prefix`.",
        "", """\
>>> [path for path, _ in weft.nn.Sequential(weft.nn.ReLU()).named_modules()]
['', '0']"""),
    "modules": ("", "iterator of Module\n    Parents first.", "", """\
>>> len(list(weft.nn.Sequential(weft.nn.ReLU()).modules()))
2"""),
    "named_children": (
        "", "iterator of (str, Module)\n    In the order in which they were assigned.", "", """\
>>> list(weft.nn.Sequential(weft.nn.ReLU()).named_children())
[('0', ReLU())]"""),
    "children": ("", "iterator of Module\n    In the order in which they were assigned.", "", """\
>>> list(weft.nn.Sequential(weft.nn.ReLU()).children())
[ReLU()]"""),
    "named_parameters": (
        "prefix recurse remove_duplicate",
        "iterator of (str, Parameter)\n    In the order in which they were assigned.",
        "", """\
>>> [path for path, _ in weft.nn.Linear(3, 2).named_parameters()]
['weight', 'bias']"""),
    "parameters": (
        "recurse", "iterator of Parameter\n    In the order in which they were assigned.", "", """\
>>> sum(p.numel() for p in weft.nn.Linear(3, 2).parameters())
8"""),
    "named_buffers": (
        "prefix recurse remove_duplicate",
        "iterator of (str, Tensor)\n    In the order in which they were assigned.",
        "", """\
>>> [path for path, _ in weft.nn.BatchNorm1d(2).named_buffers()]
['running_mean', 'running_var', 'num_batches_tracked']"""),
    "buffers": (
        "recurse", "iterator of Tensor\n    In the order in which they were assigned.", "", """\
>>> len(list(weft.nn.BatchNorm1d(2).buffers()))
3"""),
    "get_submodule": ("target:module", "Module\n    The module.", "path", """\
>>> weft.nn.Sequential(weft.nn.ReLU()).get_submodule("0")
ReLU()"""),
    "get_parameter": ("target:parameter", "Parameter\n    The parameter.", "path", """\
>>> weft.nn.Linear(3, 2).get_parameter("bias").shape
(2,)"""),
    "get_buffer": ("target:buffer", "Tensor\n    The buffer.", "path", """\
>>> weft.nn.BatchNorm1d(2).get_buffer("running_mean").shape
(2,)"""),
    "apply": ("function", "this", "", """\
>>> net = weft.nn.Sequential(weft.nn.ReLU()).apply(lambda m: print(type(m).__name__))
ReLU
Sequential"""),
    "train": ("mode", "this", "", """\
>>> weft.nn.Dropout().train().training
True"""),
    "eval": ("", "this", "", """\
>>> weft.nn.Dropout().eval().training
False"""),
    "requires_grad_": ("requires_grad", "this", "", """\
>>> weft.nn.Linear(3, 2).requires_grad_(False).weight.requires_grad
False"""),
    "zero_grad": ("set_to_none", "", "", """\
>>> layer = weft.nn.Linear(3, 2)
>>> layer(weft.ones(3)).sum().backward()
>>> layer.zero_grad()
>>> layer.weight.grad is None
True"""),
    "state_dict": (
        "destination prefix keep_vars",
        "OrderedDict of str to Tensor\n    What `load_state_dict` and `weft.save` take.",
        "", """\
>>> {k: v.shape for k, v in weft.nn.Linear(3, 2).state_dict().items()}
{'weight': (2, 3), 'bias': (2,)}"""),
    "load_state_dict": (
        "state_dict strict assign",
        "LoadResult\n    Missing and unexpected paths, as ``missing_keys`` and "
        "``unexpected_keys``.",
        "state", """\
>>> a, b = weft.nn.Linear(3, 2), weft.nn.Linear(3, 2)
>>> a.load_state_dict(b.state_dict())
<All keys matched successfully>"""),
    "extra_repr": ("", "str\n    Empty, unless a layer says otherwise.", "", """\
>>> weft.nn.Dropout(0.5).extra_repr()
'p=0.5, inplace=False'"""),
}  # fmt: skip
