"""The options of `jaxfl run`, one field each: shared by parser, help and config.json."""

# ruff: noqa: RUF009 -- option() returns a field

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxfl.cli.readers import Among, Read, pair, real, records, rounds, text, whole
from jaxfl.cli.written import JSON, TRACK, flag
from jaxfl.core.checks import conforms
from jaxfl.core.errors import InputError, require

__all__ = ["DEFAULTS", "LIMITS", "Option", "Session", "Setup", "check_options", "option", "options"]


class Option(NamedTuple):
    """How an option is written, read and explained."""

    group: str
    metavar: str  # "": a flag, which takes no value
    doc: str
    read: Read = text
    many: str = ""  # "values": several after the option; "repeat": the option several times
    later: bool = False  # may change when a run is resumed
    bare: str | None = None  # the value of the option without one


def option(group: str, default: Any, metavar: str, doc: str, *how: Any, **keywords: Any) -> Any:
    """A field of a dataclass that is an option of the command line."""
    metadata = {"option": Option(group, metavar, doc, *how, **keywords)}
    if default is dict:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options(kind: type) -> dict[str, Option]:
    """The options among the fields of a dataclass, by name."""
    return {
        field.name: field.metadata["option"]
        for field in dataclasses.fields(kind)
        if "option" in field.metadata
    }


_data, _model, _part, _run, _output = (
    functools.partial(option, group) for group in ("data", "model", "parts", "run", "output")
)
SEED = whole(0, 2**32 - 1)
SHARE = real(above=0, below=1)
# without clients of the data's own
DEFAULTS: dict[str, Any] = {"clients": 10, "partition": "iid"}
# what may end a run before its last round
LIMITS = ("target_loss", "loss_bound", "loss_sigma", "max_seconds", "max_bits")


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a run is made from; without ``algorithm`` that is the demonstration."""

    algorithm: str | None = None
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)

    data: str = _data(
        "digits",
        "NAME|FILE",
        "data set: a name of `jaxfl list data`, a LIBSVM file, or leaf:FOLDER with JSON files of LEAF "
        "(default: digits)",
    )
    data_option: dict[str, Any] = _data(
        dict, "NAME=VALUE", "option of the data set, such as d=60 (repeatable)", pair, "repeat"
    )
    data_dir: str | None = _data(
        None,
        "DIR",
        "folder of data files (default: the variable JAXFL_DATA, else the user's cache)",
    )
    test_data: str | None = _data(None, "FILE", "LIBSVM file of test records")
    test_share: float | None = _data(
        None,
        "SHARE",
        "share of each client's records held out for testing (default: the data set's own test records, "
        "if it has any)",
        SHARE,
    )
    validation_share: float | None = _data(
        None,
        "SHARE",
        "share of the test records set aside to choose hyper-parameters on (default: none)",
        SHARE,
    )
    clients: int | None = _data(
        None, "N", "number of clients (default: 10; of LEAF's data all)", whole(1)
    )
    partition: str | None = _data(
        None,
        "HOW",
        "how clients share the data: a name of `jaxfl list partitions` (default: iid; LEAF's data have "
        "clients of their own)",
    )
    alpha: float | None = _data(
        None,
        "A",
        "concentration of the dirichlet partition: smaller is less even (default: 0.5)",
        real(above=0),
    )
    partition_option: dict[str, Any] = _data(
        dict, "NAME=VALUE", "option of the partition, such as spread=2 (repeatable)", pair, "repeat"
    )
    weights: str = _data(
        "equal",
        "HOW",
        "weights of the clients in the objective: equal (default), or samples, in proportion to their "
        "numbers of records",
        Among("equal", "samples"),
    )
    data_seed: int = _data(0, "S", "seed of the partition (default: 0)", SEED)

    model: str | None = _model(
        None,
        "NAME",
        "a name of `jaxfl list models` (default: logistic for 2 classes, else softmax)",
    )
    hidden: list[int] | None = _model(
        None, "WIDTH", "widths of the hidden layers of mlp (default: 64)", whole(1), "values"
    )
    activation: str | None = _model(
        None, "NAME", "activation between the layers of mlp (default: sigmoid)"
    )
    init: str | None = _model(
        None,
        "HOW",
        "initial parameters: zeros, normal (standard deviation 1) or normal/5 (standard deviation 0.2) "
        "(default: zeros; of mlp, weights from N(0, 1/inputs))",
    )
    regularizer: str | None = _model(
        None, "NAME", "nonconvex or l2, with --strength, or as nonconvex:0.2"
    )
    strength: float | None = _model(None, "X", "strength of the regularizer", real())
    constraint: str | None = _model(
        None, "SET", "set that the parameters are projected to: ball:RADIUS or box:LOW,HIGH"
    )
    dtype: str = _model(
        "float32", "TYPE", "precision: float32 (default) or float64", Among("float32", "float64")
    )

    compressor: str | None = _part(
        None, "NAME", "a name of `jaxfl list compressors`, or two, such as qsgd+random_k"
    )
    sampler: str | None = _part(
        None, "NAME", "how a client draws its batch: a name of `jaxfl list samplers`"
    )
    participation: str | None = _part(
        None, "NAME", "which clients take part: a name of `jaxfl list participations`"
    )
    aggregation: str | None = _part(
        None, "NAME", "how messages are summed: a name of `jaxfl list aggregations`"
    )
    graph: str | None = _part(
        None,
        "NAME",
        "network of an algorithm without a server: complete, ring, grid or erdos_renyi:P,SEED",
    )
    clip_mode: str = _part(
        "example",
        "HOW",
        "example (default) clips each example's gradient; batch clips only their mean, which gives no "
        "per-record privacy unless --gradient-bound is given",
        Among("example", "batch"),
    )
    clip_by: str = _part(
        "whole",
        "WHAT",
        "whole (default) clips an example's gradient as a whole; layer clips each of K layers to the bound "
        "over sqrt(K), which keeps the whole within the bound",
        Among("whole", "layer"),
    )
    noise: str = _part(
        "calibrated",
        "HOW",
        "calibrated (default) takes the least noise for which an accountant proves --eps; paper takes "
        "the noise of the paper's formula",
        Among("calibrated", "paper"),
    )
    noise_draw: str = _part(
        "fused",
        "HOW",
        "fused (default) draws the noise of the clients' mean once, where only the mean is needed; "
        "per_client draws it for each client",
        Among("fused", "per_client"),
    )
    storage: str = _part(
        "exact",
        "TYPE",
        "type in which the clients' state is stored: exact (default), or bfloat16 or float16, which "
        "take half the memory; averages over records keep full precision",
        Among("exact", "bfloat16", "float16"),
    )

    rounds: int | None = _run(
        200,
        "T",
        "number of rounds (default: 200); auto takes the number that the theory gives",
        rounds,
        later=True,
    )
    seed: int = _run(0, "S", "seed of all random draws of the run (default: 0)", SEED)
    eval_every: int | None = _run(
        None,
        "E",
        "evaluate after every E rounds (default: between 3 and 100 evaluations, as many as take "
        "a tenth of the work; 0: only at the start and the end)",
        whole(0),
    )
    eval_records: int | str | None = _model(
        None,
        "N",
        "records of each client on which metrics are computed, evenly spaced, or all (default: all, or "
        "as many as an evaluation of some hundredths of a second allows, at least 512)",
        records,
    )
    metrics_on: str = _run(
        "train",
        "DATA",
        "data on which loss and accuracy are measured: train (default), test or validation; no proof "
        "covers metrics on train",
        Among("train", "test", "validation"),
    )
    checkpoint_every: int | None = _run(
        None,
        "C",
        "write a checkpoint after every C rounds (default: only at the end)",
        whole(1),
        later=True,
    )
    device: str | None = _run(
        None,
        "KIND",
        "device: cpu, gpu or tpu (default: the one that JAX chooses)",
        Among("cpu", "gpu", "tpu"),
        later=True,
    )
    matmul_precision: str | None = _run(
        None,
        "HOW",
        "precision of products in forward and backward passes: default lets GPUs round their inputs "
        "to TF32 and TPUs to bfloat16, highest does not (default: that of JAX's configuration)",
        Among("default", "highest"),
    )
    target_loss: float | None = _run(
        None,
        "LOSS",
        "stop once the loss is this low; on training data, a proven eps requires --loss-bound and "
        "--loss-sigma",
        real(),
        later=True,
    )
    loss_bound: float | None = _run(
        None,
        "B",
        "with --target-loss: clip each example's loss to [0, B] before it is compared",
        real(above=0),
        later=True,
    )
    loss_sigma: float | None = _run(
        None,
        "S",
        "with --target-loss: standard deviation of the noise that each client adds to its mean loss; "
        "the proven eps includes it",
        real(above=0),
        later=True,
    )
    max_seconds: float | None = _run(
        None, "S", "stop at the first evaluation after S seconds", real(above=0), later=True
    )
    max_bits: float | None = _run(
        None,
        "BITS",
        "stop once all clients together have sent BITS bits",
        real(above=0),
        later=True,
    )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], file: Path) -> Setup:
        """The setup in ``file``; options added since it was written take their defaults."""
        check_options(stored.items(), file)
        if not {"algorithm", "numbers"} <= set(stored):  # every version writes them
            raise KeyError("algorithm")
        return cls(**stored)

    def differences(self, other: Setup) -> Iterator[tuple[str, Any, Any]]:
        """(option, value here, value there) of each option that changes the result."""
        for field in dataclasses.fields(self):
            here, there = getattr(self, field.name), getattr(other, field.name)
            if field.name == "numbers":
                for name in sorted({*here, *there}):
                    if here.get(name) != there.get(name):
                        yield flag(name), here.get(name), there.get(name)
            elif here != there and field.name != "checkpoint_every":
                yield "ALGORITHM" if field.name == "algorithm" else flag(field.name), here, there


@dataclasses.dataclass(frozen=True)
class Session:
    """Options that change no result: where it goes, and what is printed and drawn."""

    out: str | None = _output(
        None, "DIR", "folder for the result (default: results/ALGORITHM-DATA-sSEED)"
    )
    resume: str | None = _output(None, "DIR", "continue the run in this folder")
    force: bool = _output(False, "", "replace the result of another configuration in the folder")
    bound: float | None = _output(
        None,
        "LAM",
        "also draw the paper's convergence bound, if it has one; with LAM also the bound for "
        "LAM-strongly convex losses",
        real(least=0.0),
        bare="0",
    )
    track: str | None = _output(None, "WHERE", TRACK)
    no_plot: bool = _output(False, "", "draw no picture")
    quiet: bool = _output(False, "", "print nothing, unless the run diverges")
    json: bool = _output(False, "", JSON)


def check_options(stored: Iterable[tuple[str, Any]], file: Path) -> None:
    """Raise for an option in ``file`` that this version does not know, or a value that it would refuse."""
    fields, table = {field.name: field for field in dataclasses.fields(Setup)}, options(Setup)
    for name, value in stored:
        require(
            name in fields,
            lambda: (
                f"{file} has the option {flag(name)}, which this version of jaxfl does not know"
            ),
            "resume it with the version that wrote it",
        )
        option = table.get(name, Option("", "NAME", ""))
        if name == "numbers":
            conforms(name, value, {str: int | float | str})
        elif option.many == "repeat":
            conforms(name, value, dict)
        elif value is not None or fields[name].default is not None:
            conforms(name, value, list if option.many else str | int | float)
            for item in value if option.many else [value]:
                try:
                    holds = option.read(flag(name), str(item)) == item
                except InputError as error:
                    raise error.within(str(file)) from None
                if not holds and item is not None:
                    raise ValueError(f"{name} is {item!r}")
