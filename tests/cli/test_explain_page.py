"""``weft explain --html`` in a browser: one page, everything on it, linked both ways."""

import json
import re
import subprocess

import pytest
from commands import weft

from capabilities import browser

SCRIPT = """\
import weft
weft.manual_seed(0)
x = weft.rand(32, 48)
h = x @ weft.rand(48, 16)
y = h.softmax(-1)
print("<sum>", round(y.sum().item()))
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    script, file = folder / "train.py", folder / "train.html"
    script.write_text(SCRIPT)
    out, _ = weft("explain", "--html", file, script)
    assert re.search(r"^\d+ kernels explained in ", out, re.MULTILINE)
    return file


def dom(file, *options):
    """Return the page as a browser has it, its scripts run."""
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", *options, "--dump-dom"]
    return subprocess.run([*command, file.as_uri()], capture_output=True, text=True, check=True,
                          timeout=120).stdout  # fmt: skip


@pytest.mark.slow
@pytest.mark.requires("chromium")
def test_a_browser_shows_every_kernel(page):
    text = dom(page)
    count = int(re.search(r'<body data-kernels="(\d+)"', text)[1])  # set by its script
    assert count == text.count('<section class="kernel">') >= 2
    for level in ("graph", "loop", "schedule", "kernel", "source", "assembly"):
        assert text.count(f"<summary>{level}</summary>") == count


def test_it_needs_nothing_else(page):
    text = page.read_text()
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|@import|url\(", text)
    assert "&lt;sum&gt;" in text
    assert "<sum>" not in text


def test_lines_and_kernels_are_linked_both_ways(page):
    text = page.read_text()
    marks = {int(line): json.loads(kernels) for line, kernels in re.findall(
        r'id="line-0-(\d+)" data-kernels="(\[[^"]*\])"', text)}
    assert {3, 4, 5} <= set(marks)  # random numbers, product, softmax
    for line, kernels in marks.items():
        for number in kernels:
            section = text.split(f'<h2 id="kernel-{number}">')[1].split("</section>")[0]
            assert f'href="#line-0-{line}"' in section, (line, number)
    anchors = set(re.findall(r'id="([^"]+)"', text))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= anchors
