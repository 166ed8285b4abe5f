"""Probes of what a user's own parts declare; the compositions that they refute are in :mod:`own_cases`."""

import contextlib
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own import ASKED, body, louder, own, problem_of, usual

import jaxfl
from jaxfl import audit
from jaxfl.algorithms.probes import attack, kernels, parts, probe
from jaxfl.algorithms.probes.laws import CheckFailed
from jaxfl.core.errors import JaxflWarning
from jaxfl.core.types import Param, Term
from jaxfl.parts import (
    Message,
    Plain,
    Sent,
    aggregations,
    channels,
    compose,
    compressors,
    estimate,
    estimators,
    mechanisms,
    plain,
    sampling,
    servers,
)
from jaxfl.privacy import Event, Mean, Sampling
from jaxfl.problems.kernels import linear_kernel

pytestmark = pytest.mark.once
VALUES = {"clip": 1.0, "lr": 0.1}


def codes(code: Any) -> Any:
    """A code of all coordinates."""
    sizes = {"bits": lambda d, values: (32.0 * d, 0.0), "omega": lambda d, values: 1.0}
    return compressors.identity()._replace(name="mine", code=code, unbiased=True, **sizes)


def halved(link: Any, g: Any) -> Any:
    return g / 2


def doubled(link: Any, g: Any) -> Any:
    return 3 * g


def channel(before: Any) -> Any:
    return channels.direct()._replace(name="mine", before=before)


@pytest.fixture(autouse=True)
def _unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """No probe is known yet."""
    monkeypatch.setattr(probe, "_known", {})


def begun(algorithm: Any, **given: Any) -> Any:
    return jaxfl.simulate(algorithm, usual(), rounds=2, eps=ASKED, **given)


def test_a_part_that_is_as_declared_is_probed() -> None:
    report = begun(own(channel=channel(halved))).privacy()
    assert (report.status, report.proven) == ("P", pytest.approx(ASKED, rel=1e-3))
    assert "declared and probed" in str(report)
    assert "the channel 'mine' as declared" in report.method


def test_a_part_that_is_not_as_declared_is_refuted() -> None:
    with pytest.warns(JaxflWarning, match="a probe refutes the channel 'mine'"):
        report = begun(own(channel=channel(doubled))).privacy()
    assert np.isinf(report.proven)
    assert "no claim: a probe refutes the channel 'mine'" in report.method
    with pytest.raises(jaxfl.InputError, match="a probe refutes the channel 'mine'"):
        begun(own(channel=channel(doubled)), strict=True)


def test_the_sensitivity_of_an_estimator_follows_from_its_terms() -> None:
    """Twice the scale takes twice the noise."""
    plain = estimators.minibatch(sampling.poisson())

    def scaled(scales: tuple[float, ...]) -> Any:
        def terms(shared: Any, x: Any, hp: Any) -> tuple[Term, ...]:
            return tuple(Term(scale, (x,), (1.0,), hp["clip"]) for scale in scales)

        mine = plain._replace(gradient=plain.gradient._replace(terms=terms), sensitivity=None)
        return begun(own(estimator=mine))

    runs = [scaled(scales) for scales in ((1.0,), (0.5, -1.5))]
    assert all(run.privacy().status == "P" for run in runs)
    assert runs[1].values["sigma"] == pytest.approx(2 * runs[0].values["sigma"], rel=1e-3)


def test_a_stated_event_that_claims_too_much_is_refuted() -> None:
    """It counts a thousand records where there are twenty; one that is true stays the user's word."""

    def event(most: int) -> Any:
        def stated(values: Any, facts: Any) -> Any:
            rows = Sampling("full", most * facts.m, most * facts.m)
            return Event(rows, Mean(values["clip"]), values["sigma"], int(values["rounds"]))

        return stated

    full = {"estimator": estimators.minibatch(sampling.full())}
    assert begun(own(event=event(1), **full)).privacy().status == "U"
    with pytest.warns(JaxflWarning, match="a probe refutes the event of 'own'"):
        assert np.isinf(begun(own(event=event(50), **full)).privacy().proven)


class Silent(Plain):
    """Clients send what they computed, without noise."""

    def client(self, now: Any, me: Any) -> Sent:
        mine = estimate(self, now, me, now.noise_key(me))
        return Sent(Message(mine.g, None), jnp.int32(0), me.link, mine)


def multiplier(**fields: Any) -> Any:
    """Noise in units of G/b, for which no eps calibrates anything; and the event of its rounds."""
    ratio = Param("ratio", "noise over G/b", schedule=True)
    return mechanisms.Mechanism(
        "multiplier", lambda hp: hp["ratio"] * hp["clip"] / hp["batch"], params=(ratio,), **fields
    )


def of_rows(values: Any, facts: Any) -> Any:
    std = (
        values["sigma"] if "sigma" in values else values["ratio"] * values["clip"] / values["batch"]
    )
    rows = Sampling("poisson", facts.m, values["batch"])
    return Event(rows, Mean(values["clip"]), std, int(values["rounds"]))


def of_twenty_records(values: Any, facts: Any) -> Any:
    if facts.m != 20:
        raise ValueError("twenty records were expected")
    return of_rows(values, facts)


LOOSE = estimators.minibatch(sampling.poisson(), clip_examples=False)
OF_BATCHES = {"estimator": LOOSE, "clip": "batch"}  # which bounds no record
STATED: dict[str, tuple[Any, dict[str, Any], Any, str]] = {
    "right": (Plain, {"mechanism": multiplier()}, of_rows, ""),
    "no noise": (Silent, {"mechanism": multiplier()}, of_rows, "a probe refutes the event"),
    "one clip of a mean": (Plain, OF_BATCHES, of_rows, "bounds the mean of a batch"),
    "no attack": (Plain, {}, of_twenty_records, "not attacked: .*twenty records were expected"),
}


@pytest.mark.plain
@pytest.mark.parametrize("name", STATED)
def test_a_stated_event_is_attacked_or_the_report_says_why_not(name: str) -> None:
    """Also where no noise can be calibrated for an eps; with strict=True there is no third way."""
    kind, parts, event, words = STATED[name]
    given = {"ratio": 1.0} if "mechanism" in parts else {"sigma": 0.3}
    made = compose(
        "own", "", "", kind(*body(**parts)), plain(**VALUES, batch=4, **given), event=event
    )

    def run(**how: Any) -> Any:
        return jaxfl.simulate(made, usual(), rounds=2, **given, **how).privacy()

    if not words:
        assert run(strict=True).status == "U"
        return
    with pytest.warns(JaxflWarning, match=words):
        report = run()
    assert np.isinf(report.proven) == ("refutes" in words or "mean" in words)
    assert re.search(words, report.method)
    with pytest.raises(jaxfl.InputError, match=words):
        run(strict=True)


@pytest.mark.plain
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_noise_that_no_eps_sets_is_probed(share: float) -> None:
    """The std of the mechanism reads what other parts declare."""
    draw = lambda key, std, like: share * std * jax.random.normal(key, like.shape)  # noqa: E731
    made = compose(
        "own", "", "", body(mechanism=multiplier(draw=draw)), plain(**VALUES, batch=4, ratio=1.0)
    )
    with (
        contextlib.nullcontext() if share == 1 else pytest.warns(JaxflWarning, match="declares std")
    ):
        assert jaxfl.simulate(made, usual(), rounds=2).privacy().status == (
            "P" if share == 1 else ""
        )


class OneBit(Plain):
    """Clients send the signs of noised gradients."""

    share = 1.0  # of the noise that the event counts

    def client(self, now: Any, me: Any) -> Sent:
        mine = estimate(self, now, me, now.noise_key(me))
        xi = self.mechanism.draw(now.noise_key(me), self.mechanism.std(now.hp), mine.g)
        bits = Message(jnp.sign(mine.g + self.share * xi), None)
        return Sent(bits, jnp.int32(0), me.link, mine)


class HalfNoise(OneBit):
    share = 0.5


def test_half_the_noise_of_one_bit_is_found() -> None:
    """A bit says less than a number, and takes more trials."""

    def stated(values: Any, facts: Any) -> Any:
        rows = Sampling("full", facts.m, facts.m)
        return Event(rows, Mean(values["clip"]), values["sigma"], int(values["rounds"]))

    full = body(estimator=estimators.minibatch(sampling.full()))
    for kind in (OneBit, HalfNoise):
        made = compose("own", "", "", kind(*full), plain(clip=1.0, lr=0.1, eps=3.0), event=stated)
        with pytest.raises(CheckFailed) if kind is HalfNoise else contextlib.nullcontext():
            attack.attack(made, VALUES, 8, seeds=(0, 1))


def test_an_audit_of_a_declared_part_states_nothing(key: jax.Array) -> None:
    """It attacks by itself, and says what its event would prove."""
    given = {"eps": 4.0, "batch": 4, "clip": 1.0, "lr": 0.1, "delta": 1e-3}
    found = audit(own(channel=channel(halved)), rounds=2, m=8, runs=200, key=key, **given)
    assert np.isinf(found.proven)
    assert found.described == pytest.approx(4.0, rel=1e-3)
    assert "a run probes what the channel 'mine' declares" in found.method


def test_an_audit_of_signs_names_the_coordinates_that_it_leaves_alone(key: jax.Array) -> None:
    given = {"eps": 4.0, "batch": 4, "clip": 1.0, "lr": 0.1, "delta": 1e-3}
    for code, named in ((lambda key, v, hp: jnp.sign(v), True), (None, False)):
        made = own(compressor=codes(code) if named else compressors.identity())
        found = audit(made, rounds=2, m=8, runs=200, key=key, **given)
        assert any("coordinates other than the canary's" in one for one in found.unseen) == named


def test_a_probe_runs_once_for_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part made anew has the same code; another function, or another number of it, has not."""
    calls: list[str] = []
    monkeypatch.setattr(probe, "attack", lambda *_: calls.append("attack"))

    def made(factor: float) -> Any:
        return own(channel=channel(lambda link, g: g * factor))

    for algorithm in (made(0.5), made(0.5), made(0.25)):
        begun(algorithm)
    assert len(calls) == 2


def test_a_sweep_probes_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is checked for each of its numbers, the rounds are attacked for each that they read."""
    checked: list[float] = []
    tried: list[tuple[float, float]] = []
    check = lambda *given, factor: checked.append(factor)  # noqa: E731
    monkeypatch.setattr(parts, "check_privacy", check)
    attacked = lambda _, values, d: tried.append((values["factor"], values["lr"]))  # noqa: E731
    monkeypatch.setattr(probe, "attack", attacked)
    mine = channel(halved)._replace(params=(Param("factor", "of a message"),))
    algorithm = compose(
        "own", "", "", body(channel=mine), plain(**VALUES, batch=4, factor=1.0, eps=1)
    )
    rates = np.linspace(0.1, 0.3, 15).tolist()
    ds = jaxfl.sweep(algorithm, usual(), rounds=1, lr=rates, factor=[0.25, 1.0], eps=[1.0, 2.0])
    assert sorted(checked) == [0.25, 1.0]
    assert len(set(tried)) == len(tried) == probe.SETTINGS
    assert {factor for factor, _ in tried} == {0.25, 1.0}
    assert (ds["stated"] == 2).all()


def capped(key: Any, std: Any, like: Any) -> Any:
    return jnp.minimum(std, 0.5) * jax.random.normal(key, like.shape)


class Fading(Plain):
    """Clients whose noise falls with the step size."""

    def client(self, now: Any, me: Any) -> Sent:
        mine = estimate(self, now, me, now.noise_key(me))
        xi = self.mechanism.draw(now.noise_key(me), self.mechanism.std(now.hp), mine.g)
        share = jnp.minimum(1.0, 0.1 / now.hp["lr"]) ** 4
        return Sent(Message(mine.g + share * xi, None), jnp.int32(0), me.link, mine)


# a composition, the number that is right and wrong, and the report of the right one
NUMBERS: dict[str, tuple[Any, str, tuple[Any, Any], str]] = {
    "a number of another part": (
        lambda: (Plain, {"mechanism": multiplier(draw=capped)}, {"ratio": 1.0}, None),
        "clip",
        (1.0, 100.0),
        "P",
    ),
    "a schedule": (
        lambda: (Plain, {"mechanism": multiplier(draw=capped)}, {"ratio": 1.0}, None),
        "ratio",
        (1.0, "cosine:100"),
        "P",
    ),
    "sigma": (
        lambda: (Plain, {"mechanism": mechanisms.gaussian()._replace(draw=capped)}, {}, None),
        "sigma",
        (0.3, 25.0),
        "P",
    ),
    "a step size": (lambda: (Fading, {}, {"sigma": 0.3}, of_rows), "lr", (0.1, 1.0), "U"),
}


@pytest.mark.plain
@pytest.mark.parametrize("name", NUMBERS)
def test_what_one_number_passes_says_nothing_of_another(name: str) -> None:
    """A probe reads it, whatever part declares it; in one process, in any order, and in a sweep."""
    make, number, (right, wrong), status = NUMBERS[name]
    kind, own_parts, given, event = make()
    made = compose(
        "own", "", "", kind(*body(**own_parts)), plain(**VALUES, batch=4, **given), event=event
    )

    def run(value: Any) -> Any:
        return jaxfl.simulate(made, usual(), rounds=2, **{number: value}).privacy()

    assert run(right).status == status
    with pytest.warns(JaxflWarning, match="a probe refutes"):
        assert np.isinf(run(wrong).proven)
    assert run(right).status == status
    for both in ([right, wrong], [wrong, right]):
        with pytest.warns(JaxflWarning, match="a probe refutes"):
            found = jaxfl.sweep(made, usual(), rounds=1, paired=False, **{number: both})
        assert np.isinf(found["proven_eps"]).all()


def test_other_code_of_a_part_drops_the_claim(tmp_path: Path) -> None:
    """Both were probed, and a run with both was not."""
    given = {"out": tmp_path / "run", "sigma": 5.0}
    for factor, proven in ((0.5, True), (0.25, False)):
        made = own(channel=channel(lambda link, g, factor=factor: g * factor))
        rounds = 2 if proven else 3
        run = jaxfl.simulate(made, usual(), rounds=rounds, extend=not proven, **given)
        assert np.isfinite(run.privacy().proven) == proven


def test_a_part_that_cannot_run_elsewhere_has_no_claim() -> None:
    """It is made for four coordinates, and a probe tries a message of another length."""
    fixed = channel(lambda link, g: g * jnp.ones(4))
    report = begun(own(channel=fixed)).privacy()
    assert np.isinf(report.proven)
    assert "the channel 'mine' cannot be probed" in report.method


def test_data_in_a_part_have_no_claim() -> None:
    held = jnp.ones((20, 4))
    report = begun(own(channel=channel(lambda link, g: g * held[0]))).privacy()
    assert "holds an array of shape (20, 4), which may be data" in report.method
    after_noise = codes(lambda key, v, hp: v + held[0])  # what is added may still be data
    report = begun(own(compressor=after_noise)).privacy()
    assert "'mine', which is not jaxfl's own and holds an array of shape (20, 4)" in report.method


def test_parts_of_a_network_with_two_messages_are_probed() -> None:
    """Porter's nodes send models and gradients."""
    poisson = sampling.poisson()
    drawn = poisson._replace(name="mine", draw=lambda *given: poisson.draw(*given))
    made = jaxfl.algorithm("porter_dp", sampler=drawn)
    report = jaxfl.simulate(made, usual(), rounds=2, eps=ASKED, lr=0.1, k=2).privacy()
    assert "the sampler 'mine' as declared" in report.method


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (lambda k: k._replace(inner=lambda f, h, b: k.inner(f, h, b) / 9, clip=None), "differs"),
        (lambda k: k._replace(contract=lambda w, f, b: 2 * k.contract(w, f, b)), "differs"),
        (lambda k: k, ""),
    ],
    ids=["short norms", "a double sum", "none"],
)
def test_a_kernel_beside_vmap_of_grad(lie: Any, found: str) -> None:
    model = jaxfl.models.logistic(4)
    problem = problem_of(model._replace(kernel=lie(model.kernel)))
    if not found:
        return kernels.kernel(problem)
    with pytest.raises(CheckFailed, match=found):
        kernels.kernel(problem)


def test_norms_that_smooth_clipping_alone_reads() -> None:
    """A gradient is the same at all points, so that differences have the right norm, 0."""
    k = linear_kernel(lambda z, example: z)
    lie = k._replace(inner=lambda f, h, b: k.inner(f, h, b) / 9)
    model = jaxfl.models.logistic(4)._replace(loss=lambda x, e: e[0] @ x, kernel=lie)
    with pytest.raises(CheckFailed, match="differs"):
        kernels.kernel(problem_of(model))


LIES: dict[str, dict[str, Any]] = {
    "three times the noise's bound": {
        "estimator": estimators.minibatch(sampling.poisson())._replace(
            gradient=estimators.minibatch(sampling.poisson()).gradient._replace(
                terms=lambda shared, x, hp: (Term(3.0, (x,), (1.0,), hp["clip"]),)
            )
        )
    },
    "one direction": {"channel": channel(lambda link, g: g.at[0].multiply(20.0))},
    "a sum that no model shows": {
        "channel": channel(lambda link, g: 20 * g),
        "aggregation": aggregations.secure_sum(),
        "server": servers.descent()._replace(step=lambda key, state, *_: state),
    },
    "noise on some coordinates": {
        "mechanism": mechanisms.gaussian()._replace(
            draw=lambda key, std, like: (
                std * jax.random.normal(key, like.shape) * (jnp.arange(like.size) > 0)
            )
        )
    },
    "equal noise on all coordinates": {
        "mechanism": mechanisms.gaussian()._replace(
            draw=lambda key, std, like: std * jax.random.normal(key) * jnp.ones_like(like)
        )
    },
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.plain) if "a sum" in n else n for n in LIES]
)
def test_an_attack_sees(name: str) -> None:
    """Alone, without the checks of single parts."""
    with pytest.raises(CheckFailed, match="certifies eps"):
        attack.attack(own(**LIES[name]), VALUES, 8)


UNSEEN = {
    "the weight": sampling.uniform()._replace(draw=louder(sampling.uniform().draw, 1.01)),
    "an end": channels.shifted()._replace(remembers=False),
    "mean of before": channels.shifted()._replace(receive=lambda s, mean, *rest: (s + mean, s)),
    "off": aggregations.plain_sum()._replace(
        protect=lambda key, t, me, cohort, v, hp: (1.01 * v, jnp.int32(0))
    ),
}


@pytest.mark.plain
@pytest.mark.parametrize("word", UNSEEN)
def test_more_counts_where_messages_are_not_seen(word: str) -> None:
    """In a sum that hides them, or before a server's noise."""
    parts.check_privacy(UNSEEN[word], {}, 8)
    with pytest.raises(CheckFailed, match=word):
        parts.check_privacy(UNSEEN[word], {}, 8, unseen=True)


def test_coordinates_are_those_of_the_run() -> None:
    """With replacement, and the number of coordinates follows from one that is not k, and from d."""

    def select(key: Any, d: int, hp: Any) -> jaxfl.parts.Draw:
        slots = hp.caps["k"]
        return jaxfl.parts.Draw(jax.random.randint(key, (slots,), 0, d), jnp.full(slots, d / slots))

    share = jaxfl.parts.Compressor(
        "share",
        omega=lambda d, values: 1 / values["ratio"],
        bits=lambda d, values: (0.0, 32.0),
        select=select,
        capacity=lambda values, facts: {"k": max(1, int(0.05 * facts.d))},
        params=(Param("ratio", "share of the coordinates"),),
        unbiased=True,
        distinct=True,
    )
    parts.check_privacy(share, {"ratio": 0.05}, 24)
    with pytest.raises(CheckFailed, match="messages of 650 coordinates"):
        parts.check_privacy(share, {"ratio": 0.05}, 650)


HONEST: tuple[dict[str, Any], ...] = (
    {"channel": channel(halved)},
    {"channel": channels.shifted(), "aggregation": aggregations.secure_sum()},
    {"channel": channels.shifted(), "compressor": compressors.random_k()},
    {"estimator": estimators.minibatch(sampling.without_replacement())},
    {"estimator": estimators.minibatch(sampling.with_replacement())},
    {"estimator": estimators.svrg(sampling.poisson())},
)


@pytest.mark.full
@pytest.mark.parametrize("honest", HONEST, ids=[*range(len(HONEST))])
def test_an_attack_on_honest_parts_finds_nothing(honest: dict[str, Any]) -> None:
    attack.attack(own(**honest), {**VALUES, "k": 2, "refresh": 0.5, "shift": 0.3}, 8, range(200))
