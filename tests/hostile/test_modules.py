"""Python files with a mistake in one function of a part: one sentence, and the line of the file."""

import contextlib
import io
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planned import federated
from told import SYNTHETIC, refused

import jaxfl
from jaxfl.algorithms import trial
from jaxfl.algorithms.registry import TABLES
from jaxfl.cli import imports, main
from jaxfl.parts import compose, plain

pytestmark = pytest.mark.once

TABLE = tomllib.loads((Path(__file__).parent / "modules.toml").read_text())
WORDS = f"run own {SYNTHETIC} --rounds 2 --no-plot --out out --quiet --import mine.py"
BOTH = TABLE["damage"]["both"]
CASES = {
    f"{role}.{field} {kind}": (role, field, damage, kind in fine)
    for role, about in TABLE["part"].items()
    for where in ("host", "traced")
    for field, fine in about.get(where, {}).items()
    for kind, damage in {**BOTH, **TABLE["damage"][where]}.items()
}
PLAIN = (
    "compressor.bits nan",
    "sampler.draw branches",
    "server.step raises",
    "channel.after halves",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, as in another process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(imports, "LOADED", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = {*sys.modules}
    yield
    TABLES["algorithm"].pop("own", None)
    for name in {*sys.modules} - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def said(words: str, **files: str) -> tuple[int, str, str]:
    """How a command ends, and what it prints, with these files."""
    for name, text in files.items():
        Path(f"{name}.py").write_text(text)
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        status = main(words.split())
    return status, out.getvalue(), error.getvalue()


def module(role: str, field: str, damage: str) -> str:
    about = {"more": "", **TABLE["part"][role], "role": role, "field": field}
    return TABLE["module"].format(damage=damage.strip(), **about)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.plain] * (n in PLAIN)) for n in CASES]
)
def test_a_mistake_in_a_part(name: str) -> None:
    role, field, damage, elsewhere = CASES[name]
    status, out, error = said(WORDS, mine=module(role, field, damage))
    first, *lines = error.splitlines() or [""]
    assert (out, "Traceback" in error, len(error) < 2000) == ("", False, True)
    if elsewhere and (status in (0, 3) or first.startswith("jaxfl: error: ")):
        return  # no mistake, one that a probe refutes, or one that shows in another function
    assert status == 2
    assert re.match(rf"jaxfl: error: The {field} of the {role} 'mine'.*[.?]$", first)
    assert any(re.search(rf"mine\.py, line \d+, in {field}\b", line) for line in lines)


def test_all_of_an_error() -> None:
    error = said(f"{WORDS} --traceback", mine=module("server", "step", BOTH["raises"]))[2]
    assert error.startswith("Traceback")
    assert "jaxfl: error: The step of the server 'mine' raises ValueError: boom." in error


def test_files_that_are_run() -> None:
    """Modules beside a file, what it prints, NumPy's errors, and names that two files register."""
    own = "import jaxfl, numpy as np\nimport beside\nprint('loud')\nnp.seterr(all='raise')\n"
    own += (
        "@jaxfl.register\ndef own():\n    print('loud')\n    return jaxfl.algorithm(beside.NAME)\n"
    )
    words = f"{WORDS.replace('--quiet', '--json')} --sigma 1 --batch 2"
    status, out, error = said(words, mine=own, beside="NAME = 'ldp_sgd'")
    assert (status, json.loads(out)["algorithm"], "loud" in error) == (0, "own", True)
    assert np.geterr()["over"] == "warn"
    other = "import jaxfl\n@jaxfl.register\ndef own(): return jaxfl.algorithm('ldp_sgd')"
    error = said(f"{WORDS} --import other.py", other=other)[2]
    assert "other.py registers the algorithm 'own', and so does mine.py: rename one" in error
    assert len(said("list --import long.py", long="raise ValueError('x' * 100_000)")[2]) < 1000


def problem() -> Any:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(3, 8, 4)).astype("float32"), rng.integers(0, 2, (3, 8))
    return jaxfl.Problem(jaxfl.models.logistic(4), data)


def of(defaults: dict[str, Any], **parts: Any) -> Any:
    numbers = {"clip": 1.0, "batch": 4, "lr": 0.1, "sigma": 0.5, **defaults}
    return compose("own", "", "", federated(**parts), plain(**numbers))


def heavy(weight: float, beyond: int = 0) -> Any:
    base = jaxfl.parts.sampling.without_replacement()

    def draw(*args: Any) -> Any:
        rows = base.draw(*args)
        return jaxfl.parts.Draw(rows.index + beyond, jnp.full_like(rows.weight, weight))

    return jaxfl.parts.estimators.minibatch(base._replace(name="mine", draw=draw))


LOUD = jaxfl.parts.mechanisms.gaussian()._replace(name="mine", std=lambda hp: hp["sigma"] / 0)
MISTAKES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sets lr = ": ({"lr": np.ones(2)}, {}),
    "sigma = inf must be": ({"sigma": np.inf}, {}),
    "lr = -1 must be at least 0": ({"lr": -1}, {}),
    "The draw of the sampler 'mine' returns the weight 2.5": ({}, {"estimator": heavy(2.5)}),
    "the sampler 'mine' returns the position": ({}, {"estimator": heavy(0.1, 99)}),
    "The std of the mechanism 'mine' is inf": ({}, {"mechanism": LOUD}),
}


@np.errstate(all="raise")
def test_settings_of_numpy_do_not_matter() -> None:
    assert jaxfl.simulate("ldp_sgd", problem(), rounds=2, eps=5, batch=2).privacy().proven <= 5


def test_functions_of_a_model() -> None:
    model = jaxfl.models.logistic(4)._replace(project=lambda x: x[:2])
    refused(
        lambda: jaxfl.Problem(model, problem().train),
        r"project of model .* returns float32\[2",
    )


@pytest.mark.plain
@pytest.mark.parametrize("words", MISTAKES)
def test_a_number_out_of_range(words: str) -> None:
    defaults, parts = MISTAKES[words]
    refused(lambda: jaxfl.simulate(of(defaults, **parts), problem(), rounds=2), words)


@pytest.mark.full
def test_a_trial_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own parts are traced once more, jaxfl's own are not, and draws stay what they are."""
    traced: list[str] = []
    trace = trial._trace.__wrapped__
    monkeypatch.setattr(trial, "_trace", lambda a, *rest: (traced.append(a.name), trace(a, *rest)))
    ends = [
        jaxfl.simulate(of({}, estimator=estimator), problem(), jax.random.key(0), 2).x
        for estimator in (
            heavy(0.25),
            jaxfl.parts.estimators.minibatch(jaxfl.parts.sampling.without_replacement()),
        )
    ]
    assert traced == ["own"]
    np.testing.assert_array_equal(*ends)
