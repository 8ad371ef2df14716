"""Kernels in OpenCL C as the runtime takes them, written by hand."""

import json

import numpy as np

from weft.runtimes.base import Image

# One buffer of int64 and one variable; each iteration adds the variable to an element.
ADD = """
__kernel void add(__global uchar *a, long oa, long n, long k, __global int *status,
                  __global uchar *scratch) {
    __global long *x = (__global long *)(a + oa);
    for (long i = get_group_id(0); i < n; i += get_num_groups(0)) x[i] += k;
}
"""
# Fails at the first element that is not below a bound, as far as any thread saw.
CHECK = """
__kernel void check(__global uchar *a, long oa, long n, long bound, __global int *status,
                    __global uchar *scratch) {
    __global long *x = (__global long *)(a + oa);
    for (long i = get_group_id(0); i < n; i += get_num_groups(0))
        if (x[i] >= bound && atomic_cmpxchg((volatile __global int *)status, 0, 3) == 0) {
            ((__global long *)status)[2] = x[i];
            ((__global long *)status)[3] = bound;
        }
}
"""
# Never ends, as far as a test is concerned.
SPIN = """
__kernel void spin(__global uchar *a, long oa, __global int *status, __global uchar *scratch) {
    volatile __global long *x = (volatile __global long *)(a + oa);
    for (long i = 0; i < (1L << 50); ++i) x[0] = x[0] + 1;
}
"""
# Two entries: partial sums into shared scratch memory, through each group's own, and their sum.
SUM = """
__kernel void parts(__global uchar *a, long oa, __global uchar *b, long ob, long n,
                    __global int *status, __global uchar *scratch) {
    __global long *x = (__global long *)(a + oa);
    __global long *own = (__global long *)(scratch + 512 + 8 * get_group_id(0));
    for (long part = get_group_id(0); part < 64; part += get_num_groups(0)) {
        *own = 0;
        for (long i = part; i < n; i += 64) *own += x[i];
        ((__global long *)scratch)[part] = *own;
    }
}
__kernel void whole(__global uchar *a, long oa, __global uchar *b, long ob, long n,
                    __global int *status, __global uchar *scratch) {
    long sum = 0;
    for (int part = 0; part < 64; ++part) sum += ((__global long *)scratch)[part];
    *(__global long *)(b + ob) = sum;
}
"""


def image(text, entries, nbuffers=1, variables=(), **said):
    """Return a kernel as a device loads it; entries are pairs of name and groups."""
    header = {"entries": [{"name": n, "groups": g} for n, g in entries], "shared": 0, "own": 0,
              "fails": False, "options": [], **said}  # fmt: skip
    return Image(entries[0][0], f"// weft {json.dumps(header)}\n{text}".encode(), variables,
                 nbuffers)  # fmt: skip


def add(groups=0):
    return image(ADD, [("add", groups)], 1, ("n", "k"))


def check():
    return image(CHECK, [("check", 0)], 1, ("n", "bound"), fails=True)


def spin():
    return image(SPIN, [("spin", 1)])


def total():
    return image(SUM, [("parts", 64), ("whole", 1)], 2, ("n",), shared=512, own=8)


def put(device, array):
    """Return a buffer with the bytes of an array."""
    buffer = device.pool.allocate(array.nbytes)
    device.pool.host_to_pool(np.ascontiguousarray(array).view(np.uint8), buffer)
    return buffer


def get(device, buffer, dtype=np.int64):
    """Return what is in a buffer."""
    out = np.empty(buffer.nbytes // np.dtype(dtype).itemsize, dtype)
    device.pool.pool_to_host(buffer, out.view(np.uint8))
    return out
