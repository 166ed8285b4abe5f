"""Channels: the memory of earlier messages at both ends of a link.

A client compresses ``before(memory, g)`` in place of g.  Where the round needs only the mean over
clients, it calls ``before`` once, with the server's memory and the mean estimate; for a linear
channel that is the same.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxfl.core.provenance import made
from jaxfl.core.types import Array, Channel, Hyper, Message, Param, PyTree, unbounded

__all__ = ["add", "dasha", "direct", "error_feedback", "learned", "recursion", "shifted"]

SHIFT = Param(
    "shift",
    "rate gamma of the shifts: s_i <- s_i + gamma C(g_i - s_i), for the noised estimate g_i",
    high=1.0,
    schedule=True,
)
REPEAT = Param(
    "shift", "share a of the error that compression has left, which a message repeats", high=1.0
)


def add(v: Array, message: Message, scale: Array) -> Array:
    """v + scale * message, without the slots that hold nothing."""
    if message.index is None:
        return v + scale * message.value
    return v.at[message.index].add(scale * message.value, mode="drop")


@made
def direct() -> Channel:
    """v_i = C(g_i + xi_i); the server takes their mean [SoteriaFL, Algorithm 1]."""

    return Channel(
        "direct",
        init=lambda n, x, fused: ((), ()),
        before=lambda link, g: g,
        after=lambda link, message, hp: link,
        receive=lambda link, mean, rate, hp, moved: (mean, link),
        linear=True,
        remembers=False,
        growth=lambda omega: (1.0, 1.0),
        nonexpanding=True,
        elementwise=True,
    )


@made
def shifted() -> Channel:
    """Shifted compression [SoteriaFL, Algorithm 2, lines 5-10]::

        v_i = C(g_i + xi_i - s_i),  s_i <- s_i + gamma v_i     (client, if it takes part)
        v = s + (1/r) sum_S v_i,    s <- s + (gamma/n) sum_S v_i

    so that s = mean_i s_i in every round, whoever takes part.  Shifts that are stored in fewer bits
    change by ``D_i = round(s_i + gamma v_i) - s_i`` instead, and ``s <- s + (1/n) sum_S D_i``: the
    server knows every v_i, and so every D_i, if it keeps the rounded s_i too.
    """

    def init(n: int, x: Array, fused: bool) -> tuple[PyTree, PyTree]:
        return _zeros(n, x, fused), jnp.zeros_like(x)

    def before(s: Array, g: Array) -> Array:
        return g - s

    def after(s_i: Array, message: Message, hp: Hyper) -> Array:
        return add(s_i, message, hp["shift"])

    def receive(
        s: Array, mean: Array, rate: Array, hp: Hyper, moved: Array | None
    ) -> tuple[Array, Array]:
        return s + mean, s + rate * (hp["shift"] * mean if moved is None else moved)

    def growth(omega: float) -> tuple[float, float] | None:
        # a shift is a mean of earlier messages: compression would make them ever longer
        return (2.0, 2**0.5) if omega <= 0 else None

    return Channel(
        "shifted",
        init,
        before,
        after,
        receive,
        params=(SHIFT,),
        linear=True,
        mirrors=True,
        growth=growth,
        nonexpanding=True,
        elementwise=True,
    )


@made
def learned() -> Channel:
    """Compressed differences from gradients g_i that both ends remember  [EF21]::

        c_i = C(g_i' + xi_i - g_i),  g_i <- g_i + gamma c_i     (client, if it takes part)
        v = g + (1/n) sum_S c_i,     g <- g + (gamma/n) sum_S c_i

    With gamma = 1, v is the mean of all g_i, those of absent clients included.  :func:`shifted` has
    1/r in place of the 1/n of v, and estimates the mean gradient of this round.
    """
    plain = shifted()

    def receive(
        g: Array, mean: Array, rate: Array, hp: Hyper, moved: Array | None
    ) -> tuple[Array, Array]:
        return g + rate * mean, plain.receive(g, mean, rate, hp, moved)[1]

    return plain._replace(name="learned", receive=receive, growth=unbounded, corrects=True)


@made
def dasha() -> Channel:
    """Changes of estimates, and a share of the error  [DASHA, Algorithm 1]::

        c_i = C(h_i' - h_i - a (g_i - h_i)),  h_i <- h_i',  g_i <- g_i + c_i   (client, if it takes part)
        g <- g + (1/n) sum_S c_i,  v = g

    h_i' is the estimate of this round with its noise, and h_i the one before; h_i = g_i = 0 at first.  A
    client keeps ``s_i = (1 - a) h_i + a g_i`` and g_i, and compresses h_i' - s_i.  The server's g is the
    mean of the g_i, those of absent clients included.  The noise is drawn on all coordinates, since s_i
    keeps it: all that is sent is made of the noised estimates, whose event is that of the round.
    """

    def residual(
        link: tuple[Array, Array], v: Array, sent: Array, hp: Hyper
    ) -> tuple[Array, Array]:
        (s, g), a = link, hp["shift"]
        g = g + sent
        return (1 - a) * (s + v) + a * g, g

    def receive(
        g: Array, mean: Array, rate: Array, hp: Hyper, moved: PyTree
    ) -> tuple[Array, Array]:
        v = g + rate * mean
        return v, v if moved is None else g + rate * moved[1]

    return direct()._replace(
        name="dasha",
        init=lambda n, x, fused: ((_zeros(n, x, fused),) * 2, jnp.zeros_like(x)),
        before=lambda link, h: h - link[0],
        residual=residual,
        receive=receive,
        params=(REPEAT,),
        linear=False,
        remembers=True,
        mirrors=True,
        growth=unbounded,
    )


@made
def recursion() -> Channel:
    """v <- (1-gamma) v + mean_i u_i, kept by the server; ``carry`` is 1-gamma, or 0 to restart.

    v keeps the noise of earlier messages  [DP-SRM, Algorithm 1; SPIDER].
    """

    def receive(
        v: Array, mean: Array, rate: Array, hp: Hyper, moved: PyTree
    ) -> tuple[Array, Array]:
        v = hp["carry"] * v + mean
        return v, v

    return direct()._replace(
        name="recursion",
        init=lambda n, x, fused: ((), jnp.zeros_like(x)),
        receive=receive,
        remembers=True,
    )


@made
def error_feedback() -> Channel:
    """A later message carries what compression left out  [Seide et al., 2014; Stich et al., 2018]::

        p_i = e_i + g_i + xi_i,  send C(p_i),  e_i <- p_i - C(p_i)

    e_i is in units of the gradient; with a constant step, units of the step give the same.  The noise
    is drawn on all coordinates, since e_i keeps it.  Where e_i is stored in fewer bits, what rounding
    removes is never sent.
    """

    return direct()._replace(
        name="error_feedback",
        init=lambda n, x, fused: (_zeros(n, x, fused), ()),
        before=lambda e, g: g if isinstance(e, tuple) else g + e,
        residual=lambda e, p, sent, hp: p - sent,
        remembers=True,
        corrects=True,
        growth=unbounded,
    )


def _zeros(n: int, x: Array, fused: bool) -> PyTree:
    """One vector for each client; none where the round is one evaluation for all."""
    return () if fused else jnp.zeros((n, x.size), x.dtype)
