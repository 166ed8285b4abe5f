"""What `jaxfl run` can be told: one field per option, shared by parser, help and config.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

from jaxfl.cli.readers import Read, among, pair, real, rounds, text, whole
from jaxfl.cli.written import flag
from jaxfl.core.errors import require

__all__ = ["Option", "Session", "Setup", "options", "told"]


class Option(NamedTuple):
    """How an option is written, read and explained."""

    metavar: str
    doc: str
    group: str
    read: Read = text
    many: str = ""  # "values": several after one option; "repeat": the option several times
    later: bool = False  # may change when a run goes on


SEED = whole(0, 2**32 - 1)


@dataclasses.dataclass(frozen=True)
class Setup:
    """Everything that a run is made from; ``algorithm`` None is the demonstration."""

    algorithm: str | None = None
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)

    data: Annotated[
        str, Option("NAME|FILE", "a name of `jaxfl list data`, or a LIBSVM file", "data")
    ] = "digits"
    data_option: Annotated[
        dict[str, Any],
        Option(
            "NAME=VALUE",
            "of the data set, such as d=60 of synthetic (repeatable)",
            "data",
            pair,
            "repeat",
        ),
    ] = dataclasses.field(default_factory=dict)
    data_dir: Annotated[
        str | None,
        Option("DIR", "where data files lie (default: JAXFL_DATA, then the user's cache)", "data"),
    ] = None
    test_data: Annotated[str | None, Option("FILE", "a LIBSVM file of test examples", "data")] = (
        None
    )
    test_share: Annotated[
        float | None,
        Option(
            "SHARE",
            "part of every client's rows held out for testing",
            "data",
            real(above=0, below=1),
        ),
    ] = None
    validation_share: Annotated[
        float | None,
        Option(
            "SHARE",
            "part of the test examples set aside for choosing settings by",
            "data",
            real(above=0, below=1),
        ),
    ] = None
    clients: Annotated[int, Option("N", "clients (default: 10)", "data", whole(1))] = 10
    partition: Annotated[
        str, Option("HOW", "a name of `jaxfl list partitions` (default: iid)", "data")
    ] = "iid"
    alpha: Annotated[
        float | None,
        Option("A", "concentration of the dirichlet partition", "data", real(above=0)),
    ] = None
    partition_option: Annotated[
        dict[str, Any],
        Option(
            "NAME=VALUE",
            "of the partition, such as spread=2 of by_size (repeatable)",
            "data",
            pair,
            "repeat",
        ),
    ] = dataclasses.field(default_factory=dict)
    data_seed: Annotated[
        int,
        Option("S", "seed of the partition: --seed changes no data (default: 0)", "data", SEED),
    ] = 0

    model: Annotated[
        str | None,
        Option("NAME", "a name of `jaxfl list models` (default: by number of classes)", "model"),
    ] = None
    hidden: Annotated[
        list[int] | None,
        Option("WIDTH", "widths of the hidden layers of mlp", "model", whole(1), "values"),
    ] = None
    activation: Annotated[str | None, Option("NAME", "between the layers of mlp", "model")] = None
    init: Annotated[
        str | None, Option("HOW", "where to start: zeros, normal or normal/5", "model")
    ] = None
    regularizer: Annotated[
        str | None,
        Option("NAME", "nonconvex or l2, with --strength or as nonconvex:0.2", "model"),
    ] = None
    strength: Annotated[float | None, Option("X", "of the regularizer", "model", real())] = None
    constraint: Annotated[
        str | None,
        Option("SET", "where the model has to stay: ball:RADIUS or box:LOW,HIGH", "model"),
    ] = None
    dtype: Annotated[
        str,
        Option(
            "TYPE", "float32 or float64 (default: float32)", "model", among("float32", "float64")
        ),
    ] = "float32"

    compressor: Annotated[
        str | None,
        Option("NAME", "a name of `jaxfl list compressors`, or two: qsgd+random_k", "parts"),
    ] = None
    sampler: Annotated[str | None, Option("NAME", "a name of `jaxfl list samplers`", "parts")] = (
        None
    )
    participation: Annotated[
        str | None, Option("NAME", "a name of `jaxfl list participations`", "parts")
    ] = None
    aggregation: Annotated[
        str | None,
        Option(
            "NAME",
            "how the server gets the sum of the messages: a name of `jaxfl list aggregations`",
            "parts",
        ),
    ] = None
    graph: Annotated[
        str | None,
        Option(
            "NAME",
            "who talks to whom without a server: complete, ring, grid or erdos_renyi:P,SEED",
            "parts",
        ),
    ] = None
    clip_mode: Annotated[
        str,
        Option(
            "HOW",
            "clip the gradient of every example (default), or batch: only their mean, which "
            "bounds no single record's influence",
            "parts",
            among("example", "batch"),
        ),
    ] = "example"
    noise: Annotated[
        str,
        Option(
            "HOW",
            "calibrated: the least that an accountant proves --eps for (default), or paper: what "
            "the paper's formula says",
            "parts",
            among("calibrated", "paper"),
        ),
    ] = "calibrated"
    noise_draw: Annotated[
        str,
        Option(
            "HOW",
            "fused: one draw with the law of the clients' mean, where that is enough (default), or "
            "per_client",
            "parts",
            among("fused", "per_client"),
        ),
    ] = "fused"
    storage: Annotated[
        str,
        Option(
            "TYPE",
            "how what clients remember is kept: exact (default), or rounded to bfloat16 or float16, "
            "with half the memory; means over records stay exact",
            "parts",
            among("exact", "bfloat16", "float16"),
        ),
    ] = "exact"

    rounds: Annotated[
        int | None,
        Option(
            "T",
            "rounds (default: 200), or auto: what the theory asks for",
            "run",
            rounds,
            later=True,
        ),
    ] = 200
    seed: Annotated[int, Option("S", "seed of the run (default: 0)", "run", SEED)] = 0
    eval_every: Annotated[
        int | None,
        Option(
            "E",
            "rounds between evaluations (default: T/100; 0: only at both ends)",
            "run",
            whole(0),
        ),
    ] = None
    checkpoint_every: Annotated[
        int | None,
        Option(
            "C",
            "rounds between checkpoints (default: only at the end)",
            "run",
            whole(1),
            later=True,
        ),
    ] = None
    device: Annotated[
        str | None,
        Option(
            "KIND",
            "cpu, gpu or tpu (default: JAX's choice)",
            "run",
            among("cpu", "gpu", "tpu"),
            later=True,
        ),
    ] = None
    target_loss: Annotated[
        float | None, Option("LOSS", "stop at this training loss", "run", real(), later=True)
    ] = None
    max_seconds: Annotated[
        float | None,
        Option(
            "S",
            "stop after so many seconds, at the next evaluation (--eval-every)",
            "run",
            real(above=0),
            later=True,
        ),
    ] = None
    max_bits: Annotated[
        float | None,
        Option(
            "BITS",
            "stop after so many uplink bits of all clients",
            "run",
            real(above=0),
            later=True,
        ),
    ] = None

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], file: Path) -> Setup:
        """As ``file`` holds it: an option that was not there when it was written has its default."""
        told(stored, file)
        if not {"algorithm", "numbers"} <= set(stored):  # have been there from the beginning
            raise KeyError("algorithm")
        return cls(**stored)

    def differences(self, other: Setup) -> Iterator[tuple[str, Any, Any]]:
        """(option, mine, the other's) wherever the two would not compute the same."""
        for field in dataclasses.fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            if field.name == "numbers":
                for name in sorted({*mine, *its}):
                    if mine.get(name) != its.get(name):
                        yield flag(name), mine.get(name), its.get(name)
            elif mine != its and field.name != "checkpoint_every":
                name = "ALGORITHM" if field.name == "algorithm" else flag(field.name)
                yield name, mine, its


class Session(NamedTuple):
    """How this call goes; nothing that changes a number."""

    out: str | None = None
    resume: str | None = None
    force: bool = False
    quiet: bool = False
    plot: bool = True
    bound: float | None = None  # lambda of Lemma 6; 0: Theorem 2 alone; None: no bound is drawn


def options() -> dict[str, Option]:
    """The options of :class:`Setup` by name."""
    hints = get_type_hints(Setup, include_extras=True)
    found = {
        name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")
    }
    return found


def told(stored: Iterable[str], file: Path) -> None:
    """Refuse a file with an option that only another version knows."""
    for name in stored:
        require(
            name in {field.name for field in dataclasses.fields(Setup)},
            f"{file} has the option {flag(name)}, which this version of jaxfl does not know",
            "go on with the version that wrote it",
        )
