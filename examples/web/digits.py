"""A network for handwritten digits, trained here and run in a browser: draw one, and it reads it.

``python examples/web/digits.py page`` trains for some seconds and writes the page; then
``python -m http.server -d page`` serves it at http://localhost:8000.
"""

import shutil
import sys
from pathlib import Path

import numpy as np

import weft
from weft.cli.digits import data
from weft.cli.digits.model import DigitNet
from weft.cli.digits.train import Trainer
from weft.web.export import export
from weft.web.inputs import Spec


def trained(digits: data.Digits, epochs: int, seed: int = 0) -> DigitNet:
    """Return the network of ``weft demo``, ready to be used."""
    weft.manual_seed(seed)
    rng = np.random.default_rng(seed)
    net = DigitNet()
    trainer = Trainer(net, epochs * data.STEPS)
    for _ in range(epochs):
        for images, labels in data.batches(digits, rng):
            trainer.step(images, labels)
    net.eval()
    return net


def write(net: DigitNet, folder: Path) -> list[Path]:
    """Write the network as a module, and a page on which one draws."""

    @weft.jit
    def digits(image: weft.Tensor) -> weft.Tensor:
        """Return the probabilities of the digits 0 to 9 for an image of 8 x 8 pixels, 0 to 1."""
        return net(image).softmax(-1)

    written = export(digits, folder, {"image": Spec(weft.float32, (1, 1, 8, 8))}, page=False)
    page = shutil.copy(Path(__file__).with_name("digits.html"), folder / "index.html")
    return [*written, Path(page)]


def main(folder: Path, epochs: int = 20) -> None:
    found = data.load()
    for path in write(trained(found, epochs), folder):
        print(f"{path}: {path.stat().st_size} bytes")
    print(f"serve it (python -m http.server -d {folder}) and open http://localhost:8000")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits"))
