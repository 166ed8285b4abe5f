"""What transcriptions have in common: a clipped gradient and a regularizer, in NumPy."""

import numpy as np

from jaxfl.core.types import Problem

LAM = 0.2


def clipped(problem: Problem, i: int, j: int, x: np.ndarray, G: float) -> np.ndarray:
    a, s = np.asarray(problem.train[0][i, j], float), 2 * float(problem.train[1][i, j]) - 1
    g = -s * a / (1 + np.exp(s * (a @ x)))
    return g * min(1, G / max(np.linalg.norm(g), 1e-300))


def regularizer(x: np.ndarray) -> np.ndarray:
    return LAM * 2 * x / (1 + x**2) ** 2
