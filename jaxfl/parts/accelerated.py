"""Servers of ISRL-DP: accelerated stochastic approximation, and steps with weighted averaging.

Letters as in Gao, Lowy, Zhou, Wright, 2024, with h_r for their eta_r.  The host resolves values that
change from round to round into schedules (names that end in ``_t``), see
:mod:`jaxfl.algorithms.gao.rules`.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxfl.core.provenance import made
from jaxfl.core.types import Array, Hyper, Key, Project, PyTree, Server

__all__ = ["acsa", "averaged"]


@made
def acsa() -> Server:
    """AC-SA [Ghadimi and Lan, 2012; Gao et al., Algorithm 2]::

        w_md = w_ag + B_r (w - w_ag),   B_r = a_r ((1-a_r) mu + h_r) / (h_r + (1-a_r^2) mu)
        w <- Pi_W((a_r mu w_md + ((1-a_r) mu + h_r) w - a_r v) / (mu + h_r)),   v the gradient at w_md
        w_ag <- a_r w + (1-a_r) w_ag

    The two weights of the paper's w_md add up to 1.  w is the argmin over W of
    ``a_r (<v, w> + mu/2 |w_md - w|^2) + ((1-a_r) mu + h_r)/2 |w_prev - w|^2``: the Hessian is a
    multiple of the identity, and projecting is exact.
    """

    def init(x: Array, hp: Hyper) -> PyTree:
        return x, x, x

    def step(key: Key, state: PyTree, v: Array, project: Project, hp: Hyper) -> PyTree:
        w, ag, md = state
        a, h, mu = hp["alpha_t"], hp["h_t"], hp["mu_t"]
        w = (a * mu * md + ((1 - a) * mu + h) * w - a * v) / (mu + h)
        w = w if project is None else project(w)
        ag = a * w + (1 - a) * ag
        return w, ag, ag + hp["next_mix_t"] * (w - ag)

    return Server("acsa", init, lambda state: state[2], step, lambda state: state[1])


@made
def averaged() -> Server:
    """``w <- Pi_W(w - gamma_r v)``, output the weighted average of all w [Gao et al., Algorithm 3].

    ``wbar <- wbar + c_r (w - wbar)``: c_r = 2/(r+1) gives ``2/(R(R+1)) sum_r r w_r``, c_r = 1/r the
    plain average, and c_r = 1 the last iterate.
    """

    def init(x: Array, hp: Hyper) -> PyTree:
        return x, x

    def step(key: Key, state: PyTree, v: Array, project: Project, hp: Hyper) -> PyTree:
        w, mean = state
        w = w - hp["step_t"] * v
        w = jnp.asarray(w if project is None else project(w))
        return w, mean + hp["average_t"] * (w - mean)

    return Server("averaged", init, lambda state: state[0], step, lambda state: state[1])
