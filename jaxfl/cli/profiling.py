"""`jaxfl profile`: compile time, time by phase, arithmetic and traffic beside the machine's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxfl.cli.build import choose_algorithm, choose_problem
from jaxfl.cli.compute import absolute, computing
from jaxfl.cli.parser import checked, parse
from jaxfl.cli.report import print_json
from jaxfl.cli.written import flag
from jaxfl.core.errors import printable, require
from jaxfl.core.progress import plural
from jaxfl.engine.profiling import profile
from jaxfl.views.words import in_units

__all__ = ["run_profile"]

REFUSED = ("out", "resume", "extend", "force", "plan", "track", "no_plot")


def run_profile(words: Sequence[str]) -> None:
    """usage: jaxfl profile [ALGORITHM] [--OPTION VALUE ...]

    Measure the time of one round by phase (random draws, reading samples, gradients, messages), of its
    compilation and of an evaluation, and compare its arithmetic and memory traffic with a large matrix
    product and a copy on the same machine.  The options are those of `jaxfl run`; no file is written.

      jaxfl profile soteriafl_sgd --data mnist --model mlp --clients 100 --batch 32
    """
    import jax

    study, session = parse("run", words)
    for name in REFUSED:
        written = f"{flag(name)} is an option of `jaxfl run`, and `jaxfl profile` writes no file"
        require(not getattr(session, name), written)
    study = checked(dataclasses.replace(study, options=absolute(study.options)), "run")
    numbers = {name: values[0] for name, values in study.numbers.items()}
    with computing(study.setup):
        algorithm, problem = choose_algorithm(study.setup), choose_problem(study.setup)
        found = profile(
            algorithm,
            problem,
            jax.random.key(study.seeds[0]),
            numbers.pop("rounds", None) or 100,
            noise=study.setup.noise,
            **numbers,
        )
    if session.json:
        whole = {**found._asdict(), "of_matmul": found.of_matmul, "of_copy": found.of_copy}
        print_json({"algorithm": algorithm.name, "problem": problem.name, **whole})
        return
    d = problem.model.dim
    name = printable(problem.name)
    print(f"{algorithm.name} on {name}: {plural(problem.n, 'client')}, d = {d:,}; {found.device}")
    print(f"compilation  {found.trace:.2f} s tracing, {found.compile:.2f} s compiling one round")
    print(f"round        {_time(found.round)}, {1 / found.round:,.0f} rounds/s")
    for name, seconds in found.phases.items():
        print(f"  {name:<20}{_time(seconds):>10}  {seconds / found.round:6.1%}")
    print(
        f"evaluation   {_time(found.evaluation)}, as long as {found.evaluation / found.round:,.1f} rounds"
    )
    print(
        f"arithmetic   {in_units(found.flops, 'FLOP')} a round, "
        f"{in_units(found.flops / found.round, 'FLOP/s')}: {found.of_matmul:.1%} of a large matrix "
        f"product ({in_units(found.matmul, 'FLOP/s')})"
    )
    print(
        f"traffic      {in_units(found.bytes, 'B')} a round, {in_units(found.bytes / found.round, 'B/s')}: "
        f"{found.of_copy:.2g} times the speed of a copy ({in_units(found.copy, 'B/s')})"
        + ", much of it in caches"
        * (found.of_copy > 1)
    )
    held = sum(found.memory.values())
    print(
        f"memory       state {in_units(held, 'B')}, data {in_units(found.data, 'B')}, scratch of a round "
        f"{in_units(found.scratch, 'B')}"
    )


def _time(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
