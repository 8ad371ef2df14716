"""How long large kernels take to compile: processor seconds in Python and in LLVM, beside numba.

    python bench/large_kernels.py [--only product] [--numba PYTHON] [--double]

`--numba` names a Python that has numba, which compiles the same functions for the processor
(`numba.njit`, with their types given). `--double` adds each program at twice its size, which should
take twice as long. Times are those of the processor: other work on the machine does not count.
"""

import argparse
import os
import subprocess
import tempfile
import time

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--only", default="")
parser.add_argument("--numba", default="")
parser.add_argument("--double", action="store_true")
parser.add_argument("--peer", action="store_true", help="compile with numba in this process")
args = parser.parse_args()

HEAD = ["def kernel(a, b, out):", "    i = cuda.grid(1)", "    if i < out.shape[0]:"]
DEVICE = "@cuda.jit(device=True)"


def _factors(left, right, k, count=32):
    """Return one component of a product of two multivectors."""
    return " + ".join(f"{left}{j}] * {right}{j ^ k}]" for j in range(count))


def product(count):
    """Products of 32 components, written out: one long line for each."""
    body = [f"        out[i, {32 * n + k}] = {_factors('a[i, ', 'b[i, ', k)}"
            for n in range(count) for k in range(32)]
    return [*HEAD, *body]


def rotors(count):
    """Products in a chain through local arrays, each a call of one function."""
    made = [f"    to[{k}] = {_factors('left[', 'right[', k)}" for k in range(32)]
    lines = [DEVICE, "def product(left, right, to):", *made, *HEAD,
             "        product(a[i, :], b[i, :], out[i, :])"]
    for k in range(count - 1):
        lines += [f"        t{k} = np.empty(32)" if args.peer else
                  f"        t{k} = cuda.local.array(32, 'float64')",
                  f"        product(out[i, :], {'ab'[k % 2]}[i, :], t{k})",
                  "        for j in range(32):", f"            out[i, j] = t{k}[j]"]
    return lines


def locals_(count):
    """Many names, each made of two before it."""
    body = [f"        x{k} = x{k - 2} * {k}.5 {'+-'[k % 2]} x{max(0, k - 7)} + a[i, {k % 9}]"
            for k in range(2, count)]
    return [*HEAD, "        x0 = a[i, 0]", "        x1 = b[i, 1]", *body,
            f"        out[i, 0] = x{count - 1}"]


def branches(count):
    """Branches one behind the other."""
    body = [f"        {line}" for k in range(count) for line in (
        f"if x > {k}.25:", f"    y = y * 0.75 + a[i, {k % 9}]", "else:", f"    x += y * {k}.125")]
    return [*HEAD, "        x = a[i, 0]", "        y = b[i, 0]", *body, "        out[i, 0] = x + y"]


def lenses(count):
    """Rays through lenses: functions that return early, four inside each other, in loops."""
    lines = [DEVICE, "def refract(x, y, c):", "    r = x * x + y * y", "    if r * c * c > 1.0:",
             "        return 0.0, 0.0, False", "    s = c * r / (1.0 + (1.0 - c * c * r) ** 0.5)",
             "    return x - s * 0.1, y - s * 0.2, True", DEVICE, "def lens(x, y, p, k):"]
    for j in range(5):
        lines += [f"    x, y, ok = refract(x, y, p[k] * {j}.5)", "    if not ok:",
                  "        return 0.0, 0.0, False"]
    lines += ["    return x, y, True", DEVICE, "def trace(x, y, p):", "    for k in range(6):",
              "        x, y, ok = lens(x, y, p, k)", "        if not ok:", "            return 1e3",
              "    return x * x + y * y", DEVICE, "def merit(p):", "    s = 0.0",
              *(f"    s += trace({k}.25, {k}.5, p)" for k in range(count)), "    return s"]
    return [*lines, *HEAD, "        best = 0", "        for turn in range(20):",
            "            m = merit(b[turn])", "            if m > best:",
            "                best = m", "        out[i, 0] = best"]


def nest(count):
    """Loops in loops around many loads."""
    loads = " + ".join(f"a[i + {k % 7}, k + {k % 5}] * b[j + {k % 3}, k + {k % 9}]"
                       for k in range(count))
    return [*HEAD, "        for j in range(40):", "            s = 0.0",
            "            for k in range(40):", f"                s += {loads}",
            "            out[i, j] = s"]


PROGRAMS = {"product": (product, 1), "rotors": (rotors, 2), "locals": (locals_, 400),
            "branches": (branches, 100), "lenses": (lenses, 8), "nest": (nest, 40)}


def weft_seconds(text, arrays):
    """Return the processor's seconds of a first launch, and those of them in LLVM."""
    from weft.compat import cuda
    from weft.compilers.llvm_library import DirectLibrary

    call, spent = DirectLibrary._call, [0.0]

    def timed(*given, **named):
        start = time.thread_time()
        try:
            return call(*given, **named)
        finally:
            spent[0] += time.thread_time() - start

    DirectLibrary._call = timed
    try:
        space = {"cuda": cuda, "np": np}
        exec(text, space)
        start = time.process_time()
        cuda.jit(space["kernel"])[1, 32](*arrays)
        return time.process_time() - start, spent[0]
    finally:
        DirectLibrary._call = call


def numba_seconds(text, arrays):
    """Return the processor's seconds that numba takes for the same function."""
    import numba

    class cuda:
        @staticmethod
        def jit(device):
            return numba.njit

    text = text.replace("kernel(a, b, out)", "kernel(a, b, out, i)").replace(
        "    i = cuda.grid(1)\n", "")
    space = {"cuda": cuda, "np": np}
    exec(text, space)
    types = [numba.typeof(x) for x in arrays]
    start = time.process_time()
    numba.njit(numba.void(*types, numba.int64))(space["kernel"])
    return time.process_time() - start, 0.0


def main():
    """Print a row for each program and size."""
    measure = numba_seconds if args.peer else weft_seconds
    for name, (made, size) in PROGRAMS.items():
        if args.only not in name:
            continue
        for n in (size, 2 * size) if args.double else (size,):
            text = "\n".join([*made(n), ""])
            arrays = [np.ones((48, 64 * n if made is product else 64)) for _ in range(3)]
            measure("\n".join([*locals_(3), ""]), arrays)  # what the first kernel of all costs
            total, llvm = measure(text, arrays)
            if args.peer:
                print(f"{name} {n} {total:.3f}", flush=True)
                continue
            other = ""
            if args.numba:
                command = [args.numba, __file__, "--peer", "--only", name,
                           *(["--double"] if args.double else [])]
                found = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds = next(float(row.split()[2]) for row in found.stdout.splitlines()
                               if row.startswith(f"{name} {n} "))
                other = f"  numba {seconds:6.2f} s  {seconds / total:6.1f} times Weft's"
            print(f"{name:9s} {n:5d}  {len(text):7d} characters  {total:6.2f} s, LLVM {llvm:5.2f}, "
                  f"Python {total - llvm:5.2f}{other}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # so that nothing compiled before is found
        main()
