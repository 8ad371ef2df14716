"""The code of docs/guide/front-ends.md runs as it stands, and prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "front-ends.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_page(tmp_path):
    code = [text for kind, text in BLOCKS if kind == "python"]
    assert len(code) >= 6
    (tmp_path / "page.py").write_text("\n".join(code))
    done = subprocess.run([sys.executable, "-W", "error", "page.py"], cwd=tmp_path, text=True,
                          capture_output=True, check=False, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (told,) = [text for kind, text in BLOCKS if not kind and "1 error" in text]
    assert told in done.stdout
    assert "two.lines: 3 errors" in done.stdout
    assert "two.lines:3: no operator '?'" in done.stdout.replace(":3:1:", ":3:")
    assert "{'y': 41.0}" in done.stdout
    assert (tmp_path / "two.h").exists()
