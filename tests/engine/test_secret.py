"""Published results give no label away, and the noise of runs without a key or seed is secret."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows import a_problem
from told import SYNTHETIC, Shell, refused

import jaxfl
from jaxfl.core import secret
from jaxfl.core.types import Problem
from jaxfl.engine import results, runs
from jaxfl.engine.functions import RunState
from jaxfl.engine.plan import key_word
from jaxfl.problems.identity import fingerprint, objective

GIVEN: Any = {"clip": 1.0, "sigma": 5.0, "lr": 0.1, "eval_every": 0, "metrics_on": "test"}
SPAN = "--batch 3 --sigma 0.05 --lr 0.1 --rounds 4"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxfl.engine.simulate.system_key", secret.system_key)


def one_round(problem: Problem, **options: Any) -> jaxfl.Run:
    return jaxfl.simulate("ldp_gd", problem, rounds=1, **GIVEN, **options)


def candidates() -> list[Problem]:
    """The problem with either label of the first record; all else is known to the attacker."""
    problem = a_problem()
    a, y = problem.train
    return [dataclasses.replace(problem, train=(a, y.at[0, 0].set(label))) for label in (0, 1)]


def by_checksum(held: list[Any], x: Any, posed: Problem) -> bool:
    return fingerprint(posed) in held


def by_loss(held: list[Any], x: Any, posed: Problem) -> bool:
    return objective(posed).split()[0] in " ".join(map(str, held)).split()


def by_key(held: list[Any], x: Any, posed: Problem) -> bool:
    """Draw the same noise again, with every pair of words of the file and with small seeds."""
    keys = [jax.random.fold_in(jax.random.key(0), s) for s in range(3)]
    for words in held:
        if np.shape(words) == (2,) and np.asarray(words).dtype.kind in "iu":
            keys.append(jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32)))
    f = jaxfl.functions("ldp_gd", posed, 1, clip=1.0, sigma=5.0, lr=0.1)
    starts = [RunState(key, f.algorithm.init(key, posed, f.hp)[0]) for key in keys]
    return any(np.allclose(f.output(f.round(start)[0]), x, rtol=0, atol=1e-5) for start in starts)


def leaves(value: Any) -> list[Any]:
    """Everything in the settings of a file: tables and lists, and what they hold."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(leaf for part in inner for leaf in leaves(part))]


ATTACKS: tuple[Callable[..., bool], ...] = (by_checksum, by_loss, by_key)


def learned(attack: Callable[..., bool], held: list[Any], x: Any) -> int | None:
    """The label that an attack finds, where it holds for one of both."""
    found = [attack(held, x, posed) for posed in candidates()]
    return found.index(True) if sum(found) == 1 else None


@pytest.mark.plain
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("label", [0, 1])
def test_no_attack_on_a_published_file_finds_a_label(
    attack: Callable[..., bool], label: int, tmp_path: Path, drawn: None
) -> None:
    run = one_round(candidates()[label])
    about = results.config(jaxfl.load(run.save(tmp_path / "published.nc")))
    assert learned(attack, leaves(about), run.x) is None
    # the attack finds it in what earlier versions published
    key = np.asarray(jax.random.key_data(run.key)).tolist()
    assert learned(attack, leaves({**run.settings, "key": key}), run.x) == label


def test_a_sweep_publishes_no_more(tmp_path: Path, drawn: None) -> None:
    problem = candidates()[1]
    given = {**GIVEN, "sigma": [5.0, 6.0]}
    jaxfl.sweep("ldp_gd", problem, rounds=1, out=tmp_path / "s", keep=["x"], **given)
    ds = jaxfl.load(tmp_path / "s")
    for attack in ATTACKS:
        assert learned(attack, leaves(results.config(ds)), ds["x"].values[0, 0]) is None


def test_digests_can_be_compared_and_are_salted(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("pooch.os_cache", lambda _: str(tmp_path / "cache"))
    secret._salt.cache_clear()
    one, two = secret.salted("a"), secret.salted("b")
    assert one != two
    assert one.split(":")[0] == two.split(":")[0]
    secret._salt.cache_clear()
    assert secret.salted("a") == one
    assert (tmp_path / "cache" / "salt").stat().st_mode & 0o77 == 0
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["salt"]
    (tmp_path / "cache" / "salt").unlink()
    secret._salt.cache_clear()
    assert secret.salted("a").split(":")[0] != one.split(":")[0]
    secret._salt.cache_clear()
    monkeypatch.setattr("pooch.os_cache", lambda _: "/proc/none")
    assert secret.salted("a") == secret.salted("a")  # of this process alone
    secret._salt.cache_clear()
    about = runs.settings(jaxfl.algorithm("ldp_gd"), a_problem(), one_round(a_problem()).standing)
    assert runs.published(about, jax.random.key(0))["objective"].split()[0] == "-"


def test_without_a_key_or_seed_nobody_knows_the_noise(tmp_path: Path, drawn: None) -> None:
    problem = a_problem()
    runs = [one_round(problem) for _ in range(2)]
    seeded = [one_round(problem, seed=s) for s in (0, 0, 1)]
    given = one_round(problem, key=jax.random.key(0))
    ends = [tuple(run.x.tolist()) for run in (*runs, *seeded, given)]
    assert len(set(ends)) == 4
    assert ends[2] == ends[3] == ends[5]
    keys = [jax.random.key_data(run.key).tolist() for run in runs]
    assert keys[0] != keys[1]
    assert min(map(max, keys)) > 2**16  # not the words of a small seed


def test_a_secret_run_goes_on_in_its_folder(tmp_path: Path, drawn: None) -> None:
    problem, given = a_problem(), {**GIVEN, "metrics_on": "train"}

    def run(rounds: int, **options: Any) -> jaxfl.Run:
        return jaxfl.simulate("ldp_sgd", problem, rounds=rounds, batch=4, **given, **options)

    first = run(3, out=tmp_path / "a")
    head = json.loads((tmp_path / "a" / "planned.jsonl").read_text().splitlines()[0])
    assert key_word(jax.random.fold_in(secret.key_of_words(head["base"]), 0)) == head["keys"][0]
    (tmp_path / "a" / "chunks" / "chunk-00000.npz").unlink()
    np.testing.assert_array_equal(run(3, out=tmp_path / "a", resume=True).x, first.x)
    longer = run(6, out=tmp_path / "a", extend=True)
    np.testing.assert_array_equal(longer.x, first.extend(6).x)
    np.testing.assert_array_equal(longer.x, run(6, key=secret.key_of_words(head["base"])).x)
    refused(
        lambda: run(6, out=tmp_path / "a", resume=True, key=jax.random.key(5)), "holds other runs"
    )


def test_seeds_fold_into_the_secret_of_a_sweep(tmp_path: Path, drawn: None) -> None:
    given: Any = {"problem": a_problem(), "rounds": 2, "eval_every": 0, "clip": 1.0, "lr": 0.1}
    given |= {"algorithm": "ldp_gd", "sigma": [1.0, 2.0]}
    few = jaxfl.sweep(**given, seeds=2, out=tmp_path / "s")
    more = jaxfl.sweep(**given, seeds=3, out=tmp_path / "s", extend=True)
    np.testing.assert_array_equal(more["loss"].isel(seed=[0, 1]), few["loss"])
    assert not np.array_equal(jaxfl.sweep(**given, seeds=2)["loss"], few["loss"])
    listed = jaxfl.sweep(**given, seeds=[0, 1])
    np.testing.assert_array_equal(listed["loss"], jaxfl.sweep(**given, seeds=[0, 1])["loss"])
    one = jaxfl.simulate(**{**given, "sigma": 2.0}, seed=1).metrics["loss"]
    np.testing.assert_allclose(listed["loss"].sel(sigma=2.0, seed=1).values.ravel(), one, 1e-5)


def test_the_command_line_draws_in_secret_too(tmp_path: Path, shell: Shell, drawn: None) -> None:
    def end(out: str, words: str) -> float:
        shell(f"{words} --quiet --no-plot")
        return float(jaxfl.load(tmp_path / out)["loss"].values.ravel()[-1])

    run = f"run ldp_sgd {SPAN} {SYNTHETIC} --out {tmp_path}"
    a, b = end("a", f"{run}/a"), end("b", f"{run}/b")
    assert a != b
    assert end("c", f"{run}/c --seed 0") == end("d", f"{run}/d --seed 0")
    assert end("a", f"{run}/a") == a  # the same command again goes on
    (tmp_path / "b" / "chunks" / "chunk-00000.npz").unlink()
    assert end("b", f"run --resume {tmp_path}/b") == b
    end("a", f"run --extend {tmp_path}/a --rounds 6")
