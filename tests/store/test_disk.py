"""The disk cache: what is stored comes back, anything else is a miss, nothing ever fails."""

import errno
import os
import stat
import subprocess
import sys
import threading
import time
import warnings

import pytest

from weft.errors import CacheError
from weft.store import disk
from weft.store.disk import DiskCache, cache, fingerprint

DATA = bytes(range(256)) * 40
KEY = fingerprint("entry")


@pytest.fixture(autouse=True)
def fresh():
    disk.reset()
    yield
    disk.reset()


@pytest.fixture
def store(tmp_path):
    return DiskCache(str(tmp_path / "cache"))


def files(store):
    return [
        os.path.join(folder, name)
        for folder, _, names in os.walk(store.path)
        for name in names
        if name != ".scanned"
    ]


def entry_file(store, kind="kernel", key=KEY):
    store.put(kind, key, DATA)
    (path,) = [path for path in files(store) if path.endswith(key)]
    return path


def quiet(action):
    """Run an action that must not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return action()


@pytest.mark.parametrize("data", [b"", b"x", DATA, os.urandom(1 << 20)])
def test_round_trip(store, data):
    assert store.get("kernel", KEY) is None
    assert store.put("kernel", KEY, data)
    assert store.get("kernel", KEY) == data
    assert DiskCache(store.path).get("kernel", KEY) == data
    assert store.get("plan", KEY) is None
    assert store.put("kernel", KEY, b"newer")
    assert store.get("kernel", KEY) == b"newer"


def test_stats_info_and_clear(store):
    store.get("kernel", KEY)
    store.put("kernel", KEY, DATA)
    store.get("kernel", KEY)
    store.put("plan", KEY, b"abc")
    kernel, plan = store.stats["kernel"], store.stats["plan"]
    assert (kernel.hits, kernel.misses, kernel.writes) == (1, 1, 1)
    assert (plan.hits, plan.misses, plan.writes) == (0, 0, 1)
    info = store.info()
    assert info.usable
    assert info.entries == 2
    assert info.nbytes == sum(os.path.getsize(path) for path in files(store))
    assert info.kinds["kernel"][0] == info.kinds["plan"][0] == 1
    assert store.clear("plan") == 1
    assert store.get("plan", KEY) is None
    assert store.clear() == 1
    assert store.info().entries == 0
    assert store.put("kernel", KEY, DATA)


def test_fingerprint_keeps_parts_apart():
    keys = [
        fingerprint(*parts)
        for parts in [
            (), ("",), (b"",), ("a",), (b"a",), ("ab", "c"), ("a", "bc"), ("abc",), (1,), ("1",),
            (1, 2), (12,), ("\udc80",),
        ]
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 40 and int(key, 16) >= 0 for key in keys)
    assert fingerprint("a", 1) == fingerprint("a", 1)


def test_fingerprint_depends_on_the_version(monkeypatch):
    before = fingerprint("a")
    monkeypatch.setattr(disk, "VERSION", "9.9.9")
    assert fingerprint("a") != before


def test_folders_and_files_are_private(store):
    path = entry_file(store)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    folder = os.path.dirname(path)
    while len(folder) >= len(store._root):
        assert not stat.S_IMODE(os.stat(folder).st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
        folder = os.path.dirname(folder)
    assert stat.S_IMODE(os.stat(store._root).st_mode) == 0o700


def test_loose_folder_of_ours_is_tightened(store):
    os.makedirs(store._root)
    os.chmod(store._root, 0o777)
    assert store.put("kernel", KEY, DATA)
    assert stat.S_IMODE(os.stat(store._root).st_mode) == 0o700


# ---- bad entries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 7, 8, 15, 16, 30, 47, 48, 100, len(DATA) + 47])
def test_a_changed_byte_is_a_miss_and_the_entry_is_removed(store, position):
    path = entry_file(store)
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0x40]))
    assert quiet(lambda: store.get("kernel", KEY)) is None
    assert not os.path.exists(path)
    assert store.put("kernel", KEY, DATA)
    assert store.get("kernel", KEY) == DATA


@pytest.mark.parametrize("size", [0, 1, 47, 48, 49, len(DATA), len(DATA) + 47])
def test_a_truncated_entry_is_a_miss(store, size):
    path = entry_file(store)
    os.truncate(path, size)
    assert store.get("kernel", KEY) is None
    assert not os.path.exists(path)


def test_appended_bytes_are_a_miss(store):
    with open(entry_file(store), "ab") as file:
        file.write(b"x")
    assert store.get("kernel", KEY) is None


def test_an_entry_of_another_key_or_kind_is_a_miss(store):
    path = entry_file(store)
    other = fingerprint("other")
    target = os.path.join(store._root, "kernel", other[:2], other)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(path, "rb") as source, open(target, "wb") as copy:
        copy.write(source.read())
    os.chmod(target, 0o600)
    assert store.get("kernel", other) is None
    os.makedirs(os.path.join(store._root, "plan", KEY[:2]))
    os.replace(path, os.path.join(store._root, "plan", KEY[:2], KEY))
    assert store.get("plan", KEY) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_a_file_that_others_may_write_is_never_loaded(store, mode):
    os.chmod(entry_file(store), mode)
    assert store.get("kernel", KEY) is None
    assert store.put("kernel", KEY, DATA)
    assert store.get("kernel", KEY) == DATA


def test_a_file_of_another_user_is_never_loaded(store, monkeypatch):
    entry_file(store)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert store.get("kernel", KEY) is None


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "fifo"])
def test_what_is_no_plain_file_is_never_loaded(store, tmp_path, kind):
    path = entry_file(store)
    target = tmp_path / "elsewhere"
    os.replace(path, target)
    match kind:
        case "link":
            os.symlink(target, path)
        case "dangling":
            os.symlink(tmp_path / "nowhere", path)
        case "folder":
            os.mkdir(path)
        case "fifo":
            os.mkfifo(path)
    assert quiet(lambda: store.get("kernel", KEY)) is None


# ---- bad folders ---------------------------------------------------------------------------------


def assert_warns_once(action):
    with pytest.warns(RuntimeWarning, match="works without its cache") as caught:
        action()
    assert len(caught) == 1


def assert_bypassed(store):
    def use():
        assert store.get("kernel", KEY) is None
        assert store.put("kernel", KEY, DATA) is False
        assert store.get("kernel", KEY) is None
        assert not store.info().usable
        assert store.clear() == 0
        DiskCache(store.path).put("kernel", KEY, DATA)

    assert_warns_once(use)


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "cache").write_text("not a folder")
    assert_bypassed(DiskCache(str(tmp_path / "cache")))
    assert (tmp_path / "cache").read_text() == "not a folder"


def test_a_file_in_place_of_our_folder(store):
    os.makedirs(store.path)
    with open(store._root, "w"):
        pass
    assert_bypassed(store)


def test_a_link_in_place_of_our_folder(store, tmp_path):
    os.makedirs(store.path)
    os.mkdir(tmp_path / "target")
    os.symlink(tmp_path / "target", store._root)
    assert_bypassed(store)
    assert not os.listdir(tmp_path / "target")


def test_a_folder_of_another_user(store, monkeypatch):
    entry_file(store)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert_bypassed(DiskCache(store.path))


def test_a_folder_that_cannot_be_made(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "makedirs", refuse)
    assert_bypassed(DiskCache(str(tmp_path / "cache")))


def test_a_folder_name_that_is_impossible():
    assert_bypassed(DiskCache("/dev/null/cache"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("call", ["open", "write", "replace"])
def test_writes_that_fail_warn_once_and_reading_goes_on(store, monkeypatch, code, call):
    old = fingerprint("old")
    store.put("kernel", old, DATA)
    original = getattr(os, call)

    def fail(*arguments, **options):
        if call == "open" and not arguments[1] & os.O_CREAT:
            return original(*arguments, **options)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    assert_warns_once(lambda: [store.put("kernel", KEY, DATA) for _ in range(3)])
    assert store.get("kernel", old) == DATA
    assert store.get("kernel", KEY) is None
    monkeypatch.undo()
    assert [path for path in files(store) if ".tmp-" in path] == []


def test_short_writes_are_continued(store, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data[:1000])))
    assert store.put("kernel", KEY, DATA)
    monkeypatch.undo()
    assert store.get("kernel", KEY) == DATA


def test_short_reads_are_continued(store, monkeypatch):
    store.put("kernel", KEY, DATA)
    read = os.read
    monkeypatch.setattr(os, "read", lambda file, size: read(file, min(size, 1000)))
    assert store.get("kernel", KEY) == DATA


def test_a_folder_that_vanishes_is_made_again(store):
    import shutil

    store.put("kernel", KEY, DATA)
    shutil.rmtree(store.path)
    assert store.get("kernel", KEY) is None
    assert quiet(lambda: store.put("kernel", KEY, DATA))
    assert store.get("kernel", KEY) == DATA


def test_an_interrupted_write_leaves_nothing(store, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    store.put("kernel", fingerprint("old"), b"")
    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.put("kernel", KEY, DATA)
    monkeypatch.undo()
    assert len(files(store)) == 1


@pytest.mark.parametrize("kind", ["", "..", "a/b", "a b"])
def test_a_kind_is_a_plain_name(store, kind):
    with pytest.raises(CacheError):
        store.get(kind, KEY)


# ---- size ----------------------------------------------------------------------------------------


def test_the_entries_used_longest_ago_are_evicted(tmp_path):
    store = DiskCache(str(tmp_path), limit=10_000)
    keys = [fingerprint(number) for number in range(8)]
    now = time.time()
    for age, key in enumerate(keys):
        store.put("kernel", key, bytes(1000))
        path = store._path("kernel", key)
        os.utime(path, (now - 10_000 - age, now - 10_000 - age))
    assert store.get("kernel", keys[-1]) is not None  # used now: the oldest becomes the newest
    for number in range(100, 103):
        store.put("kernel", fingerprint(number), bytes(1000))
    assert store.info().nbytes <= 10_000
    assert store.get("kernel", keys[-1]) is not None
    assert store.get("kernel", keys[-2]) is None
    assert store.get("kernel", fingerprint(102)) is not None


def test_temporary_files_of_killed_processes_are_removed(store):
    folder = os.path.dirname(entry_file(store))
    old, new = os.path.join(folder, ".tmp-1-1-a"), os.path.join(folder, ".tmp-2-1-b")
    for path in (old, new):
        with open(path, "w"):
            pass
    os.utime(old, (1, 1))
    assert store.info().entries == 1
    assert not os.path.exists(old)
    assert os.path.exists(new)


def test_a_big_cache_is_not_scanned_at_every_write(store, monkeypatch):
    scans = []
    monkeypatch.setattr(store, "evict", lambda: scans.append(1))
    for number in range(50):
        store.put("kernel", fingerprint(number), b"x")
    assert len(scans) == 1
    again = DiskCache(store.path)
    monkeypatch.setattr(again, "evict", lambda: scans.append(1))
    again.put("kernel", KEY, b"x")
    assert len(scans) == 1


def test_a_hit_touches_an_old_entry_once(store):
    path = entry_file(store)
    os.utime(path, (1, 1))
    store.get("kernel", KEY)
    touched = os.stat(path).st_mtime_ns
    assert touched > 10**18
    store.get("kernel", KEY)
    assert os.stat(path).st_mtime_ns == touched


# ---- company -------------------------------------------------------------------------------------

WRITER = """
import sys, random
from weft.store.disk import DiskCache, fingerprint
store, number = DiskCache(sys.argv[1]), int(sys.argv[2])
keys = [fingerprint("shared", k) for k in range(4)]
for step in range(300):
    key = random.choice(keys)
    store.put("kernel", key, (key * 500).encode())
    key = random.choice(keys)
    found = store.get("kernel", key)
    if found is not None and found != (key * 500).encode():
        sys.exit(1)
    if step % 100 == 50 and number == 0:
        store.clear()
"""


def test_processes_write_the_same_keys(store):
    command = [sys.executable, "-W", "error", "-c", WRITER, store.path]
    writers = [
        subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE) for number in range(4)
    ]
    results = [(writer.communicate()[1], writer.returncode) for writer in writers]
    assert results == [(b"", 0)] * 4
    assert [path for path in files(store) if ".tmp-" in path] == []


def test_threads_write_the_same_keys(store):
    wrong = []

    def work(number):
        for step in range(50):
            key = fingerprint("shared", step % 3)
            store.put("kernel", key, key.encode() * 100)
            if store.get("kernel", key) != key.encode() * 100:
                wrong.append((number, step))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_the_process_cache_follows_the_environment(cache_dir):
    assert cache().path == str(cache_dir)
    assert cache() is cache()
    assert not os.path.exists(cache_dir)  # nothing is made before it is needed
    assert cache().put("kernel", KEY, DATA)
    assert cache().get("kernel", KEY) == DATA


def test_the_default_folder_is_the_users(monkeypatch):
    from weft import config

    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    config.reset(config.Config())
    try:
        assert "weft" in DiskCache().path
    finally:
        config.reset()
