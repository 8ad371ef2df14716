"""What `help()` shows of layers and optimisers: complete sections, examples that run as printed."""

import doctest
import inspect
import re
from collections.abc import Iterator

import weft

# What is described once, in the class: its input and output, or the base class's method.
IN_CLASS = {"extra_repr", "factor", "forward", "rate", "state_names", "initial", "update"}
PLACES = {
    "nn": weft.nn, "nn.functional": weft.nn.functional, "nn.init": weft.nn.init,
    "nn.utils": weft.nn.utils, "optim": weft.optim, "optim.lr_scheduler": weft.optim.lr_scheduler,
}  # fmt: skip


def documented() -> Iterator[tuple[str, object]]:
    """Yield the functions and classes of these modules, and the public methods of classes."""
    for place, module in PLACES.items():
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            if not callable(value) or not value.__module__.startswith(("weft.nn", "weft.optim")):
                continue
            if name.startswith("_"):
                continue
            yield f"{place}.{name}", value
            if inspect.isclass(value):
                own = [k for k in value.__mro__ if k.__module__.startswith(("weft.nn", "weft.op"))]
                yield from ((f"{place}.{name}.{n}", v) for n, v in vars(value).items()
                            if inspect.isfunction(v) and n[0] != "_" and (
                                n not in IN_CLASS or len(own) == 1))  # fmt: skip


EVERY = dict(documented())


def of(value: object) -> dict[str, str]:
    """Return the sections of a docstring by title; the introduction by an empty one."""
    parts = re.split(r"^(\w+)\n-+$", inspect.getdoc(value) or "", flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def test_sections() -> None:
    assert len(EVERY) > 140
    wrong = []
    for name, value in EVERY.items():
        is_error = inspect.isclass(value) and issubclass(value, Exception)
        if is_error or name.endswith("Module.forward"):
            continue
        found = of(value)
        entries = re.findall(r"^([\w*][\w*, ]*?)(?: :.*)?$", found.get("Parameters", ""), re.M)
        listed = sorted(n.strip(" *") for entry in entries for n in entry.split(","))
        wanted = sorted(n for n in inspect.signature(value).parameters if n != "self")
        if listed != wanted and not (name.endswith("nn.Module") and not listed):
            wrong.append(f"{name}: parameters {listed} for {wanted}")
        if ">>> " not in found.get("Examples", ""):
            wrong.append(f"{name}: no example")
        if not re.match(r"[^\n]{1,96}[.:](\n\n|$)", found[""].rstrip("\n") + "\n\n"):
            wrong.append(f"{name}: no sentence")
    assert not wrong, "\n".join(wrong)


def test_examples() -> None:
    """Every example prints what it says, all of them in one process."""
    parser, runner, shown = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False), []
    for name, value in EVERY.items():
        text = inspect.getdoc(value) or ""
        runner.run(parser.get_doctest(text, {"weft": weft}, name, None, 0), out=shown.append)
    assert runner.tries > 200
    assert not runner.failures, "".join(shown)
