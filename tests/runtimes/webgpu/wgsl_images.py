"""Kernels in WGSL as the runtime takes them, written by hand."""

import json

import numpy as np

from weft.runtimes.base import Image

# Adds a variable to elements of int32, of an array after another one.
ADD = """
@compute @workgroup_size(64)
fn add(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  for (var i = id.x; i < weft.n.x; i += n.x * 64u) {
    weft_store_b(weft.b_at + i, weft_load_a(weft.a_at + i) + weft.k.x);
  }
}
"""
# Fails at the first element that is not below a bound, as far as any work-item saw.
CHECK = """
@compute @workgroup_size(64)
fn check(@builtin(local_invocation_index) id: u32) {
  let x = weft_load_a(weft.a_at + id);
  if ((x >= 40u) && (weft_cas_status(0u, 0u, 3u) == 0u)) {
    weft_store_status(4u, x);
    weft_store_status(6u, 40u);
  }
}
"""


def image(text, names, nbuffers, variables=(), uses=("load", "store"), **said):
    """Return a kernel as a device loads it, with arrays a, b... of words."""
    head = {"entries": [{"name": n, "groups": 0, "items": 64} for n in names], "shared": 0,
            "own": 0, "fails": False, "status": [], "scratch": [], "workgroup": [],
            "variables": list(variables), "fused": False,
            "memories": [{"name": "abcdefghij"[k], "bytes": 4, "uses": list(uses), "count": 0}
                         for k in range(nbuffers)], **said}  # fmt: skip
    return Image(names[0], f"// weft {json.dumps(head)}\n{text}".encode(), variables, nbuffers)


def add():
    return image(ADD, ["add"], 2, ("k", "n"))


def check():
    return image(CHECK, ["check"], 1, uses=("load",), fails=True, status=["cas", "store"])


def put(device, array):
    """Return an array in memory of a device."""
    held = device.pool.allocate(array.nbytes)
    device.pool.host_to_pool(array.view(np.uint8), held)
    return held


def get(device, held, dtype=np.int32):
    """Return memory of a device as an array."""
    out = np.zeros(held.nbytes, np.uint8)
    device.pool.pool_to_host(held, out)
    return out.view(dtype)
