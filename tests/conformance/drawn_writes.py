"""Writes in place as steps of random programs: to leaves, views and what was computed.

Each is a line that changes a value, or a part of one, with gradients recorded, under no_grad,
through ``detach()`` or through ``data``.
"""

MODES = ("grad", "no_grad", "detach", "data")


def write(p, r):
    """Return a line that writes to a value in place, None if there is nothing to write to."""
    x = p.pick(lambda t: t.dtype.is_float and t.ndim and t.numel())
    if x is None:
        return None
    t = p.scope[x]
    mode = r.choice(MODES)
    target = f"{x}.detach()" if mode == "detach" else f"{x}.data" if mode == "data" else x
    target += r.choice(("", "", *_parts(r, t.shape)))
    line = r.choice((_method, _method, _assignment))(p, r, x, target)
    if r.random() < 0.1:
        line = f"{x}.tolist(); {line}"  # which realizes it
    return f"with weft.no_grad(): {line}" if mode == "no_grad" else line


def _parts(r, shape):
    """Return indices and views that are parts of a tensor."""
    n = shape[0]
    k = r.randrange(n)
    yield f"[{k}]"
    yield f"[{k}:]"
    yield "[::2]"
    yield ".reshape(-1)"
    yield ".flatten()"
    yield f".narrow(0, {k}, {n - k})"
    yield f".unsqueeze({r.randint(0, len(shape))})"
    if len(shape) > 1:
        yield ".transpose(0, 1)"
        yield f"[:, {r.randrange(shape[1])}]"
        yield f".view({n}, -1)"
        yield ".diagonal()"
        yield f"[{k}].detach()"


def _operand(p, r, x):
    """Return a number, or a value that is broadcast to any shape."""
    y = p.pick(lambda o: o.dtype is p.scope[x].dtype and o.ndim == 0)
    z = p.pick(lambda o: o.dtype is p.scope[x].dtype and o.ndim and o.numel())
    first = z and f"{z}.reshape(-1)[{r.randrange(p.scope[z].numel())}].clone()"
    return r.choice(("0.5", "2", "-1", y or "3", first, first, f"{z}.sum()"))


def _method(p, r, x, target):
    y = _operand(p, r, x)
    # What is read must not be memory that is written: PyTorch says nothing of that.
    same = p.pick(lambda o: o.shape == p.scope[x].shape and o.dtype is p.scope[x].dtype)
    same = same if same == x else f"{same}.clone()"
    whole = target in (x, f"{x}.detach()", f"{x}.data")
    arrays = (f".add_({same})", f".mul_({same})", f".copy_({same})", f".sub_({same}, alpha=2)",
              f".masked_fill_({same} > 0.5, 0.25)") if whole else ()  # fmt: skip
    return target + r.choice((
        *arrays, *arrays, f".add_({y})", f".mul_({y})", f".sub_({y})", f".copy_({_zero_dim(y)})",
        ".zero_()", f".fill_({r.choice((2.0, 0.5))})", ".clamp_(-0.5, 1.5)", ".exp_()", ".neg_()",
        ".relu_()", ".clamp_(min=0.5).sqrt_()"))


def _zero_dim(text):
    return text if text.startswith("v") else f"weft.tensor(float({text}))"


def _assignment(p, r, x, target):
    """Return an assignment to a part; each index may be data, or a mask."""
    n = p.scope[x].shape[0]
    places = [r.randrange(n) for _ in range(r.choice((1, 2)))]
    y = _operand(p, r, x)
    if target.endswith("]"):
        return f"{target} = {y}"
    if target not in (x, f"{x}.detach()", f"{x}.data"):  # whose sizes are others
        return f"{target}[{r.choice(('0', ':', '1:', '...'))}] = {y}"
    index = r.choice(("0", ":", f"weft.tensor({sorted(set(places))})", "1:", "...", f"{x} > 0.5"))
    return r.choice((f"{target}[{index}] = {y}", f"{target}[{index}] = 0", f"{target}[0] += 1",
                     f"{target}[0:1] *= 2"))  # fmt: skip
