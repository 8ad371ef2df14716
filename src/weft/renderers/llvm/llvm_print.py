"""Printing of the LLVM renderer: `weft.ir.text.print_format`, natively.

A line is one call of printf, so that lines of different threads do not mix. Floats become text
before it: with more and more digits, until reading them gives the number again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.errors import UnsupportedError
from weft.ir.dtype import float32
from weft.ir.linear import PrintInst, Value
from weft.renderers.llvm.llvm_convert import cast
from weft.renderers.llvm.llvm_types import element

if TYPE_CHECKING:
    from weft.renderers.llvm.llvm_types import FunctionWriter

__all__ = ["NUMBER", "line"]

_BYTES: Final = 64  # of the text of a float: at most 17 digits, and 16 before a point
_DECLARED: Final = (
    "declare i32 @snprintf(ptr, i64, ptr, ...)", "declare double @strtod(ptr, ptr)",
    "declare float @strtof(ptr, ptr)", "declare i64 @strtol(ptr, ptr, i32)",
    "declare ptr @strchr(ptr, i32)",
)  # fmt: skip

NUMBER: Final = """\
@weft.form.e = private unnamed_addr constant [5 x i8] c"%.*e\\00"
@weft.form.f = private unnamed_addr constant [5 x i8] c"%.*f\\00"
@weft.text.nan = private unnamed_addr constant [4 x i8] c"nan\\00"
@weft.text.inf = private unnamed_addr constant [4 x i8] c"inf\\00"
@weft.text.minus = private unnamed_addr constant [5 x i8] c"-inf\\00"
@weft.text.True = private unnamed_addr constant [5 x i8] c"True\\00"
@weft.text.False = private unnamed_addr constant [6 x i8] c"False\\00"

define internal ptr @weft.number(double %x, i1 %single, ptr %buffer) #2 {
entry:
  %not.number = fcmp uno double %x, %x
  %plus = fcmp oeq double %x, 0x7FF0000000000000
  %minus = fcmp oeq double %x, 0xFFF0000000000000
  %infinite = or i1 %plus, %minus
  %special = or i1 %not.number, %infinite
  br i1 %special, label %named, label %longer
named:
  %signed = select i1 %minus, ptr @weft.text.minus, ptr @weft.text.inf
  %name = select i1 %not.number, ptr @weft.text.nan, ptr %signed
  ret ptr %name
longer:
  %digits = phi i32 [ 0, %entry ], [ %more, %again ]
  call i32 (ptr, i64, ptr, ...) @snprintf(ptr %buffer, i64 64, ptr @weft.form.e, i32 %digits,
                                          double %x)
  br i1 %single, label %as.single, label %as.double
as.single:
  %read.single = call float @strtof(ptr %buffer, ptr null)
  %wide = fpext float %read.single to double
  br label %compare
as.double:
  %read.double = call double @strtod(ptr %buffer, ptr null)
  br label %compare
compare:
  %read = phi double [ %wide, %as.single ], [ %read.double, %as.double ]
  %same = fcmp oeq double %read, %x
  %last = icmp sge i32 %digits, 16
  %enough = or i1 %same, %last
  br i1 %enough, label %form, label %again
again:
  %more = add i32 %digits, 1
  br label %longer
form:
  %mark = call ptr @strchr(ptr %buffer, i32 101)
  %behind = getelementptr i8, ptr %mark, i64 1
  %wide.exponent = call i64 @strtol(ptr %behind, ptr null, i32 10)
  %exponent = trunc i64 %wide.exponent to i32
  %from = icmp sge i32 %exponent, -4
  %below = icmp slt i32 %exponent, 16
  %fixed = and i1 %from, %below
  br i1 %fixed, label %point, label %done
point:
  %rest = sub i32 %digits, %exponent
  %some = icmp sgt i32 %rest, 1
  %places = select i1 %some, i32 %rest, i32 1
  call i32 (ptr, i64, ptr, ...) @snprintf(ptr %buffer, i64 64, ptr @weft.form.f, i32 %places,
                                          double %x)
  br label %done
done:
  ret ptr %buffer
}"""


def line(w: FunctionWriter, inst: PrintInst) -> None:
    """Print a line by one call of printf."""
    forms, args = [], []
    for a in inst.args:
        form, kind, reference = _printable(w, a)
        forms.append(form)
        args.append(f"{kind} {reference}")
    text = inst.text.replace("%", "%%")
    text = text.format(*forms) if text.endswith("\n") else " ".join([text, *forms]) + "\n"
    data = text.encode() + b"\0"
    escaped = "".join(
        chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data
    )
    name = f"@weft.text{len(w.module.constants)}"
    w.module.constants.append(
        f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{escaped}"'
    )
    w.module.declare("declare i32 @printf(ptr, ...)")
    listed = ", ".join([f"ptr {name}", *args])
    # What LLVM knows of printf would make puts of some lines, and nobody expects that name.
    w.new(f"call i32 (ptr, ...) @printf({listed}) nobuiltin")


def _printable(w: FunctionWriter, value: Value) -> tuple[str, str, str]:
    """Return printf's conversion, the LLVM type and the operand text of a scalar."""
    if value.lanes > 1:
        raise UnsupportedError("print", found=f"a vector of {value.lanes} lanes",
                               expected="a scalar")
    d, kind = value.dtype, element(value.dtype)
    if d.kind in "bf":
        w.module.prints = True
        for declaration in _DECLARED:
            w.module.declare(declaration)
    if d.kind == "b":
        text = f"select i1 {w.ref(value)}, ptr @weft.text.True, ptr @weft.text.False"
        return "%s", "ptr", w.new(text)
    if d.kind == "f":
        text = cast(w, value, float32) if d.bits < 32 else w.ref(value)
        if d.bits < 64:
            text = w.new(f"fpext float {text} to double")
        single = "true" if d.bits < 64 else "false"
        buffer = w.private(_BYTES)
        return "%s", "ptr", w.new(
            f"call ptr @weft.number(double {text}, i1 {single}, ptr {buffer})")
    if d.bits == 64:
        return ("%lld" if d.kind == "i" else "%llu"), "i64", w.ref(value)
    wide = w.new(f"{'sext' if d.kind == 'i' else 'zext'} {kind} {w.ref(value)} to i64")
    return "%lld", "i64", wide
