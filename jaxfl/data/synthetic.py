"""Generated clients that differ in their models and in their features."""

from __future__ import annotations

import numpy as np

from jaxfl.core.checks import spelt, stream
from jaxfl.core.errors import require
from jaxfl.core.memory import check_fits
from jaxfl.core.params import known, nonnegative, number, whole
from jaxfl.data.records import Array, ClientData, pad
from jaxfl.data.sizes import sizes

__all__ = ["synthetic"]

COPIES = 2  # of the features, at least: as drawn, and on the device
LARGEST = 1e18  # of a standard deviation, whose square a float32 still holds
VARIANTS = {"fedprox": True, "entrywise": False}


@spelt("Function")
def synthetic(
    n: int = 30,
    m: int = 100,
    d: int = 60,
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    classes: int = 10,
    seed: int = 0,
    unequal: str | None = None,
    spread: float = 1.0,
    test: int = 0,
    noise: float = 0.1,
    variant: str = "fedprox",
) -> ClientData:
    """The (alpha, beta) generator: n clients with their own models (alpha) and features (beta).

    For client k, with all scalars and entries independent::

        u_k ~ N(0, alpha^2)        W_k ~ N(u_k, 1)  (d, classes)     b_k ~ N(u_k, 1)  (classes,)
        B_k ~ N(0, beta^2)         v_k ~ N(B_k, 1)  (d,)
        x   ~ N(v_k, Sigma),       Sigma = diag(j^{-1.2}),  j = 1..d
        y   = argmax(W_k^T x + b_k)

    ``classes=2`` has one weight vector, y = 1 if w_k^T x + b_k > 0; ``classes=0`` has real targets
    y = w_k^T x + b_k + N(0, noise^2).

    The argmax does not see what all columns of W_k share, so with more than two classes alpha
    changes no label in the published generator; and alpha = beta = 0 makes no two clients alike.
    ``variant="entrywise"`` repairs both, with all entries below standard normal:
    ``W_k = W + alpha E_k``, ``b_k = b + alpha e_k``, ``v_k = beta z_k``.

    Every client has m rows, or n m rows are divided by the law ``unequal`` (`sizes`, with its
    ``spread``); ``test`` more rows of each client are pooled into the test set.  ``seed`` fixes all draws.

    Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, section 5.1, with alpha
    and beta as standard deviations like the authors' code; Shamir, Srebro and Zhang, ICML 2014.
    """
    n, m, d = whole("n", n, 1), whole("m", m, 1), whole("d", d, 1)
    test, classes = whole("test", test, 0), whole("classes", classes, 0)
    deviations = {"alpha": alpha, "beta": beta, "noise": noise}
    alpha, beta, noise = (number(k, v, least=0, most=LARGEST) for k, v in deviations.items())
    nonnegative("spread", spread)
    require(classes != 1, "is no choice", "give 0 for real targets, or at least 2", classes=classes)
    published = known("variant", variant, VARIANTS)
    outputs = classes if classes > 2 else 1
    entries = n * d * (outputs + 1) + n * (m + test) * (COPIES * d + outputs)
    check_fits(f"{n:,} clients with {m + test:,} samples of {d:,}", 4 * entries, "take less")

    rng = stream(seed, "synthetic models")
    weight, bias = _normal(rng, n, d, outputs), _normal(rng, n, 1, outputs)
    shared, mean = _normal(rng, 1, d + 1, outputs), _normal(rng, n, 1, d)
    u, centre = _normal(rng, n, 1, 1) * np.float32(alpha), _normal(rng, n, 1, 1) * np.float32(beta)
    if published:
        weight, bias, mean = weight + u, bias + u, mean + centre
    else:
        weight = shared[:, :d] + np.float32(alpha) * weight
        bias = shared[:, d:] + np.float32(alpha) * bias
        mean = np.float32(beta) * mean
    scale = (np.arange(1, d + 1) ** -0.6).astype(np.float32)

    def draw(count: Array, purpose: str) -> tuple[Array, Array]:
        """All rows, client after client, without padding, which then costs no arithmetic."""
        rng, ends = stream(seed, purpose), np.cumsum(count)
        x, z = _normal(rng, ends[-1], d), np.empty((ends[-1], outputs), np.float32)
        x *= scale
        for k, (start, end) in enumerate(zip(ends - count, ends, strict=True)):
            x[start:end] += mean[k]
            z[start:end] = x[start:end] @ weight[k] + bias[k]
        if classes > 2:
            return x, z.argmax(axis=1).astype(np.int32)
        if classes == 2:
            return x, (z[:, 0] > 0).astype(np.int32)
        return x, z[:, 0] + np.float32(noise) * _normal(rng, ends[-1])

    count = np.full(n, m) if unequal is None else sizes(unequal, n * m, n, seed, spread=spread)
    x, y = draw(count, "synthetic rows")
    train = tuple(pad(np.split(a, np.cumsum(count)[:-1]), count, a) for a in (x, y))
    held = draw(np.full(n, test), "synthetic test rows") if test else None
    owner = np.repeat(np.arange(n, dtype=np.int32), test) if test else None
    count = count.astype(np.int32)
    return ClientData(train, count, held, classes, "synthetic", test_owner=owner)


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, dtype=np.float32)
