"""A cache that is damaged, full, forbidden, foreign or shared is bypassed; results are right."""

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from weft.config import VERSION
from weft.driver.kernels import Code
from weft.driver.plans.spec import Spec
from weft.store import DiskCache

pytestmark = pytest.mark.grid

PROGRAM = """
import sys, warnings, weft
from weft.driver import counters as report
caught = []
warnings.showwarning = lambda message, category, *rest: caught.append(str(message))
x = weft.arange(1000, dtype=weft.float32)
total = ((x * 3 + 1).sum().item(), (x.reshape(10, 100) @ weft.ones(100, 4)).amax().item())
f = weft.jit(lambda x: x.cumsum(0) + 1)
last = f(x)[-1].item()
assert total == (1499500.0, 94950.0), total
assert last == 499501.0, last
c = report.counters()
print(int(c.get("kernels compiled", 0)), int(c.get("plan disk hits", 0)), len(caught))
for message in caught:
    print(message)
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def run(folder, program=PROGRAM, **environment):
    """Run the program on a cache; return (kernels compiled, plan hits, warnings)."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "WEFT_CACHE_DIR": str(folder), **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    assert not done.stderr, done.stderr
    counts, *messages = done.stdout.splitlines()
    compiled, hits, warned = map(int, counts.split())
    assert warned == len(messages)
    return compiled, hits, messages


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A cache in which everything is."""
    folder = tmp_path_factory.mktemp("warm") / "cache"
    compiled, _, messages = run(folder)
    assert compiled > 0
    assert not messages
    assert run(folder)[0] == 0
    return folder


@pytest.fixture
def filled(warm, folder):
    shutil.copytree(warm, folder)
    return folder


def entries(folder, kind=None):
    found = [p for p in Path(folder).rglob("*") if p.is_file() and not p.name.startswith(".")]
    return sorted(p for p in found if kind is None or kind in p.parts)


# ---- the folder ----------------------------------------------------------------------------------


def test_warm_cache_compiles_nothing(filled):
    compiled, hits, messages = run(filled)
    assert compiled == 0
    assert hits > 0
    assert not messages


def test_read_only_folder_that_is_empty(folder):
    folder.mkdir(mode=0o500)
    compiled, _, messages = run_without_privilege(folder)
    assert compiled > 0
    assert len(messages) == 1
    assert "WEFT_CACHE_DIR" in messages[0]


def run_without_privilege(folder):
    """Run the program so that file modes count: as another user where this one is root."""
    if os.geteuid() != 0:
        return run(folder)
    # A mount that nobody can write to stands for a read-only folder.
    program = (
        "import os, errno\n"
        "real_open, real_mkdir = os.open, os.mkdir\n"
        f"inside = lambda p: str(p).startswith({str(folder)!r})\n"
        "def refuse(path): raise OSError(errno.EROFS, 'Read-only file system', str(path))\n"
        "def my_open(path, flags, *a, **k):\n"
        "    if inside(path) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT): refuse(path)\n"
        "    return real_open(path, flags, *a, **k)\n"
        "def my_mkdir(path, *a, **k):\n"
        "    if inside(path) and not os.path.isdir(path): refuse(path)\n"
        "    return real_mkdir(path, *a, **k)\n"
        "os.open, os.mkdir = my_open, my_mkdir\n"
    )
    return run(folder, program + PROGRAM)


def test_read_only_folder_that_is_filled(filled):
    compiled, hits, messages = run_without_privilege(filled)
    assert compiled == 0
    assert hits > 0
    assert not messages  # nothing had to be written


def test_a_file_in_its_place(folder):
    folder.write_text("in the way")
    compiled, _, messages = run(folder)
    assert compiled > 0
    assert len(messages) == 1
    assert folder.read_text() == "in the way"


def test_a_file_in_place_of_the_version(folder):
    folder.mkdir()
    (folder / "v1").write_text("in the way")
    compiled, _, messages = run(folder)
    assert compiled > 0
    assert len(messages) == 1


def test_a_folder_that_cannot_be(folder):
    compiled, _, messages = run("/proc/no/such/folder")
    assert compiled > 0
    assert len(messages) == 1
    assert len(run("x" * 5000)[2]) == 1


def full_disk(after):
    return (
        "import os, errno\n"
        f"real, left = os.write, [{after}]\n"
        "def write(file, data):\n"
        "    if file > 2:\n"
        "        if left[0] <= 0: raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "        data = memoryview(data)[:left[0]]\n"
        "        left[0] -= len(data)\n"
        "    return real(file, data)\n"
        "os.write = write\n"
    ) + PROGRAM


@pytest.mark.parametrize("after", [10, 3000])
def test_full_disk(folder, after):
    compiled, _, messages = run(folder, full_disk(after))
    assert compiled > 0
    assert len(messages) == 1
    assert "No space left" in messages[0]
    assert not [p for p in Path(folder).rglob(".tmp*") if p.is_file()]
    assert run(folder)[2] == []  # what was written is whole


def test_another_users_folder(filled):
    program = (
        "import os\n"
        "me = os.geteuid()\n"
        "os.geteuid = lambda: me + 1\n"
    )  # fmt: skip
    compiled, hits, messages = run(filled, program + PROGRAM)
    assert compiled > 0
    assert hits == 0
    assert len(messages) == 1


def test_entries_that_others_may_write_are_not_loaded(filled):
    for i, entry in enumerate(entries(filled)):
        entry.chmod([0o666, 0o660, 0o777, 0o602][i % 4])
    compiled, hits, _ = run(filled)
    assert compiled > 0
    assert hits == 0


def test_a_folder_that_others_may_write_is_closed_first(filled):
    root = filled / "v1"
    root.chmod(0o777)
    run(filled)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_entries_that_are_links_are_not_followed(filled, tmp_path):
    for i, entry in enumerate(entries(filled)):
        target = tmp_path / f"elsewhere{i}"
        shutil.move(entry, target)
        entry.symlink_to(target)
    compiled, hits, _ = run(filled)
    assert compiled > 0
    assert hits == 0


def test_entries_that_are_folders_pipes_or_empty(filled):
    makers = [lambda p: p.mkdir(), lambda p: os.mkfifo(p), lambda p: p.write_bytes(b"")]
    for i, entry in enumerate(entries(filled)):
        entry.unlink()
        makers[i % 3](entry)
    compiled, _, _ = run(filled)
    assert compiled > 0


def test_folder_deleted_while_running(folder):
    program = PROGRAM.replace(
        "f = weft.jit", f"import shutil; shutil.rmtree({str(folder)!r}); f = weft.jit"
    )
    compiled, _, messages = run(folder, program)
    assert compiled > 0
    assert not messages
    assert entries(folder)  # and it is there again


# ---- entries -------------------------------------------------------------------------------------


REGIONS = [(0, 8), (8, 16), (16, 48), (48, 60), (60, -1), (-1, None)]  # magic, length, digest ...


@pytest.mark.parametrize("first", range(0, len(REGIONS), 2))
def test_flipped_bits(filled, first):
    """One bit in every entry, in another region of each."""
    numbers = random.Random(first)
    for i, entry in enumerate(entries(filled)):
        data = bytearray(entry.read_bytes())
        start, end, _ = slice(*REGIONS[(first + i) % len(REGIONS)]).indices(len(data))
        data[numbers.randrange(start, end)] ^= 1 << numbers.randrange(8)
        entry.write_bytes(data)
    compiled, hits, messages = run(filled)
    assert compiled > 0
    assert hits == 0
    assert not messages
    assert run(filled)[0] == 0  # it was put right


def test_cut_short(filled):
    lengths = [0, 1, 47, 48, 49, -1]
    for i, entry in enumerate(entries(filled)):
        data = entry.read_bytes()
        entry.write_bytes(data[: lengths[i] if i < len(lengths) else len(data) // 2])
    compiled, hits, messages = run(filled)
    assert compiled > 0
    assert hits == 0
    assert not messages


def test_grown_and_swapped(filled):
    found = entries(filled)
    first, second = found[0].read_bytes(), found[-1].read_bytes()
    found[0].write_bytes(second)
    found[-1].write_bytes(first)
    for entry in found[1:-1]:
        entry.write_bytes(entry.read_bytes() + b"more")
    compiled, _, messages = run(filled)
    assert compiled > 0
    assert not messages




def in_text(pattern, replacement):
    """Return a change of the text of a plan in its entry."""
    def change(data):
        version, text, *rest = json.loads(data)
        return json.dumps([version, re.sub(pattern, replacement, text, count=1, flags=re.M),
                           *rest]).encode()
    return change


# Parallel regions that no plan has: with nothing in them, with another region, with a fill.
WRONG_REGIONS = [
    in_text(r"^( *launch .*)$", r"parallel {\n}\n\1"),
    in_text(r"^( *launch .*)$", r"parallel {\nparallel {\n\1\n}\n}"),
    in_text(r"^( *launch .*)$", r"parallel {\n\1\nfill output 0 size 1 byte 0\n}"),
]
WRONG_PLANS = [
    lambda d: b"",
    lambda d: b"null",
    lambda d: b"{}",
    lambda d: b"[]",
    lambda d: b'[3, "", [], [], 0]',
    lambda d: b'[99, "", [], [], 0]',
    lambda d: d[: len(d) // 2],
    lambda d: b"\xff\xfe" + d,
    lambda d: b"[" * 100000,
    lambda d: json.dumps(json.loads(d)[:3]).encode(),
    lambda d: json.dumps([None] * len(json.loads(d))).encode(),
    *WRONG_REGIONS,
]
WRONG_KERNELS = [
    lambda d: b"",
    lambda d: b"\xff" * 100,
    lambda d: (2).to_bytes(4, "little") + b"[]" + d,
    lambda d: (8).to_bytes(4, "little") + b'{"a": 1}' + d,
    lambda d: (50000).to_bytes(4, "little") + b"[" * 50000,
    lambda d: d[:100],
    lambda d: d[:-2000],
    lambda d: d[: 4 + int.from_bytes(d[:4], "little")],
    lambda d: d[: 4 + int.from_bytes(d[:4], "little")] + b"no object at all",
]


def forge(folder, kind, changes):
    """Replace the content of entries, with digests that are right."""
    store = DiskCache(str(folder))
    for i, entry in enumerate(entries(folder, kind)):
        data = store.get(kind, entry.name)
        assert data is not None
        assert store.put(kind, entry.name, changes[i % len(changes)](data))


@pytest.mark.parametrize("change", WRONG_PLANS)
def test_a_plan_with_a_right_digest_and_wrong_content(warm, change):
    """What another version or a bug of ours wrote: a miss, never a crash."""
    for entry in entries(warm, "plan"):
        data = DiskCache(str(warm)).get("plan", entry.name)
        assert Spec.unpack(data) is not None
        assert Spec.unpack(change(data)) is None


@pytest.mark.parametrize("change", WRONG_KERNELS[:5])
def test_a_kernel_with_a_right_digest_and_a_wrong_header(warm, change):
    for entry in entries(warm, "kernel"):
        data = DiskCache(str(warm)).get("kernel", entry.name)
        assert Code.unpack(entry.name, data) is not None
        assert Code.unpack(entry.name, change(data)) is None


@pytest.mark.parametrize("first", range(0, len(WRONG_KERNELS), 3))
def test_kernels_with_right_digests_and_wrong_content(filled, first):
    forge(filled, "kernel", WRONG_KERNELS[first : first + 3])
    compiled, hits, _ = run(filled)
    assert compiled > 0 or hits == 0
    assert run(filled)[0] == 0


def test_plans_with_right_digests_and_wrong_content(filled):
    forge(filled, "plan", WRONG_PLANS)
    assert run(filled)[1] == 0
    assert run(filled)[0] == 0


def test_plans_that_name_what_is_not_there(filled):
    """Arrays, outputs and bytes of an arena: found when the plan is built, before it runs."""
    forge(filled, "plan", [in_text(r"^( *launch [^\[]*)\[[^,\]]*", rf"\1[{place}")
                           for place in ("arena 77", "output 99", "arena 0 + 99999999999")])
    assert run(filled)[1] == 0
    assert run(filled)[0] == 0


def test_another_version_uses_other_entries(filled):
    before = {p: p.read_bytes() for p in entries(filled)}
    program = "import weft.config, weft.store.disk as d\nd.VERSION = '99.0'\n" + PROGRAM
    compiled, hits, messages = run(filled, program)
    assert compiled > 0
    assert hits == 0
    assert not messages
    assert VERSION != "99.0"
    assert {p: p.read_bytes() for p in before} == before  # and leaves ours alone
    assert run(filled)[0] == 0


def test_thread_count_is_part_of_the_key(filled):
    run(filled, WEFT_NUM_THREADS="1")
    assert run(filled, WEFT_NUM_THREADS="1")[0] == 0
    assert run(filled)[0] == 0


# ---- several processes ---------------------------------------------------------------------------


def start(folder, program=PROGRAM):
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "WEFT_CACHE_DIR": str(folder)},
    )  # fmt: skip


def test_two_processes_with_one_cold_cache(folder):
    processes = [start(folder) for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.splitlines()[0].endswith(" 0"), out
        assert not err
    assert run(folder)[0] == 0


@pytest.mark.slow
def test_one_clears_while_another_runs(folder):
    endless = PROGRAM.replace("c = report", """
import time
until = time.monotonic() + 1.5
n = 1000
while time.monotonic() < until:
    n += 1
    assert (weft.ones(n) * n).sum().item() == n * n
c = report""")
    process = start(folder, endless)
    while process.poll() is None:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.02)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert not err
    assert run(folder)[2] == []


@pytest.mark.parametrize("after", [0.3, 0.6])
def test_killed_process_leaves_a_usable_cache(folder, after):
    process = start(folder, PROGRAM.replace("print(", "import time; time.sleep(9)\nprint(", 1))
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert run(folder)[2] == []
    assert run(folder)[0] == 0


def test_killed_in_the_middle_of_a_write(folder):
    program = (
        "import os, signal\n"
        "real, left = os.write, [2000]\n"
        "def write(file, data):\n"
        "    if file > 2:\n"
        "        done = real(file, memoryview(data)[:left[0]])\n"
        "        left[0] -= done\n"
        "        if left[0] <= 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return done\n"
        "    return real(file, data)\n"
        "os.write = write\n"
    ) + PROGRAM
    process = start(folder, program)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert [p for p in Path(folder).rglob(".tmp-*")]
    assert run(folder)[2] == []
    assert run(folder)[0] == 0


def test_temporary_files_that_a_killed_process_left_go_in_time(filled):
    old = entries(filled)[0].parent / ".tmp-123-0-abcd"
    old.write_bytes(b"half an entry")
    os.utime(old, (1, 1))
    for stamp in Path(filled).rglob(".scanned"):
        os.utime(stamp, (1, 1))
    computed = [line for line in PROGRAM.splitlines() if not line.startswith("assert ")]
    x = "\n".join(computed).replace("arange(1000", "arange(1001").replace(
        "reshape(10, 100)", "reshape(7, 143)").replace("ones(100, 4)", "ones(143, 4)")  # fmt: skip
    run(filled, x)
    assert not old.exists()


def test_nothing_in_an_entry_is_a_pickle(warm):
    for entry in entries(warm, "plan"):
        version, text, *_ = json.loads(entry.read_bytes()[48:])
        assert isinstance(version, int)
        assert isinstance(text, str)
