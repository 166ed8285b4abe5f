"""Common ground of all tests: strict settings, and where the published data lie."""

import contextlib
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest
import shorter
from calls import calls, often  # noqa: F401  (fixtures)
from jax._src import compiler
from planned import forget
from told import Shell

from jaxfl.algorithms.registry import TABLES

# Pictures are drawn to files; set before any test imports matplotlib.
os.environ.setdefault("MPLBACKEND", "Agg")

# Compiled programs are kept while the tests run: files, and workers, compile the same small ones.
# A worker finds the folder in its environment.
PROGRAMS = "JAXFL_TEST_PROGRAMS"
FIRST = "PYTEST_XDIST_WORKER" not in os.environ
OWN = os.environ.get("JAX_COMPILATION_CACHE_DIR")
if FIRST and os.environ.get("JAX_ENABLE_COMPILATION_CACHE") != "0":
    os.environ[PROGRAMS] = OWN or tempfile.mkdtemp(prefix="jaxfl-tests-")
if PROGRAMS in os.environ:
    jax.config.update("jax_compilation_cache_dir", os.environ[PROGRAMS])
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Programs started by tests keep nothing.
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "0"

# Tracing makes many short-lived objects, among which the collector finds next to nothing.
gc.set_threshold(200_000, 20, 100)

# Silent broadcasting and untyped keys are the two mistakes that still give plausible curves.
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_legacy_prng_key", "error")

# The first example of a property compiles, so no deadline. On a CI machine the examples are fixed.
hypothesis.settings.register_profile(
    "jaxfl", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True
)
hypothesis.settings.load_profile("jaxfl")

SHARED = Path(__file__).resolve().parents[2] / "shared"


# The mark of a case that is not its test's first.
ANOTHER = pytest.mark.full(reason="another case of its test")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of each parametrized test the first case is plain, and those marked `plain`; others are `full`."""
    seen: set[str] = set()
    for item in items:
        test = item.nodeid.split("[")[0]
        if item.get_closest_marker("full"):
            continue
        if test in seen and not item.get_closest_marker("plain"):
            item.add_marker(ANOTHER)
        seen.add(test)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One process where tests may be on a GPU, whose memory each would take; else one for each core."""
    on_cpu = "not gpu" in config.option.markexpr or os.environ.get("JAX_PLATFORMS") == "cpu"
    return None if on_cpu else 0


def pytest_configure(config: pytest.Config) -> None:
    """Compute on the CPU wherever GPU tests are deselected and nobody chose a platform."""
    if "not gpu" in config.option.markexpr and "JAX_PLATFORMS" not in os.environ:
        jax.config.update("jax_platforms", "cpu")


def pytest_unconfigure() -> None:
    if FIRST and not OWN and PROGRAMS in os.environ:
        shutil.rmtree(os.environ.pop(PROGRAMS), ignore_errors=True)


@contextlib.contextmanager
def _compiled_with(more: Mapping[str, Any]) -> Iterator[None]:
    """These options in every compilation, where JAX still makes them by this function of its own."""
    options = getattr(compiler, "get_compile_options", None)
    if options is None:
        yield
        return

    def made(*args: Any, env_options_overrides: Any = None, **rest: Any) -> Any:
        overrides = {**more, **(env_options_overrides or {})}
        return options(*args, env_options_overrides=overrides, **rest)

    with pytest.MonkeyPatch.context() as patch:  # of its own: tests undo theirs
        patch.setattr(compiler, "get_compile_options", made)
        yield


@pytest.fixture(autouse=True)
def _cheap(request: pytest.FixtureRequest) -> Iterator[None]:
    """Most of the time of fast tests is compilation: they do without its optimizations."""
    marks = [request.node.get_closest_marker(name) for name in ("full", "gpu", "optimized")]
    cheap = all(mark in (None, ANOTHER.mark) for mark in marks)
    jax.config.update("jax_disable_most_optimizations", cheap)
    with _compiled_with(shorter.known() if cheap and jax.default_backend() == "cpu" else {}):
        yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """What a test registers goes with it."""
    held = {kind: dict(table) for kind, table in TABLES.items()}
    yield
    for kind, table in TABLES.items():
        table.clear()
        table.update(held[kind])


@pytest.fixture(autouse=True, scope="module")
def _forget() -> Iterator[None]:
    """Thousands of compiled programs in one process would run into the limit of its memory maps."""
    yield
    forget()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and jax.default_backend() != "gpu":
        pytest.skip("no GPU here")


def _folder(variable: str, default: Path) -> Path:
    """The folder that `variable` names, or `default`: without either skip, at a wrong name fail."""
    named = os.environ.get(variable)
    folder = Path(named) if named else default
    if folder.is_dir():
        return folder.resolve()
    if named:
        pytest.fail(f"{variable} names {named}, which is not a folder")
    pytest.skip(f"needs files that are not in the repository: set {variable} to their folder")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The published data sets (a9a, MNIST, Adult, ...), from `JAXFL_DATA` or `../shared/data`."""
    return _folder("JAXFL_DATA", SHARED / "data")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder with `vectors/` and `data/`, from `JAXFL_SHARED` or `../shared`."""
    return _folder("JAXFL_SHARED", SHARED)


@pytest.fixture(autouse=True, scope="session")
def known_draws() -> Iterator[None]:
    """Runs without a key and a seed have those of key(0), but in tests of secret draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxfl.engine.simulate.system_key", lambda: jax.random.key(0))
        yield


@pytest.fixture
def key() -> jax.Array:
    """A typed key; tests that need several split it into names."""
    return jax.random.key(0)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The command line; see :class:`told.Shell`.  No other test knows what it imports."""
    monkeypatch.setattr("jaxfl.cli.imports.LOADED", {})
    return Shell(capsys)


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision for the length of one test."""
    with jax.enable_x64(True):
        yield
