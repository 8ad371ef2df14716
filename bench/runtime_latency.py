"""What the CPU runtime costs when the kernels cost nothing.

Prints the time of a parallel region (hot, and after 10 ms of idleness), of a call of a native
plan of three kernels, of an allocation from the pool, and of a hit in the disk cache::

    python bench/runtime_latency.py [threads]
"""

import ctypes
import gc
import statistics
import sys
import tempfile
import time

from weft.compilers import llvm
from weft.runtimes.cpu.runtime import CpuRuntime
from weft.runtimes.native.executor.native import BufferRef, KernelStep
from weft.store import DiskCache, fingerprint

KERNELS = """
declare void @weft_parallel_for(ptr, ptr, i64)
define void @body(ptr %env, i64 %begin, i64 %end) { ret void }
define void @regions(i64 %count, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  call void @weft_parallel_for(ptr @body, ptr null, i64 %n)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
define i32 @tiny(ptr %buffers, ptr %vars, ptr %status) { ret i32 0 }
"""


def best(measure, repeats=7):
    return min(measure() for _ in range(repeats))


def timed(action, count):
    start = time.perf_counter()
    action(count)
    return (time.perf_counter() - start) / count


def report(what, seconds, note=""):
    value, unit = (seconds * 1e9, "ns") if seconds < 1e-6 else (seconds * 1e6, "us")
    print(f"{what:44s} {value:9.1f} {unit}  {note}")


def regions(runtime, library):
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(library["regions"])
    threads = runtime.threads.threads
    call(1000, threads)
    report(
        f"parallel region, {threads} threads, hot",
        best(lambda: timed(lambda count: call(count, threads), 100_000)),
    )
    idle = []
    for _ in range(100):
        time.sleep(0.01)
        idle.append(timed(lambda count: call(count, threads), 1))
    report(
        f"parallel region, {threads} threads, 10 ms idle",
        statistics.median(idle),
        f"worst {max(idle) * 1e6:.0f} us",
    )


def plans(runtime, library):
    step = KernelStep(
        library["tiny"], [BufferRef.input(0), BufferRef.input(1), BufferRef.output(0)]
    )
    address = runtime.pool.allocate(64).address
    for release_gil in (False, True):
        call = runtime.plan([step] * 3, 2, 1, release_gil=release_gil).call

        def many(count, call=call):
            for _ in range(count):
                call(address, address, address, 0)

        note = "GIL released" if release_gil else ""
        report("native plan of 3 kernels", best(lambda many=many: timed(many, 200_000)), note)


def allocations(runtime):
    allocate = runtime.pool.allocate
    gc.disable()

    def reused(count):
        for _ in range(count):
            allocate(4000)

    def kept(count, keep=[]):  # noqa: B006 - reused so that its growth is not measured
        keep.clear()
        append = keep.append
        for _ in range(count):
            append(allocate(4000))

    kept(20_000)
    report("pool, allocate and free", best(lambda: timed(reused, 200_000)))
    report("pool, allocate", best(lambda: timed(kept, 20_000)))
    gc.enable()


def disk():
    with tempfile.TemporaryDirectory() as folder:
        store, key = DiskCache(folder), fingerprint("bench")
        store.put("kernel", key, bytes(20_000))

        def hits(count):
            for _ in range(count):
                store.get("kernel", key)

        report("disk cache, hit of 20 kB", best(lambda: timed(hits, 1000)))


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else None
    runtime = CpuRuntime(llvm.compiler(), llvm.session(), thread_count=threads)
    library = runtime.link(llvm.compiler().compile(KERNELS), ["regions", "tiny"])
    regions(runtime, library)
    plans(runtime, library)
    allocations(runtime)
    disk()


if __name__ == "__main__":
    main()
