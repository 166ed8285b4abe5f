"""The algorithms of the benchmark, and the six settings of each that are tried with every step size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from field.settings import CLIENTS, Setting, posed
from jaxfl import InputError, algorithm
from jaxfl.parts import Algorithm, compressors

__all__ = ["CONTENDERS", "KNOBS", "Contender", "added", "chosen", "knobs"]

KNOBS = 6  # combinations of all that is tuned beside the step size
OMEGAS = (3.0, 15.0, 61.0)
LEVELS = (7, 31, 127)  # of 4, 6 and 8 bits
LOCAL = (2, 8)
CLIPS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)


class Contender(NamedTuple):
    """An algorithm under the name that the benchmark calls it by."""

    name: str
    make: Callable[[], Algorithm]
    step: str = "lr"  # the hyper-parameter that sets the length of steps
    scale: float = 1.0  # of its grid
    tuned: Mapping[str, tuple[float, ...]] | None = None  # six combinations; None: by the rule
    fixed: Mapping[str, Any] = {}
    one_pass: bool = False  # each record is used once: batches follow from the rounds
    convex: bool = False  # made for convex losses
    pooled: bool = False  # one node holds all records
    light: bool = True  # a round takes no pass over all records, and no table of gradients

    @property
    def compressed(self) -> bool:
        return not {"omega", "k", "levels", "quantum"}.isdisjoint(self.make().names)


def _own(name: str, **more: Any) -> Contender:
    return Contender(name, lambda: algorithm(name), **more)


def _with(name: str, of: str, parts: Callable[[], dict[str, Any]], **more: Any) -> Contender:
    return Contender(name, lambda: algorithm(of, **parts()), **more)


WIDE: dict[str, Any] = {
    "diameter": 30.0
}  # of the set of Gao et al. and of Reshef and Levy, which ends far away
PHASES = {"phases": (1, 3)}
CONTENDERS = (
    # the server sees every message
    _own("ldp_sgd"),
    _with("ldp_sgd_qsgd", "cdp_sgd", lambda: {"compressor": compressors.qsgd()}),
    _own("cdp_sgd"),
    _own("soteriafl_sgd"),
    _with("soteriafl_sgd_qsgd", "soteriafl_sgd", lambda: {"compressor": compressors.qsgd()}),
    _own("soteriafl_svrg"),
    _own("soteriafl_saga", light=False),
    _own("ldp_svrg"),
    _own("dice_sgd"),
    _with("local_sgd", "private_local_sgd", lambda: {"aggregation": "plain_sum"}),
    _own("local_dp_sgd"),
    _own("shifted_local_sgd"),
    _own("dp_scaffold"),
    _own("isrl_svrg"),
    _own("ldp_spider", tuned={"period": (2, 8), "clip": CLIPS[2:5]}, light=False),
    _own("multi_pass_mbsgd", fixed=WIDE, convex=True),
    _own("one_pass_mbsgd", tuned={"clip": CLIPS}, fixed=WIDE, one_pass=True, convex=True),
    _own("localized_mbsgd", tuned={**PHASES, "clip": CLIPS[2:5]}, fixed=WIDE, convex=True),
    _own("accelerated_mbsgd", step="diameter", convex=True),
    _own("mu2_untrusted", scale=0.1, tuned={"clip": CLIPS}, fixed=WIDE, one_pass=True, convex=True),
    _own("noisy_sgd", tuned={"clip": CLIPS}, fixed=WIDE, one_pass=True, convex=True),
    # there is no server: neighbours see every message
    _own("dp_dsgd"),
    _own("q_dpsgd_1"),
    _own("sdm_dsgd"),
    _own("porter_dp"),
    # the server sees the sum
    _with("ldp_sgd_secure", "ldp_sgd", lambda: {"aggregation": "secure_sum"}),
    _own("private_local_sgd"),
    _own("distributed_dp_srm"),
    # a trusted server adds the noise
    _with("dp_sgd_trusted", "dp_sgd", dict),
    _own("mu2_trusted", scale=0.1, tuned={"clip": CLIPS}, fixed=WIDE, one_pass=True, convex=True),
    # one node holds all records
    _own("dp_sgd", pooled=True),
    _own("dp_srm", pooled=True),
    # all records of a client are protected
    _own("clip21_sgd2m"),
    _own("alpha_normec", tuned={"smoothing": (0.1, 1.0), "shift": (0.03, 0.1, 0.3)}, light=False),
    _with(
        "fed_alpha_normec",
        "fed_alpha_normec",
        lambda: {"sampler": "poisson"},
        step="server_lr",
        scale=0.1,
        tuned={"local_steps": LOCAL, "shift": (0.03, 0.1, 0.3)},
        fixed={"lr": 0.1},
    ),
    _own("dp_fedavg"),
)


def added(name: str, given: Sequence[str] = ()) -> Contender:
    """An algorithm that a file of ``--import`` registered, or another of jaxfl, tuned by the rule.

    ``given`` are its other numbers, as NAME=VALUE.
    """
    names = algorithm(name).names
    if "lr" not in names or "eps" not in names:
        raise InputError(f"{name} cannot be added", "it needs the hyper-parameters lr and eps")
    try:
        fixed = {key: float(value) for key, value in (text.split("=") for text in given)}
    except ValueError:
        wrong = f"--set {' '.join(given)} is not of the form NAME=VALUE"
        raise InputError(wrong, "write --set decay=0.9") from None
    return _own(name, fixed=fixed)


def knobs(contender: Contender, setting: Setting, rounds: int) -> dict[str, Sequence[float]]:
    """The axes beside step size and eps: six combinations, of the same kind for like algorithms.

    Three strengths of compression, or else three clips, with two batches, or with two numbers of local
    steps where an algorithm has them; six clips where no batch is drawn.
    """
    names, problem = contender.make().names, posed(setting, contender.pooled)
    d, m = problem.model.dim, int(min(problem.count))
    scale = CLIENTS if contender.pooled else 1  # one node draws what all clients draw
    small, middle, large = (scale * batch for batch in setting.batches)
    strengths: dict[str, Sequence[float]] = {
        "omega": OMEGAS,
        "levels": LEVELS,
        "k": [max(1, round(d / (1 + omega))) for omega in OMEGAS],
        "clip": CLIPS[2:5],
    }
    strength = next(name for name in strengths if name in names)
    pair = {"local_steps": LOCAL} if "local_steps" in names else {"batch": sorted({small, large})}
    out: dict[str, Sequence[float]] = {strength: strengths[strength], **pair}
    if contender.tuned is not None:
        out = dict(contender.tuned)
    elif "batch" not in names:
        out = {"clip": CLIPS}
    one = max(1, m // rounds) if contender.one_pass else middle
    out |= {name: (one,) for name in ("batch", "anchor_batch") if name in names and name not in out}
    if math.prod(map(len, out.values())) != KNOBS and not setting.small:
        raise InputError(f"{contender.name} has other than {KNOBS} combinations", "mend its entry")
    return out


def chosen(setting: Setting, among: Sequence[Contender], only: Sequence[str]) -> list[Contender]:
    """Those that fit the setting: convex methods for convex losses, heavy ones for small models.

    Of these those of ``only``, or in a miniature some.
    """
    fit = [c for c in among if setting.convex or (c.light and not c.convex)]
    return [c for c in fit if c.name in only] if only else fit[:: setting.every]
