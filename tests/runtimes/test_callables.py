"""Function objects with native code to call."""

import ctypes
import gc
import weakref

from weft.runtimes.native.calls import callables


class Plain:
    def __init__(self, name):
        self.name = name
        self.itself = self

    def __call__(self, *args, **kwargs):
        return self.name, args, kwargs


Native = callables.native_class(Plain)
CODE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p, ctypes.c_size_t,
                         ctypes.c_void_p)  # fmt: skip


@CODE
def native(thing, args, nargsf, kwnames):
    return "native", thing.name, nargsf & 0xFFFF


ADDRESS = ctypes.cast(native, ctypes.c_void_p).value


def test_without_code_python_is_called():
    thing = Native("a")
    assert isinstance(thing, Plain)
    assert callables.address_in(thing, Plain) == 0
    assert thing(1, k=2) == ("a", (1,), {"k": 2})
    thing.more = 3
    assert vars(thing)["more"] == 3


def test_with_code_it_is_called():
    thing, other = Native("a"), Native("b")
    callables.set_code(thing, Plain, ADDRESS)
    assert callables.address_in(thing, Plain) == ADDRESS
    assert thing(1, 2) == thing(*[1, 2]) == ("native", "a", 2)
    assert other(1) == ("b", (1,), {})
    assert list(map(thing, "xy")) == [("native", "a", 1)] * 2
    callables.set_code(thing, Plain, 0)
    assert thing() == ("a", (), {})


def test_a_plain_instance_takes_no_code():
    thing = Plain("a")
    callables.set_code(thing, Plain, ADDRESS)
    assert callables.address_in(thing, Plain) == 0
    assert thing() == ("a", (), {})


def test_instances_are_collected():
    seen = [weakref.ref(Native(str(k))) for k in range(100)]
    gc.collect()
    assert not any(ref() for ref in seen)


def test_interpreters_without_it(monkeypatch):
    class Other:
        name = "other"

    monkeypatch.setattr(callables.sys, "implementation", Other())
    assert callables.native_class(Plain) is Plain
