"""The database: what it keeps, for whom, and what damage, rivals and full disks do to it."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from weft import config
from weft.tuning import records as module
from weft.tuning.records import Record, Records, Trial, digest_of, key_of

KEY = key_of("kernel text", "target", "compiler", 2)
TRACE = ("split(i, 4)", "vectorize(i.i)")
RECORD = Record(KEY, "contraction", {"rows": 4, "stream": True, "form": "outer"}, "short",
                digest_of("scheduled"), TRACE, 2e-3, 1e-3, 17)  # fmt: skip


def trial(number, status="ok", ratio=None):
    return Trial(f"digest{number}", "short", {"rows": number}, status, ratio or 1.0 / number)


@pytest.fixture
def folder(tmp_path):
    os.chmod(tmp_path, 0o700)
    return str(tmp_path)


@pytest.fixture
def store(folder):
    made = Records(folder)
    yield made
    made.forget()


def test_keys_tell_everything_apart():
    keys = {key_of(*parts) for parts in (
        ("text", "target", "compiler", 1), ("text", "target", "compiler", 2),
        ("text", "target", "other", 1), ("text", "other", "compiler", 1),
        ("other", "target", "compiler", 1), ("texttarget", "", "compiler", 1),
    )}  # fmt: skip
    assert len(keys) == 6


def test_a_record_outlives_its_process(folder, store):
    assert store.find(KEY) is None
    store.put(RECORD)
    assert store.find(KEY) == RECORD
    assert Records(folder).find(KEY) == RECORD
    assert Records(folder).find(key_of("kernel text", "another target", "compiler", 2)) is None


def test_trials_and_the_end_of_a_search(folder, store):
    for number in (1, 2, 3):
        store.tried(KEY, trial(number))
    store.tried(KEY, trial(4, "hung", float("inf")))
    assert store.finished(KEY) is None
    store.finish(KEY, 4)
    other = Records(folder)
    assert sorted(other.trials(KEY)) == sorted(store.trials(KEY))
    assert len(other.trials(KEY)) == 4
    assert other.trials(KEY)[-1].ratio == float("inf")
    assert other.finished(KEY) == 4
    assert other.trials("another") == []


def test_a_record_is_replaced_and_dropped(folder, store):
    store.put(RECORD)
    store.put(RECORD._replace(after=5e-4))
    assert Records(folder).find(KEY).after == 5e-4
    store.drop(KEY)
    assert store.find(KEY) is None
    assert Records(folder).find(KEY) is None


def test_the_file_is_this_users_alone(store):
    store.put(RECORD)
    for ending in ("", "-wal", "-shm"):
        if os.path.exists(store.path + ending):
            assert stat.S_IMODE(os.stat(store.path + ending).st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_not_read(folder, store, mode):
    store.put(RECORD)
    os.chmod(store.path, mode)
    other = Records(folder)
    with pytest.warns(RuntimeWarning, match="not this user's own"):
        assert other.find(KEY) is None


def test_a_link_is_not_followed(folder, tmp_path):
    target = tmp_path / "elsewhere"
    target.write_bytes(b"")
    os.symlink(target, os.path.join(folder, "tuning.sqlite"))
    store = Records(folder)
    with pytest.warns(RuntimeWarning, match="not this user's own"):
        store.put(RECORD)
    assert target.read_bytes() == b""
    assert store.find(KEY) == RECORD  # for this process


def test_looking_where_nothing_is_imports_nothing(folder):
    program = (
        "import sys\nfrom weft.tuning.records import Records\n"
        f"assert Records({folder!r}).find('x') is None\n"
        "print('sqlite3' in sys.modules)\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                         check=True, env=environment())  # fmt: skip
    assert out.stdout.strip() == "False"
    assert os.listdir(folder) == []


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def read_all(store):
    """Return the record, and how many trials could be read after it."""
    return store.find(KEY), len(store.trials(KEY))


def fill(store):
    for number in range(1, 500):
        store.tried(KEY, trial(number)._replace(choices={"x" * 200: number}))


# ---- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["garbage", "cut", "middle", "empty", "schema"])
def test_a_damaged_file_is_moved_aside(folder, store, damage):
    for number in range(1, 200):
        store.tried(KEY, trial(number))
    store.put(RECORD)
    store.forget()
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if damage == "schema":
            db.execute("PRAGMA user_version = 99")
    db.close()
    data = bytearray(Path(store.path).read_bytes())
    if damage == "garbage":
        data = bytearray(os.urandom(len(data)))
    elif damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "middle":
        data[1024:] = os.urandom(len(data) - 1024)
    elif damage == "empty":
        data.clear()
    with open(store.path, "wb") as file:
        file.write(data)
    other = Records(folder)
    if damage == "empty":  # an empty file is a new database
        assert other.find(KEY) is None
    else:
        with pytest.warns(RuntimeWarning, match="was moved to"):
            assert read_all(other) in ((None, 0), (RECORD, 0))
        assert [f for f in os.listdir(folder) if "damaged" in f]
    other.put(RECORD)
    assert Records(folder).find(KEY) == RECORD


def test_a_row_of_nonsense_is_no_record(folder, store):
    store.put(RECORD)
    store.tried(KEY, trial(1))
    with sqlite3.connect(store.path) as db:
        db.execute("UPDATE records SET choices = '[1'")
        db.execute("UPDATE trials SET choices = '[[]]'")
    db.close()
    other = Records(folder)
    assert other.find(KEY) is None
    assert other.trials(KEY) == []


def test_a_file_removed_under_an_open_connection(folder, store):
    store.put(RECORD)
    for ending in ("", "-wal", "-shm"):
        if os.path.exists(store.path + ending):
            os.unlink(store.path + ending)
    store.tried(KEY, trial(1))
    assert len(Records(folder).trials(KEY)) == 1


def test_a_disk_that_is_full_costs_a_warning(folder, store):
    store.put(RECORD)
    db = store._connect(True)
    db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
    with pytest.warns(RuntimeWarning, match="full"):
        fill(store)
    assert len(store.trials(KEY)) == 499  # this process has them all
    assert Records(folder).find(KEY) == RECORD


def test_a_folder_that_cannot_be_written(tmp_path):
    store = Records(str(tmp_path / "absent"))
    with pytest.warns(RuntimeWarning, match="tuning records"):
        store.put(RECORD)
    assert store.find(KEY) == RECORD


# ---- rivals --------------------------------------------------------------------------------------

WRITER = """
import sys
from weft.tuning.records import Records, Trial
store = Records(sys.argv[1])
first = int(sys.argv[2])
for number in range(first, first + 150):
    store.tried("key", Trial(f"d{number}", "short", {"rows": number}, "ok", 1.0))
    print(number, flush=True)
"""


def writer(folder, first):
    return subprocess.Popen([sys.executable, "-W", "error", "-c", WRITER, folder, str(first)],
                            stdout=subprocess.PIPE, text=True, env=environment())  # fmt: skip


def test_processes_write_side_by_side(folder):
    rivals = [writer(folder, first) for first in (0, 1000, 2000)]
    for rival in rivals:
        rival.communicate(timeout=60)
        assert rival.returncode == 0
    assert len(Records(folder).trials("key")) == 450


def test_a_killed_writer_loses_nothing_that_it_committed(folder):
    rival = writer(folder, 0)
    for _ in range(60):
        last = int(rival.stdout.readline())
    rival.send_signal(signal.SIGKILL)
    rival.wait()
    rival.stdout.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = Records(folder)
        numbers = {t.choices["rows"] for t in store.trials("key")}
    assert set(range(last + 1)) <= numbers
    store.tried("key", trial(7))
    assert store.counts()[1] == len(numbers) + 1


def test_measuring_takes_turns(folder):
    """Two processes never measure at once; a lock ends with its holder."""
    program = (
        "import sys, time\nfrom weft.tuning.records import Records\n"
        f"with Records({folder!r}).turn():\n    print('mine', flush=True)\n    time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
                              env=environment())  # fmt: skip
    assert holder.stdout.readline() == "mine\n"
    got = []

    def wait():
        with Records(folder).turn():
            got.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)
    assert not got
    holder.kill()
    holder.wait()
    holder.stdout.close()
    thread.join(60)
    assert got


def test_a_forked_child_opens_its_own(folder, store):
    store.put(RECORD)
    pid = os.fork()
    if pid == 0:
        store._records.clear()
        os._exit(0 if store.find(KEY) == RECORD else 1)
    assert os.waitpid(pid, 0)[1] == 0
    store._records.clear()
    assert store.find(KEY) == RECORD


# ---- settings ------------------------------------------------------------------------------------


def test_clear_and_counts(folder, store):
    assert store.counts() == (0, 0, 0)
    store.put(RECORD)
    store.tried(KEY, trial(1))
    records, trials, nbytes = store.counts()
    assert (records, trials) == (1, 1)
    assert nbytes > 0
    assert store.clear() == 1
    assert store.find(KEY) is None
    assert store.counts() == (0, 0, 0)


def test_nothing_is_written_where_the_settings_say_so(cache_dir, monkeypatch):
    monkeypatch.setenv("WEFT_AUTOTUNE_SAVE_TO_DISK", "0")
    config.reset()
    store = Records(str(cache_dir), config.config().autotune.save_to_disk)
    store.put(RECORD)
    store.tried(KEY, trial(1))
    store.finish(KEY, 1)
    assert not cache_dir.exists()
    assert store.find(KEY) == RECORD
    assert len(store.trials(KEY)) == 1
    assert store.finished(KEY) == 1
    module.reset()
