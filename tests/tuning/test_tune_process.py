"""Children: what they answer, and what is lost when one hangs, aborts or is killed."""

import os
import signal
import sys
import threading
import time

import pytest

from weft.errors import TuningError
from weft.tuning.process import Child, Crew

WORKER = """
import os, signal, sys, time
from weft.errors import CompileError
from weft.tuning.process import serve

def echo(head, blobs):
    print("noise that must not mix with answers")
    return {"text": head["text"], "pid": os.getpid()}, [b[::-1] for b in blobs]

def hang(head, blobs):
    while True:
        time.sleep(1)

def refuse(head, blobs):
    raise CompileError("LLVM", found="nothing of use")

def die(head, blobs):
    os.kill(os.getpid(), getattr(signal, head["signal"]))
    time.sleep(60)

def garble(head, blobs):
    os.write(answers, b"nonsense\\n")
    return {}, ()

answers = os.dup(1)
serve({"echo": echo, "hang": hang, "refuse": refuse, "die": die, "garble": garble})
"""
COMMAND = [sys.executable, "-c", WORKER]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.fixture
def child():
    with Child(COMMAND, ENV) as made:
        yield made


def echo(child, text="hello", blobs=(b"abc", b"", b"\n{}")):
    return child.ask({"op": "echo", "text": text}, blobs, timeout=30)


def test_an_answer(child):
    head, blobs = echo(child)
    assert head["text"] == "hello"
    assert blobs == [b"cba", b"", b"}{\n"]
    assert echo(child)[0]["pid"] == head["pid"]
    assert child.starts == 1


def test_large_frames(child):
    data = os.urandom(3 << 20)
    assert echo(child, "x" * 100_000, [data])[1] == [data[::-1]]


def test_a_typed_error_is_an_answer(child):
    head, _ = child.ask({"op": "refuse"}, timeout=30)
    assert "nothing of use" in head["error"]
    assert echo(child)[0]["text"] == "hello"
    assert child.starts == 1


def test_a_hang_ends_at_the_limit(child):
    echo(child)
    with pytest.raises(TuningError, match="hung"):
        child.ask({"op": "hang"}, timeout=0.3)
    assert echo(child)[0]["text"] == "hello"
    assert child.starts == 2


@pytest.mark.grid
@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGKILL", "SIGILL"])
def test_a_death_loses_one_request(child, name):
    with pytest.raises(TuningError, match="ended its process"):
        child.ask({"op": "die", "signal": name}, timeout=30)
    assert echo(child)[0]["text"] == "hello"


def test_nonsense_is_a_loss(child):
    with pytest.raises(TuningError):
        child.ask({"op": "garble"}, timeout=30)
    assert echo(child)[0]["text"] == "hello"


def test_a_crew_answers_everything():
    requests = [{"op": "echo", "text": str(i)} for i in range(12)]
    requests[3] = {"op": "die", "signal": "SIGKILL"}
    with Crew(COMMAND, ENV, 2) as crew:
        found = dict(crew.work(requests, timeout=60))
    assert sorted(found) == list(range(12))
    assert isinstance(found[3], TuningError)
    for i in set(range(12)) - {3}:
        assert found[i][0]["text"] == str(i)


def test_a_crew_that_hangs_answers_later_requests():
    with Crew(COMMAND, ENV, 2) as crew:
        hung = dict(crew.work([{"op": "hang"}] * 3, timeout=0.3))
        found = dict(crew.work([{"op": "echo", "text": str(i)} for i in range(3)], timeout=60))
    assert sorted(hung) == [0, 1, 2]
    assert all(isinstance(loss, TuningError) for loss in hung.values())
    assert [found[i][0]["text"] for i in range(3)] == ["0", "1", "2"]


def test_a_command_that_does_not_start_is_a_loss():
    with Crew(["/nowhere/python"], ENV, 1) as crew:
        ((_, found),) = crew.work([{"op": "echo", "text": ""}], timeout=60)
    assert isinstance(found, TuningError)


def test_closing_ends_the_process(child):
    pid = echo(child)[0]["pid"]
    child.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_orphan_ends_by_itself():
    """Its parent is killed: at the end of its input the child leaves."""
    program = (
        "import sys, time\n"
        "from weft.tuning.process import Child\n"
        f"child = Child({COMMAND!r})\n"
        "print(child.ask({'op': 'echo', 'text': ''}, timeout=30)[0]['pid'], flush=True)\n"
        "time.sleep(60)\n"
    )
    import subprocess

    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=ENV)
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 60
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(pid)


def alive(pid):
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_requests_of_several_threads_in_turn():
    """A crew is used by one thread, but children of several crews do not disturb each other."""
    found = []

    def use(text):
        with Child(COMMAND, ENV) as child:
            found.append(echo(child, text)[0]["text"])

    threads = [threading.Thread(target=use, args=(str(i),)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["0", "1", "2"]
