"""C compilers: which one is taken, what it makes, and programs that are none."""

import ctypes
import os
import stat
import threading
import time

import pytest

from capabilities import missing
from weft.backends import cpu
from weft.compilers import c, c_trial
from weft.compilers.c import COMPILERS, CCompiler, find_compiler
from weft.compilers.llvm import session
from weft.config import Config, reset
from weft.errors import CompileError, LibraryNotFoundError, ParseError
from weft.renderers.cstyle.c.target import c_target
from weft.store import DiskCache

ADD = """
__attribute__((visibility("default"))) long long add(long long a, long long b) { return a + b; }
"""
Binary = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)

needs_compiler = pytest.mark.requires("cpu/c")


@pytest.fixture(scope="module")
def target():
    return c_target(cpu.host_target())


@pytest.fixture
def compiler(target):
    return find_compiler(target)


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a program of the shell and returns its path."""

    def write(text, name="cc"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return write


def refusal(path, target, **options):
    with pytest.raises(CompileError) as caught:
        CCompiler(path, target, **options)
    return str(caught.value)


# programs that are no compilers

SAYS = 'if [ "$1" = --version ]; then echo "clang version 99.1.0"; exit 0; fi\n'
LAST = 'while [ "$1" != -o ]; do shift; done\n'  # "$2" is then the file to write


@pytest.mark.parametrize(("text", "reason"), [
    ("exit 0", "it says nothing"),
    ("exit 1", "exit status 1"),
    ("echo sorry >&2; exit 3", "exit status 3: sorry"),
    ("echo hello", "it names no version"),
    ("kill -SEGV $$", "signal 11"),
    (SAYS + "exit 0", "it wrote no file"),
    (SAYS + "echo no such thing >&2; exit 1", "exit status 1: no such thing"),
    (SAYS + LAST + 'echo nonsense > "$2"', "no object file"),
    (SAYS + LAST + ': > "$2"', "an empty file"),
    (SAYS + LAST + 'mkdir "$2"', "no file"),
    (SAYS + LAST + 'ln -s /dev/zero "$2"', "cannot be read"),
    (SAYS + LAST + 'mkfifo "$2"', "no file"),
    (SAYS + LAST + 'head -c 6000000 /dev/zero > "$2"', "6000000 bytes"),
    (SAYS + LAST + 'printf "\\177ELF\\001\\001" > "$2"; head -c 99 /dev/zero >> "$2"',
     "another size of words"),
    (SAYS + LAST + 'printf "\\177ELF\\002\\001" > "$2"; head -c 99 /dev/zero >> "$2"',
     "another machine"),
])  # fmt: skip
def test_B3_what_is_no_compiler_is_refused_with_the_reason(text, reason, program, target):
    assert reason in refusal(program(text), target)


def test_B3_a_program_that_does_not_end_is_killed(program, target, monkeypatch, tmp_path):
    """With all that it has started."""
    monkeypatch.setattr(c_trial, "_VERSION_SECONDS", 0.3)
    alive = tmp_path / "alive"
    path = program(f"(while :; do echo >> {alive}; sleep 0.05; done) & sleep 1000")
    assert "did not end within 0.3 s" in refusal(path, target)
    size = alive.stat().st_size if alive.exists() else 0
    time.sleep(0.3)
    assert (alive.stat().st_size if alive.exists() else 0) == size


@needs_compiler
def test_B3_an_old_compiler_is_refused(target, monkeypatch, compiler):
    least = dict.fromkeys(c_trial._LEAST, (999, 0))
    monkeypatch.setattr(c_trial, "_LEAST", least)
    assert "999.0 is the first that serves" in refusal(compiler.path, target)


def test_nothing_is_left_in_the_folder_for_temporary_files(program, target, monkeypatch, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    refusal(program(SAYS + LAST + 'echo nonsense > "$2"; echo > "$2.more"'), target)
    assert not list(folder.iterdir())


# the choice between several


@needs_compiler
def test_B3_the_first_that_serves_is_taken(program, target, compiler):
    stub = program("exit 1")
    found = find_compiler(target, (stub, "/no/such/program", compiler.path))
    assert found.path == compiler.path
    assert found.family in ("clang", "gcc")


def test_B3_where_none_serves_each_reason_is_told(program, target, tmp_path):
    names = (program("exit 1"), str(tmp_path / "absent"), "weft-no-such-compiler", "./cc")
    with pytest.raises(LibraryNotFoundError) as caught:
        find_compiler(target, names)
    text = str(caught.value)
    for reason in ("exit status 1", "is no program", "weft-no-such-compiler is not on PATH",
                   "depends on the working folder"):  # fmt: skip
        assert reason in text


@needs_compiler
def test_B3_settings_name_compilers(target, compiler, monkeypatch, program):
    monkeypatch.setenv("WEFT_CC", compiler.path)
    reset()
    try:
        assert find_compiler(target).path == compiler.path
        monkeypatch.setenv("WEFT_CC", program("exit 1"))
        reset()
        with pytest.raises(LibraryNotFoundError):
            find_compiler(target)
    finally:
        monkeypatch.delenv("WEFT_CC")
        reset()


def test_B3_settings_of_the_environment_and_of_the_file(tmp_path):
    assert Config.load({"WEFT_CC": "clang-15, gcc"}).cc == ("clang-15", "gcc")
    assert Config.load({}).cc == ()
    with pytest.raises(ParseError):
        Config(cc="gcc")


def test_programs_of_the_working_folder_are_not_run(program, target, monkeypatch, tmp_path):
    """Whatever PATH says of the folder: anybody may have put a file there."""
    program(f"touch {tmp_path}/ran", "gcc-of-somebody")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "." + os.pathsep + os.environ["PATH"])
    with pytest.raises(LibraryNotFoundError):
        find_compiler(target, ("gcc-of-somebody",))
    assert not (tmp_path / "ran").exists()


def test_capabilities_tell_the_reason_where_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(c, "_found", {})
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in COMPILERS:
        assert f"{name} is not on PATH" in missing("cpu/c")


# what it makes


@needs_compiler
@pytest.mark.parametrize("pipeline", ["none", "quick", "short", "O3", "Os"])
def test_every_level_makes_an_object_that_runs(pipeline, compiler):
    library = session().load(compiler.compile(ADD, pipeline), ["add"])
    assert Binary(library["add"])(40, 2) == 42
    library.unload()


@needs_compiler
@pytest.mark.parametrize("source", ["int f(void) { return }", "#error no\n", "\0\1\2"])
def test_text_that_is_no_c_is_refused(source, compiler):
    with pytest.raises(CompileError):
        compiler.compile(source)
    with pytest.raises(CompileError, match="pipeline"):
        compiler.compile(ADD, "O9")
    assert compiler.compile(ADD)


@needs_compiler
def test_compile_is_deterministic(compiler):
    assert compiler.compile(ADD) == compiler.compile(ADD)


@needs_compiler
def test_what_users_set_for_their_builds_changes_nothing(compiler, monkeypatch, tmp_path):
    (tmp_path / "stdint.h").write_text("#error found\n")
    made = compiler.compile(ADD)
    for name in ("CPATH", "C_INCLUDE_PATH", "COMPILER_PATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("CFLAGS", "-ffast-math")
    assert compiler.compile(ADD) == made


@needs_compiler
def test_threads_compile_at_once(compiler):
    made, failures = [], []

    def work(k):
        try:
            made.append(compiler.compile(ADD.replace("a + b", f"a + b + {k % 3}")))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(set(made)) == 3


# a compiler that changes


@needs_compiler
def test_a_replaced_compiler_is_another_one(compiler, target, program):
    """Its key changes; what is compiled in between with the old key is an error."""
    path = program(f'exec {compiler.path} "$@"')
    found = CCompiler(path, target)
    key = found.cache_key
    assert found.cache_key == key
    assert found.compile(ADD)
    os.remove(path)
    program(f'exec {compiler.path} "$@"\n# another build of it')
    with pytest.raises(CompileError, match="was replaced"):
        found.compile(ADD)
    assert found.cache_key != key
    assert found.compile(ADD)


@needs_compiler
def test_a_compiler_replaced_by_a_stub_or_by_nothing_is_refused(compiler, target, program):
    path = program(f'exec {compiler.path} "$@"')
    found = CCompiler(path, target)
    os.remove(path)
    program("exit 1 # now")
    with pytest.raises(CompileError, match="exit status 1"):
        _ = found.cache_key
    os.remove(path)
    with pytest.raises(CompileError):
        found.compile(ADD)
    with pytest.raises(CompileError):
        _ = found.cache_key


@needs_compiler
@pytest.mark.parametrize(("text", "reason"), [
    ("exit 1", "exit status 1"), ("exit 0", "wrote no file"),
    (LAST + 'echo nonsense > "$2"', "no object file"), ("sleep 1000", "did not end within"),
    ("kill -KILL $$", "exit status -9"),
])  # fmt: skip
def test_a_compiler_that_fails_later_is_an_error(text, reason, compiler, target, program, tmp_path):
    """It passed its trial, and no longer does what it did."""
    flag = tmp_path / "flag"
    path = program(f'if [ ! -e {flag} ]; then exec {compiler.path} "$@"; fi\n{text}')
    found = CCompiler(path, target, seconds=30.0)
    assert found.compile(ADD)
    flag.touch()
    found.seconds = 0.5 if "sleep" in text else 30.0
    with pytest.raises(CompileError, match=reason):
        found.compile(ADD)
    flag.unlink()
    found.seconds = 30.0
    assert found.compile(ADD)


@needs_compiler
def test_B2_keys_hold_version_file_and_arguments(compiler, target):
    narrow = CCompiler(compiler.path, target.replace(features=(), vector_bytes=16))
    assert narrow.cache_key != compiler.cache_key or not target.features
    for part in (compiler.path, "-ffp-contract=off", "-fno-math-errno"):
        assert part in compiler.cache_key
    assert "-ffast-math" not in compiler.cache_key


@needs_compiler
def test_good_trials_are_remembered_and_damaged_records_are_not_believed(compiler, target,
                                                                         tmp_path, program):
    log = tmp_path / "log"
    path = program(f'echo "$@" >> {log}\nexec {compiler.path} "$@"')
    cache = DiskCache(tmp_path / "cache")

    def trials():
        before = log.read_text().count("trial.c") if log.exists() else 0
        CCompiler(path, target, cache)
        return log.read_text().count("trial.c") - before

    assert trials() == 1
    assert trials() == 0
    for file in (tmp_path / "cache").rglob("*"):
        if file.is_file():
            file.write_bytes(b"[1, 2")
    assert trials() == 1
