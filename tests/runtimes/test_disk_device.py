"""The pool of the device ``disk``: places in files, faults of files, exact accounts, no compute."""

import gc
import os
import threading

import pytest

from weft.errors import (
    CompileError,
    CopyError,
    DeallocationError,
    DeviceError,
    HandleError,
    ParseError,
)
from weft.runtimes.base import Event, Image, View
from weft.runtimes.memory.disk_device import DiskDevice, DiskPool, Place

CONTENT = bytes(range(256)) * 20


@pytest.fixture
def pool():
    return DiskPool("disk")


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "file"
    made.write_bytes(CONTENT)
    return str(made)


@pytest.fixture
def held(pool, path):
    return pool.hold(Place(pool.open(path), 100), 1000)


def read(buffer, offset=0, count=None):
    target = bytearray(buffer.nbytes - offset if count is None else count)
    buffer.pool.pool_to_host(View(buffer, offset), target)
    return bytes(target)


def test_A11_buffers_are_a_path_and_an_offset(held, path):
    assert (held.handle.path, held.handle.offset, held.nbytes) == (path, 100, 1000)
    assert (held.device, held.in_process, held.on_host, held.readonly) == (
        "disk", False, False, True)
    assert read(held) == CONTENT[100:1100]
    assert read(held, 7, 9) == CONTENT[107:116]
    part = held.part(30, 40)
    assert part.handle.offset == 130
    assert read(part, 5) == CONTENT[135:170]
    with pytest.raises(DeviceError, match="memory of disk"):
        _ = held.address


def test_A11_places_outside_of_the_file_are_refused(pool, held, path):
    file = pool.open(path)
    for offset, nbytes in ((0, 5121), (5120, 1), (-1, 4), (5000, -1), (1 << 62, 1 << 62)):
        with pytest.raises(HandleError):
            pool.hold(Place(file, offset), nbytes)
    for offset, nbytes in ((0, 1001), (-1, 1), (1001, 0), (3, -1)):
        with pytest.raises(HandleError):
            held.part(offset, nbytes)
    assert read(pool.hold(Place(file, 5120), 0)) == b""
    with pytest.raises(CopyError):
        pool.pool_to_host(View(held, 999), bytearray(2))
    with pytest.raises(CopyError):
        pool.pool_to_host(held, bytes(4))


def test_A11_lines_are_read_as_if_they_lay_side_by_side(pool, path):
    whole = pool.hold(Place(pool.open(path), 0), 5120)
    for offset, shape, steps, item, wanted in [
        (0, (4, 3), (100, 1), 1, b"".join(CONTENT[i : i + 3] for i in (0, 100, 200, 300))),
        (300, (4, 3), (-100, 1), 1, b"".join(CONTENT[i : i + 3] for i in (300, 200, 100, 0))),
        (8, (2, 2, 5), (1000, 50, 2), 2, b"".join(
            CONTENT[8 + i * 1000 + j * 50 :][:10] for i in (0, 1) for j in (0, 1))),
        (0, (3, 1, 2), (7, 99, 2), 1, bytes(CONTENT[7 * i + 2 * j]
                                            for i in range(3) for j in range(2))),
    ]:  # fmt: skip
        lines = whole.lines(offset, shape, steps, item)
        assert lines.nbytes == len(wanted)
        assert read(lines) == wanted
        for start in range(len(wanted)):  # a part of lines begins anywhere
            assert read(lines.part(start, len(wanted) - start)) == wanted[start:]
            assert read(lines, start, 1) == wanted[start : start + 1]
        assert lines.lines(0, (1, 2), (1, 2), 1) is None
    assert whole.lines(0, (2000, 1), (2, 1), 1) is None  # so many calls are no way to read
    with pytest.raises(HandleError):
        whole.lines(0, (52, 3), (100, 1), 1).part(0, 157)
    with pytest.raises(HandleError):
        whole.lines(0, (53, 3), (100, 1), 1)
    with pytest.raises(HandleError):
        whole.lines(99, (2, 3), (-100, 1), 1)


def test_A7_accounts_are_exact(pool, path):
    file = pool.open(path)
    assert pool.bytes_in_use == 0
    first, second = pool.hold(Place(file, 0), 100), pool.hold(Place(file, 50), 100)
    assert pool.bytes_in_use == 200
    part = second.part(0, 10)
    assert pool.bytes_in_use == 210
    first.release()
    del part
    assert pool.bytes_in_use == 100
    pool.free(second)
    assert (pool.bytes_in_use, pool.bytes_cached, pool.flush()) == (0, 0, 0)
    assert pool.bytes_free > 0
    with pytest.raises(DeallocationError):
        second.release()


def test_A7_events_are_consumed(pool, held):
    event = Event("disk")
    target = bytearray(4)
    pool.pool_to_host(held, target, [event])
    for use in (lambda: pool.pool_to_host(held, target, [event]), lambda: pool.free(held, [event]),
                lambda: pool.sync_events([event]), lambda: pool.release_events([event])):
        with pytest.raises(HandleError):
            use()
    pool.sync_events([Event("disk")])
    pool.release_events([Event("disk")])
    assert held.ready.done


def test_A7_a_pool_ends_when_nothing_is_held(pool, held, path):
    with pytest.raises(DeallocationError):
        pool.deinitialize()
    assert read(held, 0, 3) == CONTENT[100:103]
    file = held.handle.file
    held.release()
    pool.deinitialize()
    with pytest.raises(HandleError):
        pool.hold(Place(file, 0), 1)


def test_A9_released_and_foreign_buffers_are_handle_errors(pool, held, path):
    other = DiskPool("disk")
    foreign = other.hold(Place(other.open(path), 0), 8)
    for use in (lambda: pool.pool_to_host(foreign, bytearray(8)), lambda: pool.free(foreign)):
        with pytest.raises(HandleError):
            use()
    held.release()
    for use in (lambda: held.handle, lambda: read(held), lambda: held.part(0, 1),
                lambda: held.lines(0, (2, 1), (4, 1), 1)):  # fmt: skip
        with pytest.raises(HandleError):
            use()


def test_A9_nothing_is_made_written_or_computed(path):
    device = DiskDevice("disk")
    pool, queue = device.pool, device.queue
    held = pool.hold(Place(pool.open(path), 0), 64)
    for error, use in [
        (DeviceError, lambda: pool.allocate(8)), (CopyError, lambda: queue.copy(held, held)),
        (CopyError, lambda: pool.host_to_pool(bytes(8), held)),
        (CopyError, lambda: queue.fill(held, 8)), (DeviceError, lambda: queue.launch(None, [held])),
        (CompileError, lambda: device.load(Image("k", b"", (), 1))),
    ]:  # fmt: skip
        with pytest.raises(error, match=r"disk|another device"):
            use()
    queue.synchronize()
    assert device.free_compute() == 0
    assert device.info["memory"] > 0
    with open(path, "rb") as file:
        assert file.read() == CONTENT


# files that change


def cut_short(path):
    os.truncate(path, 50)


def empty(path):
    os.truncate(path, 0)


def append(path):
    with open(path, "ab") as file:
        file.write(b"more")


def overwrite(path):
    with open(path, "r+b") as file:
        file.write(b"\xff" * 5120)
    os.utime(path, ns=(1, 1))  # however coarse the clock of the file system is


@pytest.mark.parametrize("change", [cut_short, empty, append, overwrite])
def test_A11_a_file_that_was_written_to_is_a_typed_error(held, path, change):
    change(path)
    for _ in range(2):
        with pytest.raises(CopyError, match="file"):
            read(held)


def delete(path):
    os.unlink(path)


def replace(path):
    with open(path + ".new", "wb") as file:
        file.write(b"\xff" * 5120)
    os.replace(path + ".new", path)


def forbid(path):
    os.chmod(path, 0)


def move(path):
    os.rename(path, path + ".moved")


@pytest.mark.parametrize("change", [delete, replace, forbid, move])
def test_A11_a_file_that_goes_by_another_name_or_none_is_read_as_it_was(pool, held, path, change):
    change(path)
    assert read(held) == CONTENT[100:1100]
    assert read(held.part(10, 5)) == CONTENT[110:115]


def test_A11_a_file_that_ends_while_it_is_read_is_a_typed_error(held, path, monkeypatch):
    """Between the look at the file and the read, which then gets fewer bytes."""
    file = held.handle.file
    inner = type(file)._read_some

    def later(self, offset, target):
        os.truncate(path, 300)
        return inner(self, offset, target)

    monkeypatch.setattr(type(file), "_read_some", later)
    with pytest.raises(CopyError, match="end after 300 bytes"):
        read(held)


def test_A9_an_error_of_the_system_is_a_typed_error(held, monkeypatch):
    def broken(self, offset, target):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(type(held.handle.file), "_read_some", broken)
    with pytest.raises(CopyError, match="Input/output error"):
        read(held)


def test_reads_go_on_where_the_system_stops(held, monkeypatch):
    """A read may return fewer bytes than it was asked for."""
    inner = type(held.handle.file)._read_some
    monkeypatch.setattr(type(held.handle.file), "_read_some",
                        lambda self, offset, target: inner(self, offset, target[:7]))
    assert read(held) == CONTENT[100:1100]


def test_systems_without_reads_at_an_offset(held, monkeypatch):
    monkeypatch.delattr(os, "preadv")
    assert read(held) == CONTENT[100:1100]
    assert read(held, 3, 5) == CONTENT[103:108]


@pytest.mark.parametrize("make", ["missing", "folder", "pipe", "device"])
def test_A9_what_is_no_file_is_not_opened(pool, tmp_path, make):
    path = str(tmp_path / "it")
    if make == "folder":
        os.mkdir(path)
    elif make == "pipe":
        os.mkfifo(path)  # opening one waits for a writer
    elif make == "device":
        path = os.devnull
    with pytest.raises(OSError, match=r"it|null"):
        pool.open(path)


def test_a_damaged_bool_is_an_error(pool, tmp_path):
    """Code that takes a byte for a truth value relies on its being 0 or 1."""
    (tmp_path / "f").write_bytes(b"\x00\x01" * 10 + b"\x02")
    held = pool.hold(Place(pool.open(str(tmp_path / "f")), 0, True), 21)
    with pytest.raises(ParseError, match="byte 2"):
        read(held)
    assert read(held, 0, 20) == b"\x00\x01" * 10


# processes and threads


@pytest.mark.requires("fork")
def test_A11_forked_children_read_by_themselves(held):
    child = os.fork()
    if not child:
        code = 1
        try:
            code = any(read(held, k, 20) != CONTENT[100 + k : 120 + k] for k in range(500))
        finally:
            os._exit(code)
    assert all(read(held, k, 20) == CONTENT[100 + k : 120 + k] for k in range(500))
    assert os.waitpid(child, 0)[1] == 0


def test_A11_eight_threads_read_one_file(pool, held):
    wrong = []

    def work(k):
        for i in range(200):
            at = (k * 37 + i) % 900
            part = held.part(at, 50)
            if read(part) != CONTENT[100 + at : 150 + at]:
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.bytes_in_use == 1000


def test_files_are_closed_with_their_last_buffer(pool, path):
    gc.collect()
    before = len(os.listdir("/dev/fd"))
    for _ in range(300):
        file = pool.open(path)
        first, second = pool.hold(Place(file, 0), 10), pool.hold(Place(file, 10), 10)
        del file, first
        assert read(second) == CONTENT[10:20]
        second.release()
    assert len(os.listdir("/dev/fd")) == before
