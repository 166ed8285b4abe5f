"""Private local SGD: Theorem 2 and Lemma 6 of Hu, Guo and Gong."""

from __future__ import annotations

import numpy as np

from jaxfl.algorithms.bounds import (
    CALLED,
    Array,
    Bound,
    Case,
    Family,
    Measured,
    assumed,
    covers,
    numbers,
    parts,
    unconstrained,
)
from jaxfl.algorithms.hu import theory

__all__ = ["FAMILY"]


def _check_local(case: Case) -> None:
    parts(case, "Theorem 2", participation=CALLED, server=("averaging",))
    plain = case.parts.get("local") == "sgd, free" and case.parts.get("compressor") == "identity"
    of = "plain SGD steps, no compression and server_lr = 1"
    here = f"these parts of {case.algorithm} differ"
    covers(plain and case.values["server_lr"] == 1, "Theorem 2", of, here)
    unconstrained(case, "Theorem 2")
    numbers(case)


def _local(case: Case, measured: Measured, lam: float | None) -> list[Bound]:
    values, facts = case.values, case.facts
    s = theory.LocalSetting(
        eta=float(values["lr"]),
        tau=int(values.get("local_steps", 1)),
        rounds=measured.rounds.astype(np.float64),
        r=float(values.get("cohort", facts["n"])),
        batch=float(values.get("batch", facts["m"])),
        d=float(facts["d"]),
        L=case.L,
        sigma=float(values.get("sigma", 0.0)),
        variance=case.clip**2,
        gap=measured.start,
    )
    metric = {"Theorem 2": "grad_norm_sq", "Lemma 6": "loss"}
    condition = float(theory.local_condition(s))
    out = []
    for name in ("Theorem 2",) if lam is None else ("Theorem 2", "Lemma 6"):
        found: Array | None = None
        if condition > 1 + 1e-9:
            most = float(theory.local_step(s.L, s.tau))
            note = (
                f"{name} does not apply: 5ηL + 3τ²η²L² = {condition:.3g} is above 1 at L = {s.L:.4g}, and "
                f"a step size of at most {most:.3g} is needed"
            )
        else:
            note = f"{name} {assumed(case, measured, 'f* ≥ 0', 'β² ≤ clip²')}"
            found = np.asarray(theory.local_bound(s))
            if name == "Lemma 6":
                assert lam is not None
                found = measured.least + np.asarray(theory.local_bound_convex(s, lam))
                note = f"{note}, λ = {lam:g} and f* ≤ {measured.least:.4g}"
        out.append(Bound(metric[name], name, measured.rounds, found, note))
    return out


FAMILY = Family(_check_local, _local)
