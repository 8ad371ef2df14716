"""What machine code can reach: every instruction of an object file, its calls and system calls.

The object is what will run, byte for byte. Its executable sections are read from their first byte
to their last; whatever cannot be read is an error and not a guess. A direct branch must land where
an instruction begins, and jumps whose target is computed do not pass, so that no byte is executed
but those that were read.

Instruction formats: Intel SDM volume 2, chapter 2 and appendix A; Arm ARM, section C4.1.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from weft.errors import UnsupportedError

__all__ = ["Call", "Instruction", "Reach", "decode_x86", "reach"]

_X86, _ARM = 62, 183  # e_machine
_SYMTAB, _RELA = 2, 4  # sh_type
_EXECUTABLE: Final = 4  # sh_flags
_FUNCTION, _SECTION = 2, 3  # types of symbols


class Instruction(NamedTuple):
    """One instruction.

    Attributes
    ----------
    start, end : int
        First byte, and the one behind it.
    kind : str
        ``plain``, ``system`` (enters the operating system), ``call``, ``jump``, or ``computed``
        (a call or jump whose target is in a register or in memory).
    field : int
        Where the displacement of a call, a jump or a memory operand stands, or -1.
    target : int
        Where a direct branch goes if nothing is relocated, or -1.
    """

    start: int
    end: int
    kind: str = "plain"
    field: int = -1
    target: int = -1


class Call(NamedTuple):
    """A way out of a function: where in it, and what it calls; "" for a computed target."""

    offset: int
    callee: str


class Reach(NamedTuple):
    """What the functions of an object do beside computing.

    Attributes
    ----------
    calls : dict of str to list of Call
        Of each function.
    system : dict of str to list of int
        Offsets of instructions that enter the operating system, of each function that has some.
    sizes : dict of str to int
        Bytes of each function.
    """

    calls: dict[str, list[Call]]
    system: dict[str, list[int]]
    sizes: dict[str, int]

    def chains(self, entry: str) -> dict[str, tuple[str, ...]]:
        """Return every symbol that `entry` reaches, with the calls that lead there."""
        found: dict[str, tuple[str, ...]] = {entry: (entry,)}
        stack = [entry]
        while stack:
            name = stack.pop()
            for call in self.calls.get(name, ()):
                if call.callee not in found:
                    found[call.callee] = (*found[name], call.callee)
                    stack.append(call.callee)
        return found


# --- x86-64

def _spread(text: str) -> frozenset[int]:
    """Return the numbers of ``00-03 08``, hexadecimal."""
    found: set[int] = set()
    for word in text.split():
        first, _, last = word.partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    return frozenset(found)


_PREFIXES: Final = _spread("26 2E 36 3E 64-67 F0 F2 F3")
_MODRM: Final = _spread("00-03 08-0B 10-13 18-1B 20-23 28-2B 30-33 38-3B 63 69 6B 80 81 83-8F C0 "
                        "C1 C6 C7 D0-D3 D8-DF F6 F7 FE FF")
_IMM8: Final = _spread("04 0C 14 1C 24 2C 34 3C 6A 6B 70-7F 80 83 A8 B0-B7 C0 C1 C6 CD E0-E7 EB")
_IMM32: Final = _spread("05 0D 15 1D 25 2D 35 3D 68 69 81 A9 B8-BF C7")
_INVALID: Final = _spread("06 07 0E 16 17 1E 1F 27 2F 37 3F 60 61 82 9A CE D4-D6 EA")
_TWO_BARE: Final = _spread("05-09 0B 0E 30-37 77 80-8F A0-A2 A8-AA C8-CF")
_TWO_IMM8: Final = _spread("0F 70-73 A4 AC BA C2 C4-C6")
_TWO_INVALID: Final = _spread("04 0A 0C 24-27 36 39 3B-3F 78 7A 7B A6 A7")
_VECTOR_IMM8: Final = _spread("70-73 C2 C4-C6")


class _Reader:
    """Reads one instruction."""

    def __init__(self, code: bytes, start: int) -> None:
        self.code, self.start, self.at = code, start, start
        self.field = -1
        self.reg = 0

    def byte(self) -> int:
        if self.at >= len(self.code):
            raise self.unknown()
        self.at += 1
        return self.code[self.at - 1]

    def unknown(self) -> UnsupportedError:
        found = self.code[self.start : self.start + 8].hex(" ")
        return UnsupportedError("proof of machine code", found=f"bytes {found} at {self.start:#x}",
                                expected="an instruction of x86-64")

    def modrm(self) -> None:
        """Read an operand: ModR/M, SIB and displacement."""
        value = self.byte()
        mod, self.reg, rm = value >> 6, value >> 3 & 7, value & 7
        if mod == 3:
            return
        base = self.byte() & 7 if rm == 4 else rm
        if mod == 1:
            self.at += 1
        elif mod == 2 or base == 5:
            self.field = self.at
            self.at += 4

    def done(self, kind: str = "plain") -> Instruction:
        if self.at > len(self.code):
            raise self.unknown()
        return Instruction(self.start, self.at, kind, self.field)

    def branch(self, kind: str, size: int) -> Instruction:
        self.field = self.at
        step = int.from_bytes(self.code[self.at : self.at + size], "little", signed=True)
        self.at += size
        return self.done(kind)._replace(target=self.at + step)

    def one(self) -> Instruction:
        narrow = rex = short = False
        op = self.byte()
        while op in _PREFIXES:
            narrow, short = narrow or op == 0x66, short or op == 0x67
            op = self.byte()
        if op & 0xF0 == 0x40:
            rex = bool(op & 8)
            op = self.byte()
        if op in (0xC4, 0xC5, 0x62):
            return self.vector(op)
        if op == 0x0F:
            return self.two()
        if op in _INVALID:
            raise self.unknown()
        if op in (0xE8, 0xE9):
            return self.branch("call" if op == 0xE8 else "jump", 4)
        if 0x70 <= op <= 0x7F or op in (0xEB, 0xE0, 0xE1, 0xE2, 0xE3):
            return self.branch("jump", 1)
        if op in _MODRM:
            self.modrm()
        if op in (0x8F,) and self.reg:  # XOP
            raise self.unknown()
        if op in _IMM8 or (op == 0xF6 and self.reg < 2):
            self.at += 1
        elif op in _IMM32 or (op == 0xF7 and self.reg < 2):
            self.at += 8 if rex and 0xB8 <= op <= 0xBF else 2 if narrow and not rex else 4
        elif op == 0xC2:
            self.at += 2
        elif op == 0xC8:
            self.at += 3
        elif 0xA0 <= op <= 0xA3:
            self.at += 4 if short else 8
        if op == 0xFF and self.reg in (2, 3, 4, 5):
            return self.done("computed")
        return self.done("system" if op in (0xCD, 0xF1) else "plain")

    def two(self) -> Instruction:
        op = self.byte()
        if op in (0x38, 0x3A):
            self.byte()
            self.modrm()
            self.at += op == 0x3A
            return self.done()
        if op in _TWO_INVALID:
            raise self.unknown()
        if 0x80 <= op <= 0x8F:
            return self.branch("jump", 4)
        if op not in _TWO_BARE:
            self.modrm()
        if op in _TWO_IMM8:
            self.at += 1
        return self.done("system" if op in (0x05, 0x07, 0x34, 0x35) else "plain")

    def vector(self, first: int) -> Instruction:
        """Read what begins with a VEX or EVEX prefix."""
        page = 1
        if first != 0xC5:
            page = self.byte() & (0x1F if first == 0xC4 else 7)
        self.at += 2 if first == 0x62 else 1
        op = self.byte()
        if page not in (1, 2, 3, 5, 6):
            raise self.unknown()
        if not (page == 1 and op == 0x77 and first != 0x62):
            self.modrm()
        if page == 3 or (page == 1 and op in _VECTOR_IMM8):
            self.at += 1
        return self.done()


def decode_x86(code: bytes) -> list[Instruction]:
    """Return the instructions of x86-64 machine code, in order and without gaps.

    Raises
    ------
    UnsupportedError
        Where something is no instruction that this module knows.
    """
    found, at = [], 0
    while at < len(code):
        found.append(_Reader(code, at).one())
        at = found[-1].end
    return found


# --- AArch64

def _decode_arm(code: bytes) -> list[Instruction]:
    found = []
    for at in range(0, len(code), 4):
        word = int.from_bytes(code[at : at + 4], "little")
        kind, target = "plain", -1
        if word >> 24 == 0xD4 and word & 0x1F in (1, 2, 3):  # svc, hvc, smc
            kind = "system"
        elif word >> 26 in (0x05, 0x25):  # b, bl
            kind = "call" if word >> 31 else "jump"
            target = at + _signed(word, 0, 26)
        elif word >> 24 == 0x54 or word >> 25 & 0x3F == 0x1A:  # b.cond, cbz, cbnz
            kind, target = "jump", at + _signed(word, 5, 19)
        elif word >> 25 & 0x3F == 0x1B:  # tbz, tbnz
            kind, target = "jump", at + _signed(word, 5, 14)
        elif word >> 25 == 0x6B and word >> 21 & 0xF in (0, 1, 8, 9):  # br, blr and their kin
            kind = "computed"
        found.append(Instruction(at, at + 4, kind, at, target))
    return found


def _signed(word: int, low: int, bits: int) -> int:
    value = word >> low & ((1 << bits) - 1)
    return (value - (1 << bits) if value >> (bits - 1) else value) * 4


# --- objects

class _Symbol(NamedTuple):
    name: str
    kind: int
    section: int
    value: int
    size: int


def _tables(image: bytes) -> tuple[int, list[tuple[int, ...]], list[_Symbol]]:
    """Return machine, section headers and symbols of an ELF object."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise UnsupportedError("proof of machine code", found="an object that is not ELF",
                               expected="ELF of 64 bits, as on Linux",
                               hint="no_allocation, no_syscalls and inline_always set to False ask "
                               "for no proof")
    machine = struct.unpack_from("<H", image, 18)[0]
    offset = struct.unpack_from("<Q", image, 40)[0]
    size, count = struct.unpack_from("<HH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, offset + k * size) for k in range(count)]
    symbols: list[_Symbol] = []
    for header in headers:
        if header[1] != _SYMTAB:
            continue
        names = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, info, _, section, value, length = struct.unpack_from("<IBBHQQ", image, at)
            end = image.index(b"\0", names + name)
            symbols.append(_Symbol(image[names + name : end].decode(), info & 15, section, value,
                                   length))
    return machine, headers, symbols


def reach(image: bytes) -> Reach:
    """Return what the functions of an object file call.

    Parameters
    ----------
    image
        An ELF object for x86-64 or AArch64.

    Raises
    ------
    UnsupportedError
        If the object, or a byte of its code, is none that can be read.
    """
    machine, headers, symbols = _tables(image)
    if machine not in (_X86, _ARM):
        raise UnsupportedError("proof of machine code", found=f"ELF machine {machine}",
                               expected="x86-64 or AArch64")
    found = Reach({}, {}, {})
    for number, header in enumerate(headers):
        if not header[2] & _EXECUTABLE or not header[5]:
            continue
        code = image[header[4] : header[4] + header[5]]
        relocated: dict[int, tuple[_Symbol, int]] = {}
        for other in headers:
            if other[1] == _RELA and other[7] == number:
                for at in range(other[4], other[4] + other[5], 24):
                    place, info, addend = struct.unpack_from("<QQq", image, at)
                    relocated[place] = symbols[info >> 32], addend
        _section(found, decode_x86(code) if machine == _X86 else _decode_arm(code), number,
                 symbols, relocated)
    return found


def _section(found: Reach, code: list[Instruction], number: int, symbols: list[_Symbol],
             relocated: dict[int, tuple[_Symbol, int]]) -> None:  # fmt: skip
    """Add what the functions of one section do."""
    functions = sorted((s for s in symbols if s.kind == _FUNCTION and s.section == number),
                       key=lambda s: s.value)
    starts = {i.start for i in code}
    for function in functions:
        found.calls.setdefault(function.name, [])
        found.sizes[function.name] = function.size
    for i in code:
        owner = next((f for f in functions if f.value <= i.start < f.value + f.size), None)
        if owner is None:
            continue  # padding, which no branch of a function reaches: see below
        calls = found.calls[owner.name]
        other, addend = relocated.get(i.field, (None, 0))
        if i.kind == "system":
            found.system.setdefault(owner.name, []).append(i.start)
        elif i.kind == "computed":
            # Through a slot of the linker's table, the target is as good as written out.
            calls.append(Call(i.start, "" if other is None else _name(symbols, other, addend)))
        elif i.kind in ("call", "jump"):
            if other is not None:
                calls.append(Call(i.start, _name(symbols, other, addend)))
                continue
            aim = next((f for f in functions if f.value <= i.target < f.value + f.size), None)
            if aim is None or i.target not in starts:
                raise UnsupportedError("proof of machine code", found=f"a branch to {i.target:#x}",
                                       expected="the start of an instruction of a function")
            if aim is not owner or i.kind == "call":
                calls.append(Call(i.start, aim.name))


def _name(symbols: list[_Symbol], symbol: _Symbol, addend: int) -> str:
    """Return the function that a relocation means: a symbol, or a place in a section."""
    if symbol.kind != _SECTION:
        return symbol.name
    at = addend + 4
    return next((s.name for s in symbols if s.kind == _FUNCTION and s.section == symbol.section
                 and s.value == at), "")
