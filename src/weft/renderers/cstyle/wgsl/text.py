"""Fixed text of kernels in WGSL: words of the language, and what reports failures and prints."""

from __future__ import annotations

from typing import Final

__all__ = ["FAIL", "HEAD_WORDS", "PRINTED", "RECORD_WORDS", "RESERVED"]

PRINTED: Final = 1 << 16  # words of 64 bits that a launch can print
RECORD_WORDS: Final = 8  # of 32 bits: code, kernel, statement, pad, index and bound of 64 bits
HEAD_WORDS: Final = 2  # before what is printed: how many words of 64 bits there are

# What writes the failure of a kernel: only the first one, whoever comes first.
FAIL: Final = """\
fn weft_fail(code: u32, statement: u32, index: vec2<u32>, bound: vec2<u32>) {
  if (weft_cas_status(0u, 0u, code) == 0u) {
    weft_store_status(2u, statement);
    weft_store_status(4u, index.x);
    weft_store_status(5u, index.y);
    weft_store_status(6u, bound.x);
    weft_store_status(7u, bound.y);
  }
}"""

_WORDS: Final = """
alias break case const const_assert continue continuing default diagnostic discard else enable false
fn for if let loop override requires return struct switch true var while
NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become
cast catch class co_await co_return co_yield coherent column_major common compile compile_fragment
concept const_cast consteval constexpr constinit crate debugger decltype delete demote
demote_to_helper do dynamic_cast enum explicit export extends extern external fallthrough filter
final finally friend from fxgroup get goto groupshared highp impl implements import inline
instanceof interface layout lowp macro macro_rules match mediump meta mod module move mut mutable
namespace new nil noexcept noinline nointerpolation non_coherent noncoherent noperspective null
nullptr of operator package packoffset partial pass patch pixelfragment precise precision premerge
priv protected pub public readonly ref regardless register reinterpret_cast require resource
restrict self set shared sizeof smooth snorm static static_assert static_cast std subroutine super
target template this thread_local throw trait try type typedef typeid typename typeof union unless
unorm unsafe unsized use using varying virtual volatile wgsl where with writeonly yield
array atomic bool f16 f32 i32 u32 mat2x2 ptr sampler vec2 vec3 vec4 vec2u vec2i vec2f vec3u vec4u
abs acos all any ceil clamp cos exp exp2 floor fma fract log log2 max min mix modf pow round select
sign sin sqrt step tan trunc bitcast countOneBits countLeadingZeros arrayLength atomicAdd
storageBarrier workgroupBarrier workgroupUniformLoad function private workgroup uniform storage
read write read_write weft i u x y z w local_id group_id num_groups value found raw next word
"""

RESERVED: Final = frozenset(_WORDS.split())
