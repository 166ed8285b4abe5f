"""SoteriaFL's noise formula, with its conditions."""

from __future__ import annotations

import math

from jaxfl.algorithms.soteriafl.theory import unit_sigma
from jaxfl.privacy.claims import Claim, Condition, either

__all__ = ["compressed_gd"]


def compressed_gd(
    constant: float,
    G: float,
    m: int,
    b: float,
    rounds: int,
    delta: float,
    *,
    bounds: tuple[float, float] | None = None,
    **way: float,
) -> Claim:
    """``sigma^2 = c G^2 T ln(1/delta)/(m^2 eps^2)`` [SoteriaFL, Theorems 1, 2 and 4], and whether its
    conditions hold; the number is :func:`jaxfl.algorithms.soteriafl.theory.unit_sigma`'s.

    The paper writes ``c (G_A^2/4 + G_B^2)`` and never gives c; its proof gives 48.  Hence
    G_A = G, G_B = 0 is c = 12 (SoteriaFL-SGD and -GD in the authors' code), G_A = 2G, G_B = G is
    c = 96 (SVRG and SAGA), and Theorem 4 has c = 8 (CDP-SGD, DP-GD).  c' is not given either; from
    the proof ``eps <= 4 (1 + 4 G_B^2/G_A^2) q^2 T ln(G_A/(q b s))``.  ``bounds`` are G_A and G_B, by
    default those of SGD.

    Slips in the paper: Lemma 3 mixes add/remove and replace-one (a consistent version gives
    G_A^2 + G_B^2), its factor 1/(1-q) excludes q = 1, ``t = 0..T`` releases T + 1 messages.
    """
    s, e = either(float(unit_sigma(constant, G, m, rounds, delta)), delta, **way)
    q, (G_A, G_B) = b / m, bounds or (G, 0.0)
    conditions: tuple[Condition, ...] = (
        Condition("q < 1, for its factor 1/(1 - q)", False, here="batches are full: q = 1"),
    )
    note = "full batches need no such condition: the Gaussian mechanism is accounted exactly"
    if b != m:
        note, room, rate = "", G_A / (q * b * s), e / (q * q * rounds)
        share = 4 * (1 + 4 * (G_B / G_A) ** 2) if math.isfinite(G_A) else 4.0
        most = share * q * q * rounds * math.log(room) if room > 0 else 0.0
        small, wide = G_A / (16 * b * s), math.sqrt(2 / 3) * b * s
        text, here = f"eps <= {most:.4g}", f"eps = {e:.4g} = {rate:.4g} q^2 T, q = b/m"
        if most <= 0:  # the logarithm of the proof
            text, here = f"q b sigma < G_A = {G_A:.4g}", f"q b sigma = {q * b * s:.4g}"
        conditions = (
            Condition(text, e <= most, here=here),
            Condition(
                f"q < G_A/(16 b sigma) = {small:.4g}, with the bound G_A = {G_A:.4g} on clipped gradients",
                q < small,
                here=f"q = b/m = {q:.4g}",
            ),
            Condition(
                f"sqrt(2/3) b sigma >= G_A = {G_A:.4g}", wide >= G_A, here=f"it is {wide:.4g}"
            ),
        )
    formula = f"sigma^2 = {constant:g} G^2 T ln(1/delta)/(m^2 eps^2)"
    return Claim("SoteriaFL, NeurIPS 2022", formula, s, e, delta, conditions, note=note)
