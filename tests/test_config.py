"""Settings: the environment, the config file, and what happens when either is wrong."""

import os
import subprocess
import sys

import pytest

from weft import config as settings
from weft.config import AutotuneConfig, BackendConfig, Config, Debug
from weft.errors import ParseError

LIMITS = {
    "save_to_disk": True,
    "n_launches": 1,
    "n_seeds": 100,
    "n_added_per_step": 10,
    "n_removed_per_step": 5,
    "n_total_opts": 1000,
}


@pytest.fixture(autouse=True)
def _fresh():
    settings.reset()
    yield
    settings.reset()


@pytest.fixture
def load(tmp_path):
    """Load a config from file text and environment variables."""

    def load(text="", **environ):
        file = tmp_path / "config.toml"
        file.write_text(text)
        return Config.load({"WEFT_CONFIG": str(file), **environ})

    return load


def limits(autotune):
    return {name: getattr(autotune, name) for name in LIMITS}


def test_defaults(load):
    config = load()
    assert config == Config()
    assert (config.device, config.cache_dir, config.num_threads) == (None, None, None)
    assert (config.debug, config.require) == (0, frozenset())
    assert limits(config.autotune) == LIMITS
    assert config.backend("cuda") == BackendConfig() == BackendConfig(True, None)


def test_environment(load):
    config = load(
        WEFT_DEVICE=" cpu/c ",
        WEFT_CACHE_DIR="/somewhere",
        WEFT_NUM_THREADS="3",
        WEFT_DEBUG="0x11",
        WEFT_REQUIRE="cpu, Torch,",
    )
    assert config.device == "cpu/c"
    assert config.cache_dir == "/somewhere"
    assert config.num_threads == 3
    assert config.debug == Debug.DEVICE | Debug.SOURCE
    assert config.require == {"cpu", "torch"}


def test_empty_variables_count_as_absent(load):
    empty = ["DEVICE", "CACHE_DIR", "NUM_THREADS", "DEBUG", "REQUIRE", "BACKEND_CUDA"]
    assert load(**{f"WEFT_{name}": "" for name in empty}) == Config()


def test_an_empty_environment_is_not_the_process_environment(monkeypatch):
    monkeypatch.setenv("WEFT_NUM_THREADS", "7")
    monkeypatch.setattr(settings, "_default_path", lambda: os.devnull)
    assert Config.load({}).num_threads is None
    assert Config.load().num_threads == 7


@pytest.mark.parametrize("text", ["", "[backends.cuda]\nenabled = false\nids = [0, 2]"])
@pytest.mark.parametrize("enabled", [None, "0", "1", "False", "on"])
@pytest.mark.parametrize("ids", [None, "3", "1,0"])
def test_A1_matrix_of_backends(load, text, enabled, ids):
    environ = {"WEFT_BACKEND_CUDA": enabled, "WEFT_BACKEND_CUDA_IDS": ids}
    config = load(text, **{key: value for key, value in environ.items() if value is not None})
    cuda = config.backend("cuda")
    assert cuda.enabled == (not text if enabled is None else enabled in ("1", "on"))
    if ids is None:
        assert cuda.ids == ((0, 2) if text else None)
    else:
        assert cuda.ids == tuple(map(int, ids.split(",")))
    assert config.backend("hip") == BackendConfig()


def test_backends_with_a_slash(load):
    assert not load('[backends."cpu/c"]\nenabled = false').backend("cpu/c").enabled
    assert not load(WEFT_BACKEND_CPU_C="no").backend("cpu/c").enabled
    assert load(WEFT_BACKEND_CPU_C="no").backend("cpu").enabled


def test_A5_tuning(load):
    assert (load().tune, load().tune_seconds) == (False, 30)
    config = load(WEFT_TUNE="1", WEFT_TUNE_SECONDS="7")
    assert (config.tune, config.tune_seconds) == (True, 7)
    text = "tune = true\ntune_seconds = 5"
    assert (load(text).tune, load(text).tune_seconds) == (True, 5)
    assert load(text, WEFT_TUNE="0").tune is False
    for wrong in ({"WEFT_TUNE": "perhaps"}, {"WEFT_TUNE_SECONDS": "0"}):
        with pytest.raises(ParseError, match=next(iter(wrong))):
            load(**wrong)


@pytest.mark.parametrize("name", LIMITS)
def test_A5_each_autotune_limit(load, name):
    value, text = (False, "false") if name == "save_to_disk" else (7, "7")
    expected = LIMITS | {name: value}
    assert limits(load(f"[autotune]\n{name} = {text}").autotune) == expected
    assert limits(load(**{f"WEFT_AUTOTUNE_{name.upper()}": text}).autotune) == expected
    assert limits(AutotuneConfig(**{name: value})) == expected


def test_environment_beats_file(load):
    text = "[autotune]\nn_launches = 3\nn_seeds = 4"
    autotune = load(text, WEFT_AUTOTUNE_N_LAUNCHES="9").autotune
    assert (autotune.n_launches, autotune.n_seeds) == (9, 4)


@pytest.mark.parametrize(
    ("text", "key", "found"),
    [
        ("autotune = 3", "autotune", "3"),
        ("[autotune]\nn_launches = '3'", "autotune.n_launches", "'3'"),
        ("[autotune]\nn_launches = 0", "autotune.n_launches", "0"),
        ("[autotune]\nn_launches = true", "autotune.n_launches", "True"),
        ("[autotune]\nn_launches = 1.5", "autotune.n_launches", "1.5"),
        ("[autotune]\nsave_to_disk = 1", "autotune.save_to_disk", "1"),
        ("[autotune]\nn_lunches = 1", "autotune", "'n_lunches'"),
        ("backends = []", "backends", "[]"),
        ("backends.cuda = true", "backends.cuda", "True"),
        ("[backends.cuda]\nenabled = 'yes'", "backends.cuda.enabled", "'yes'"),
        ("[backends.cuda]\nids = 0", "backends.cuda.ids", "0"),
        ("[backends.cuda]\nids = [0, -1]", "backends.cuda.ids", "-1"),
        ("[backends.cuda]\nids = [1, 1]", "backends.cuda.ids", "[1, 1]"),
        ("[backends.cuda]\nid = [1]", "backends.cuda", "'id'"),
        ("[cache]\nsize = 1", "config", "'cache'"),
        ("not toml", "config file", "config.toml"),
        ("a = '\udcff'", "config file", "config.toml"),
    ],
)
def test_malformed_file(tmp_path, text, key, found):
    file = tmp_path / "config.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ParseError) as caught:
        Config.load({"WEFT_CONFIG": str(file)})
    assert caught.value.operation == key
    assert found in caught.value.found
    assert caught.value.expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WEFT_DEVICE", "GPU 0"),
        ("WEFT_DEVICE", "cuda:"),
        ("WEFT_DEVICE", "cpu/"),
        ("WEFT_NUM_THREADS", "0"),
        ("WEFT_NUM_THREADS", "-2"),
        ("WEFT_NUM_THREADS", "two"),
        ("WEFT_NUM_THREADS", "1.5"),
        ("WEFT_DEBUG", "512"),
        ("WEFT_DEBUG", "-1"),
        ("WEFT_DEBUG", "graph"),
        ("WEFT_BACKEND_CUDA", "maybe"),
        ("WEFT_BACKEND_CUDA_IDS", "0;1"),
        ("WEFT_BACKEND_CUDA_IDS", "-1"),
        ("WEFT_AUTOTUNE_SAVE_TO_DISK", "2"),
    ],
)
def test_malformed_environment(load, name, value):
    with pytest.raises(ParseError, match=name) as caught:
        load(**{name: value})
    assert value.split(";")[0] in caught.value.found
    assert caught.value.expected


@pytest.mark.parametrize(("name", "value"), [("N_LAUNCHES", "0"), ("N_SEEDS", "x")])
def test_malformed_autotune_environment(load, name, value):
    with pytest.raises(ParseError, match=f"(?i)autotune.{name}"):
        load(**{f"WEFT_AUTOTUNE_{name}": value})


def test_named_file_must_be_there(tmp_path):
    with pytest.raises(ParseError, match="not there"):
        Config.load({"WEFT_CONFIG": str(tmp_path / "gone.toml")})
    with pytest.raises(ParseError, match="readable"):
        Config.load({"WEFT_CONFIG": str(tmp_path)})


def test_default_file_may_be_absent(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "_default_path", lambda: str(tmp_path / "config.toml"))
    assert Config.load({}) == Config()
    (tmp_path / "config.toml").write_text("[autotune]\nn_seeds = 2")
    assert Config.load({}).autotune.n_seeds == 2


@pytest.mark.parametrize("home", [None, "", "here", "/home/me", "/"])
@pytest.mark.parametrize("base", [None, "", "  ", "here", "~/mine", "/elsewhere", "/elsewhere/"])
@pytest.mark.parametrize("kind", ["config", "cache"])
def test_user_folder_is_as_platformdirs_says(kind, base, home, monkeypatch):
    import platformdirs

    for name, value in ((f"XDG_{kind.upper()}_HOME", base), ("HOME", home)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    expected = getattr(platformdirs, f"user_{kind}_dir")("weft", appauthor=False)
    assert settings.user_folder(kind) == expected
    monkeypatch.setattr(sys, "platform", "other")
    assert settings.user_folder(kind) == expected


@pytest.mark.parametrize("platform", [sys.platform, "other"])
def test_who_has_no_home_has_no_folder(platform, monkeypatch, tmp_path):
    import platformdirs

    def unknown(name, appauthor):
        raise RuntimeError("could not determine the home directory")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("tiered = true")
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HOME", "WEFT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(sys, "platform", platform)
    for find in (unknown, lambda name, appauthor: "~/.cache/weft"):
        for kind in ("config", "cache"):
            monkeypatch.setattr(platformdirs, f"user_{kind}_dir", find)
            assert settings.user_folder(kind) == ""
        assert Config.load({}) == Config()


def test_default_file_is_in_the_users_config_folder():
    folder = settings.user_folder("config")
    assert settings._default_path() == os.path.join(folder, "config.toml")


def test_constructors_check():
    for wrong in (
        lambda: Config(num_threads=0),
        lambda: Config(debug=1024),
        lambda: Config(device="a b"),
        lambda: AutotuneConfig(n_seeds=0),
        lambda: BackendConfig(ids=(-1,)),
        lambda: BackendConfig(enabled=2),
    ):
        with pytest.raises(ParseError):
            wrong()


def test_read_once_until_reset(monkeypatch):
    monkeypatch.setenv("WEFT_CONFIG", os.devnull)
    monkeypatch.setenv("WEFT_DEBUG", "4")
    first = settings.config()
    monkeypatch.setenv("WEFT_DEBUG", "8")
    assert settings.config() is first
    assert settings.debug(Debug.SCHEDULE)
    assert not settings.debug(Debug.IR)
    settings.reset()
    assert settings.debug(Debug.IR)
    settings.reset(Config(debug=Debug.COMPILE))
    assert settings.debug(Debug.COMPILE)
    assert not settings.debug(Debug.IR)


def test_bits_are_as_documented():
    bits = {name: bit for name, bit in vars(Debug).items() if name.isupper() and name != "ALL"}
    assert list(bits.values()) == [1 << shift for shift in range(9)]
    assert sum(bits.values()) == Debug.ALL


def test_records_are_immutable_and_print():
    config = Config(num_threads=2)
    with pytest.raises(AttributeError, match="num_threads is read-only"):
        config.num_threads = 3
    assert "num_threads=2" in repr(config)
    assert config != Config()
    assert config != 2


def test_wrong_environment_does_not_break_the_import():
    script = "import weft; print('ok')"
    environ = os.environ | {"WEFT_DEBUG": "nonsense"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.parametrize("text", ["[backends.cpu]\nenabled = 'yes'", "unknown = 1",
                                  "[autotune]\nn_seeds = 1.5", "cc = 3", "tune_seconds = 0",
                                  "[backends]\ncpu = 3", "[backends.opencl]\nids = [-1]"])
def test_what_is_wrong_in_the_file_names_the_file(load, tmp_path, text):
    with pytest.raises(ParseError, match=f"in {tmp_path}") as caught:
        load(text)
    assert str(caught.value).count(str(tmp_path)) == 1


def test_what_is_wrong_in_the_environment_does_not_name_the_file(load, tmp_path):
    with pytest.raises(ParseError, match="WEFT_NUM_THREADS") as caught:
        load("", WEFT_NUM_THREADS="two")
    assert str(tmp_path) not in str(caught.value)
