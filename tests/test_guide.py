"""The code in the guide runs as it stands, page by page, and prints what the guide says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parent.parent / "docs" / "guide"
# Pages that show what their code prints in blocks of text.
PAGES = sorted(p for p in GUIDE.glob("*.md") if "\n```text\n" in p.read_text())
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MARK = "-- end of a block --"


def test_pages_were_found():
    assert len(PAGES) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page_runs(page, tmp_path):
    blocks = BLOCK.findall(page.read_text())
    code = [text for kind, text in blocks if kind == "python"]
    script = tmp_path / f"{page.stem.replace('-', '_')}.py"
    script.write_text("".join(f"{text}print({MARK!r})\n" for text in code))
    done = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True,
                          text=True, check=False, timeout=200)  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = done.stdout.replace(f"{tmp_path}/", "").split(MARK + "\n")
    found = iter(printed)
    shown = 0
    for position, (kind, _) in enumerate(blocks):
        if kind == "python":
            out = next(found)
            follows = blocks[position + 1:position + 2]
            if follows and follows[0][0] == "text":
                assert out == follows[0][1], out
                shown += 1
            else:
                assert not out, "what is printed is shown"
    assert shown
