"""Kernels in OpenCL C as the runtime takes them, written by hand."""

import json

from driver_images import get, put
from weft.runtimes.base import Image

__all__ = ["ADD", "add", "get", "image", "put"]

# One buffer of int64 and one variable; each iteration adds the variable to an element.
ADD = """
__kernel void add(__global uchar *a, long oa, long n, long k, __global int *status,
                  __global uchar *scratch) {
    __global long *x = (__global long *)(a + oa);
    for (long i = get_group_id(0); i < n; i += get_num_groups(0)) x[i] += k;
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
