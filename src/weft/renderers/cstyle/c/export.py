"""The entry of a shared library: ``void NAME(void **args, unsigned long nargs)``.

`args` holds the address of each buffer in parameter order, then the address of the int64 value of
each variable. One more may follow, the address of a record of 32 bytes (``struct weft_status``):
the first failure of the call is written there, with code 0 for none. Without it a failure is one
line on the standard error. Nothing is touched if the count is another one or a variable is out of
its bounds: code -3.
"""

from __future__ import annotations

from typing import Final

from weft.ir.linear import LinearKernel
from weft.renderers.base import NO_MEMORY
from weft.renderers.cstyle.c.calls import label
from weft.renderers.cstyle.c.text import c_string

__all__ = ["BAD_ARGUMENTS", "declared", "exported"]

BAD_ARGUMENTS: Final = -3  # the code of a call with a wrong count, or a variable out of its bounds
_WORDS: Final = {NO_MEMORY: "no memory for private arrays, in bytes",
                 BAD_ARGUMENTS: "wrong arguments"}  # fmt: skip


def declared(head: str, identifier: str, symbol: str) -> str:
    """Return the head of a function that others see, under its symbol."""
    lines = []
    if identifier != symbol:
        lines.append(f"{head} __asm__({label(symbol)});")
    return "\n".join([*lines, '__attribute__((visibility("default")))', head])


def exported(kernel: LinearKernel, identifier: str, symbol: str, run: str) -> str:
    """Return the entry of a library.

    Parameters
    ----------
    kernel : LinearKernel
        The kernel.
    identifier, symbol : str
        What the function is called in C, and in the library.
    run : str
        The function that it calls: buffers, variables, status.
    """
    buffers, variables = len(kernel.params), len(kernel.variables)
    count = buffers + variables
    lines = [f"  struct weft_status own = {{ 0 }}, *const status = nargs == {count + 1} "
             f"? (struct weft_status *)args[{count}] : &own;",
             "  status->code = 0;", f"  i64 vars[{max(variables, 1)}] = {{ 0 }};",
             f"  if (nargs != {count} && nargs != {count + 1}) {{",
             f"    weft_refuse(status, nargs, {count});"]  # fmt: skip
    for slot, variable in enumerate(kernel.variables):
        limits = variable.attr
        lines += [f"  }} else if ((vars[{slot}] = *(const i64 *)args[{buffers + slot}]) < "
                  f"{_integer(limits.min)} || vars[{slot}] > {_integer(limits.max)}) {{",
                  f"    weft_refuse(status, vars[{slot}], vars[{slot}] < {_integer(limits.min)} "
                  f"? {_integer(limits.min)} : {_integer(limits.max)});"]  # fmt: skip
    args = [f"args[{i}]" for i in range(buffers)] + ["vars", "status"]
    lines += ["  } else {", f"    {run}({', '.join(args)});", "  }",
              "  if (status->code != 0 && status == &own) weft_tell(status);"]  # fmt: skip
    head = f"void {identifier}(void **args, unsigned long nargs)"
    return "\n\n".join((_helpers(kernel, symbol),
                        "\n".join([declared(head, identifier, symbol) + " {", *lines, "}"])))


def _helpers(kernel: LinearKernel, symbol: str) -> str:
    texts = ", ".join([c_string(text) for text, _ in kernel.messages] or ["0"])
    known = "".join(f'\n    : status->code == {code} ? {c_string(words)}'
                    for code, words in _WORDS.items())
    return f"""\
extern int dprintf(int, const char *, ...);

static void weft_refuse(struct weft_status *status, i64 found, i64 bound) {{
  status->code = {BAD_ARGUMENTS};
  status->statement = {BAD_ARGUMENTS - 1};
  status->index = found;
  status->bound = bound;
}}

static void weft_tell(const struct weft_status *status) {{
  static const char *const messages[] = {{ {texts} }};
  const char *text = status->code > 0 && status->code <= {len(kernel.messages)}
    ? messages[status->code - 1]{known} : "stopped";
  dprintf(2, "%s: %s: %lld, bound %lld\\n", {c_string(symbol)}, text, (long long)status->index,
          (long long)status->bound);
}}"""


def _integer(value: int) -> str:
    return f"{value}ll" if value > -(1 << 63) else f"(-{(1 << 63) - 1}ll - 1)"
