"""Kernels in WGSL as the runtime takes them, written by hand."""

import json

from driver_images import get, put
from weft.runtimes.base import Image

__all__ = ["add", "get", "image", "put"]

# Adds a variable to elements of int32, of an array after another one.
ADD = """
@compute @workgroup_size(64)
fn add(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
  for (var i = id.x; i < weft.n.x; i += n.x * 64u) {
    weft_store_b(weft.b_at + i, weft_load_a(weft.a_at + i) + weft.k.x);
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
