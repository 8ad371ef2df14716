"""The page on which one draws a digit: the network's answers, and a stroke of the pen."""

import sys
from pathlib import Path

import numpy as np
import pytest

from capabilities import require

sys.path.insert(0, str(Path(__file__).parent.parent / "web"))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "web"))

SCRIPT = """
const model = await (await import("./digits.js")).load();
const images = await data("images.bin", Float32Array);
const rows = [];
for (let i = 0; i < images.length; i += 64) {
  rows.push((await model(images.subarray(i, i + 64)))[0].data);
}
const page = await frame("index.html");
const canvas = page.getElementById("drawing");
const { left, top } = canvas.getBoundingClientRect();
const pen = (kind, x, y) => canvas.dispatchEvent(new page.defaultView.PointerEvent(
  kind, { clientX: left + x, clientY: top + y }));
pen("pointerdown", 128, 40);
for (let y = 40; y <= 216; y += 8) pen("pointermove", 128, y);
pen("pointerup", 128, 216);
const status = () => page.getElementById("status").textContent;
await wait(() => status().startsWith("Read"));
const answer = page.getElementById("answer").textContent;
page.getElementById("clear").click();
await wait(() => page.getElementById("answer").textContent.trim() === "");
return { rows, answer, status: status() };
"""


@pytest.mark.requires("chromium", "sklearn")
@pytest.mark.slow
def test_a_digit_is_drawn(tmp_path):
    require("cpu")
    import digits as example
    import pages

    import weft

    found = example.data.load()
    net = example.trained(found, 3)
    example.write(net, tmp_path)
    images = found.test_images[:40]
    images.tofile(tmp_path / "images.bin")
    told = pages.run(tmp_path, SCRIPT)
    with weft.no_grad():
        wanted = net(weft.from_numpy(images[:, None].copy())).softmax(-1).numpy()
    np.testing.assert_allclose(np.stack(told["rows"]), wanted, 1e-4, 1e-5)
    assert told["answer"] == "1"
    assert told["status"].endswith("in this browser.")
