"""The queue of WebGPU devices: parts of words, launches on arrays that share buffers."""

import numpy as np
import pytest
import wgsl_images as images

from weft.errors import AllocationError, CompileError, LaunchError
from weft.runtimes.base import View


def test_the_last_bytes_of_a_buffer_are_written_one_by_one(device):
    sent = np.full(64, 9, np.uint8)
    held, other = images.put(device, sent), images.put(device, sent)
    device.pool.host_to_pool(b"\1\1", View(held, 60))
    np.testing.assert_array_equal(images.get(device, held, np.uint8)[58:], [9, 9, 1, 1, 9, 9])
    device.queue.fill(View(held, 60), 1, 0)
    np.testing.assert_array_equal(images.get(device, held, np.uint8)[58:], [9, 9, 0, 1, 9, 9])
    device.queue.copy(View(other, 60), View(held, 60), 2)
    np.testing.assert_array_equal(images.get(device, other, np.uint8)[58:], [9, 9, 0, 1, 9, 9])


def test_arrays_share_bindings_or_do_not(device):
    """In two buffers, in one, on top of each other, at places that no binding may begin at."""
    program = device.load(images.add())
    numbers = np.arange(500, dtype=np.int32)
    for first, second in ((0, 0), (4, 300), (260, 1028), (1300, 8)):
        held, other = images.put(device, numbers), images.put(device, numbers)
        device.queue.launch(program, [View(held, first), View(other, second)], [7, 50])
        want = numbers.copy()
        want[second // 4 : second // 4 + 50] = numbers[first // 4 : first // 4 + 50] + 7
        np.testing.assert_array_equal(images.get(device, other), want)
        device.queue.launch(program, [View(held, first), View(held, first)], [1, 50])
        numbers_now = numbers.copy()
        numbers_now[first // 4 : first // 4 + 50] += 1
        np.testing.assert_array_equal(images.get(device, held), numbers_now)


def test_a_text_that_the_driver_refuses_is_told_with_its_words(device, capfd):
    wrong = images.image("@compute @workgroup_size(1) fn wrong() { let x = 1u + 1i; }", ["wrong"],
                         1, uses=())  # fmt: skip
    with pytest.raises(CompileError, match=r"wrong: found WGSL that webgpu.* refuses"):
        device.load(wrong)
    with pytest.raises(CompileError, match="first line"):
        device.load(wrong._replace(image=b"nothing"))
    with pytest.raises(CompileError, match="image of 1 arrays"):
        device.load(wrong._replace(nbuffers=3))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("count", [8, 9, 10])
def test_more_buffers_than_a_device_binds_are_copied(device, count):
    """Each array gets a number, from different places of buffers of different sizes."""
    lines = [f"weft_store_{name}(weft.{name}_at + i, weft_load_{name}(weft.{name}_at + i) + {k}u);"
             for k, name in enumerate("abcdefghij"[:count])]  # fmt: skip
    text = ("@compute @workgroup_size(64) fn many(@builtin(global_invocation_id) id: vec3<u32>) {"
            f"let i = id.x; if (i < 64u) {{ {' '.join(lines)} }} }}")  # fmt: skip
    program = device.load(images.image(text, ["many"], count))
    arrays = [np.arange(100 + 60 * k, dtype=np.int32) for k in range(count)]
    held = [images.put(device, array) for array in arrays]
    device.queue.launch(program, [View(h, 4 * k) for k, h in enumerate(held)]).wait()
    for k, (array, there) in enumerate(zip(arrays, held, strict=True)):
        array[k : k + 64] += k
        np.testing.assert_array_equal(images.get(device, there), array)


def test_larger_arrays_than_a_device_binds_are_typed_errors(device):
    held, most = images.put(device, np.zeros(8, np.int32)), device.info["max_binding"]
    large = device.pool.allocate(most + (1 << 20))
    with pytest.raises(LaunchError, match="what a binding holds"):
        device.queue.launch(device.load(images.add()), [large, held], [1, 1])
    with pytest.raises(AllocationError, match="at most"):
        device.pool.allocate(device.info["max_buffer"] + 4)
