"""The options of `jaxfl run` and `jaxfl sweep`, one field each, explained in the docstrings of records."""

# ruff: noqa: RUF009 -- option() returns a field

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from typing import Any, NamedTuple

from jaxfl.cli import written
from jaxfl.cli.written import LIMITS, Among, Read, flag, real, text, whole
from jaxfl.core.errors import require
from jaxfl.engine.stopping import Limits

__all__ = [
    "DEFAULTS",
    "Counts",
    "Option",
    "Session",
    "Setup",
    "Study",
    "help_of",
    "hyper",
    "options",
]


class Option(NamedTuple):
    """The reader of an option's value, and where the option may be given several times."""

    read: Read | None = text  # None: a flag, which takes no value
    many: str = ""  # "axis": several values, "list": of one value, "repeat": several times
    axis: str = ""  # what depends on it where it is an axis: "algorithm" or "problem"
    bare: str | None = None  # the value of the option without one
    alone: str = ""  # the one command that has it


def option(default: Any, *how: Any, **more: Any) -> Any:
    """A field of a record that is an option of the command line."""
    metadata = {"option": Option(*how, **more)}
    if default is dict:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@functools.cache
def options(kind: type) -> dict[str, Option]:
    """The options among the fields of a record, by name."""
    found = {field.name: field.metadata.get("option") for field in dataclasses.fields(kind)}
    return {name: each for name, each in found.items() if each is not None}


def hyper(name: str) -> str:
    """The option of a hyper-parameter; one that is called as another option has a longer name."""
    taken = {name for kind in (Setup, Counts, Session) for name in options(kind)}
    free = name == "rounds" or name not in taken | {"import", "config", "help", "algorithms"}
    return flag(name if free else f"hyper_{name}")


def help_of(*documented: Any) -> str:
    """Docstrings without their first lines: the options that they explain."""
    return "\n\n".join(str(inspect.getdoc(each)).split("\n\n", 1)[1] for each in documented)


_one = functools.partial(option, None)
_built = functools.partial(option, many="axis", axis="algorithm")
_posed = functools.partial(option, many="axis", axis="problem")
SHARE = real(above=0, below=1)
POSITIVE = real(above=0)
# without clients of the data's own
DEFAULTS: dict[str, Any] = {"clients": 10, "partition": "iid"}
SEED = whole(0, 2**31 - 1)
MOST = 100_000  # seeds


@dataclasses.dataclass(frozen=True)
class Setup:
    """The options from which the algorithm, the problem and the loop of one run are made.

    data:
      --data NAME|FILE          data set: a name of `jaxfl list data`, a LIBSVM file, or leaf:FOLDER with
                                JSON files of LEAF (default: digits)
      --data-option NAME=VALUE  option of the data set, such as d=60 of synthetic (repeatable); of all that
                                have a name records=N takes N training records, evenly spaced
      --data-dir DIR            folder of data files (default: the variable JAXFL_DATA, else the user's
                                cache)
      --test-data FILE          LIBSVM file of test records
      --test-share SHARE        share of each client's records held out for testing (default: the data
                                set's own test records, if it has any)
      --validation-share SHARE  share of the test records set aside to choose hyper-parameters on
                                (default: none)
      --clients N               number of clients (default: 10; of LEAF's data all)
      --partition HOW           how clients share the data: a name of `jaxfl list partitions` (default:
                                iid; LEAF's data have clients of their own)
      --alpha A                 concentration of the dirichlet partition: smaller is less even (default:
                                0.5)
      --partition-option NAME=VALUE
                                option of the partition, such as spread=2 (repeatable)
      --weights HOW             weights of the clients in the objective: equal (default), or samples, in
                                proportion to their numbers of records
      --data-seed S             seed of the partition (default: 0)

    model:
      --model NAME              a name of `jaxfl list models` (default: logistic for 2 classes, else
                                softmax)
      --hidden WIDTH ...        widths of the hidden layers of mlp (default: 64); they are one value, and
                                no axis of a sweep
      --activation NAME         activation between the layers of mlp (default: sigmoid)
      --init HOW                initial parameters: zeros, normal (standard deviation 1) or normal/5
                                (standard deviation 0.2) (default: zeros; of mlp, weights from
                                N(0, 1/inputs))
      --bias HOW                intercept of a model that has the option bias: on or off (default: on for
                                softmax, mlp, and for linear models of data of your own, a file or
                                registered; off for linear models of other data, as in papers)
      --regularizer NAME        nonconvex or l2, with --strength, or as nonconvex:0.2
      --strength X              strength of the regularizer
      --constraint SET          set that the parameters are projected to: ball:RADIUS or box:LOW,HIGH
      --clip-by WHAT            whole (default) clips an example's gradient as a whole; layer clips each of
                                K layers to the bound over sqrt(K), which keeps the whole within the bound
      --dtype TYPE              precision: float32 (default) or float64
      --eval-records N          records of each client on which metrics are computed, evenly spaced, or all
                                (default: all, or as many as an evaluation of some hundredths of a second
                                allows, at least 512)

    parts of the algorithms:
      --compressor NAME         a name of `jaxfl list compressors`, or two, such as qsgd+random_k
      --sampler NAME            how a client draws its batch: a name of `jaxfl list samplers`
      --participation NAME      which clients take part: a name of `jaxfl list participations`
      --aggregation NAME        how messages are summed: a name of `jaxfl list aggregations`
      --graph NAME              network of an algorithm without a server: complete, ring, grid or
                                erdos_renyi:P,SEED
      --clip-mode HOW           example (default) clips each example's gradient; client clips what a client
                                sends, and protects all of its records; batch clips the same, and has
                                no eps, but with a gradient_bound that some algorithms take
      --clipping HOW            hard scales what is longer than the bound G to G; smooth scales everything
                                by G/(G + norm) (default: smooth for porter_*, else hard)
      --noise HOW               calibrated (default) takes the least noise for which an accountant proves
                                --eps; paper takes the noise of the paper's formula
      --noise-draw HOW          fused (default) draws the noise of the clients' mean once, where only the
                                mean is needed; per_client draws it for each client
      --storage TYPE            type in which the clients' state is stored: exact (default), or bfloat16 or
                                float16, which take half the memory; averages over records keep full
                                precision

    loop:
      --eval-every E            evaluate after every E rounds (default: as often as a tenth of the work
                                allows, between 3 and 100 times, but at least 20 times where these take
                                about a second or less, whatever their share; 0: only at the start and the
                                end)
      --metrics-on DATA         data on which loss and accuracy are measured: train (default), test or
                                validation; no proof covers metrics on train
      --matmul-precision HOW    precision of products in forward and backward passes: default lets GPUs
                                round their inputs to TF32 and TPUs to bfloat16, highest does not (default:
                                that of JAX's configuration)
      --device KIND             device: cpu, gpu or tpu (default: the one that JAX chooses)
      --until T                 go on to round T with the noise and the other values for --rounds, as
                                Run.extend does: a given eps is then that of --rounds alone
      --target-loss LOSS        stop a run once its loss is this low; on training data, a proven eps
                                requires --loss-bound and --loss-sigma
      --loss-bound B            with --target-loss: clip each example's loss to [0, B] before it is compared
      --loss-sigma S            with --target-loss: standard deviation of the noise that each client adds to
                                its mean loss; the proven eps includes it
      --max-seconds S           stop a run at the first evaluation after S seconds
      --max-bits BITS           stop a run once all its clients together have sent BITS bits
    """

    algorithm: str = ""

    data: str = _posed("digits", written.data)
    data_option: dict[str, Any] = option(dict, written.pair, "repeat")
    data_dir: str | None = _one(written.path)
    test_data: str | None = _one(written.path)
    test_share: float | None = _one(SHARE)
    validation_share: float | None = _one(SHARE)
    clients: int | None = _posed(None, whole(1))
    partition: str | None = _posed(None)
    alpha: float | None = _posed(None, POSITIVE)
    partition_option: dict[str, Any] = option(dict, written.pair, "repeat")
    weights: str = option("equal", Among("equal", "samples"))
    data_seed: int = option(0, SEED)

    model: str | None = _posed(None)
    hidden: list[int] | None = _one(whole(1), "list")
    activation: str | None = _one()
    init: str | None = _one()
    bias: str | None = _posed(None, Among("on", "off"))
    regularizer: str | None = _posed(None)
    strength: float | None = _posed(None, real())
    constraint: str | None = _one()
    clip_by: str = _posed("whole", Among("whole", "layer"))
    dtype: str = option("float32", Among("float32", "float64"))
    eval_records: int | str | None = _one(written.records)

    compressor: str | None = _built(None)
    sampler: str | None = _built(None)
    participation: str | None = _built(None)
    aggregation: str | None = _built(None)
    graph: str | None = _built(None)
    clip_mode: str = _built("example", Among("example", "client", "batch"))
    clipping: str | None = _built(None, Among("hard", "smooth"))
    noise: str = option("calibrated", Among("calibrated", "paper"))
    noise_draw: str = _built("fused", Among("fused", "per_client"))
    storage: str = _built("exact", Among("exact", "bfloat16", "float16"))

    eval_every: int | None = _one(whole(0))
    metrics_on: str = option("train", Among("train", "test", "validation"))
    matmul_precision: str | None = _one(Among("default", "highest"))
    device: str | None = _one(Among("cpu", "gpu", "tpu"))
    until: int | None = _one(whole(1, 2**31 - 1))
    target_loss: float | None = _one(real())
    loss_bound: float | None = _one(POSITIVE)
    loss_sigma: float | None = _one(POSITIVE)
    max_seconds: float | None = _one(POSITIVE)
    max_bits: float | None = _one(POSITIVE)

    @property
    def stop(self) -> Limits:
        """The limits that may end a run before its last round."""
        limits = {name: getattr(self, option) for name, option in LIMITS.items()}
        return limits if any(value is not None for value in limits.values()) else None


@dataclasses.dataclass(frozen=True)
class Counts:
    """The number of runs, and their length.

    runs:
      --rounds T                number of rounds (default: 200); auto takes the number that the theory gives
      --seed S                  seed of all random draws of a run: anybody can repeat them (default:
                                draws that nobody can repeat)
      --seeds S                 S runs of each setting, with draws that nobody can repeat
      --unpaired                draw separately for each setting, not once per seed; of sweeps
    """

    rounds: list[int | None] | None = _one(written.rounds, "axis")
    seed: list[int] | None = _one(SEED, "axis")
    seeds: int | None = _one(whole(1, MOST))
    unpaired: bool = option(False, None, alone="sweep")


@dataclasses.dataclass(frozen=True)
class Session:
    """The options that change no result: where it goes, what computes it, what is printed and drawn.

    execution:
      --memory BYTES            memory for the runs that are computed together (default: most of what is
                                free)
      --on WHERE                what computes the chunks: processes:N of this machine, ray,
                                ray://HOST:PORT, dask://HOST:PORT or slurm (default: this process)
      --slurm-option NAME=VALUE
                                option of the jobs of --on slurm, such as partition=gpu (repeatable)
      --chunk-seconds SECONDS   longest time that a chunk of --on takes (default: 300); of sweeps
      --strict                  refuse parts of --import that a probe refutes (else the run has no eps, and
                                ends with exit status 3)

    input and output:
      --out DIR                 folder for the result (default: results/ALGORITHM-DATA-sSEED, of a sweep
                                results/sweep-ALGORITHMS-DATA)
      --resume DIR              finish what is in this folder as it was begun
      --extend DIR              compute more rounds in this folder, of a sweep also these values,
                                ALGORITHMs and seeds; what is there is not computed again where its rounds
                                would be the same, as with --sigma (noise for an eps follows from the
                                rounds: such a run begins again)
      --force                   replace the run in the folder; of runs
      --plan                    print what is to be computed, and compute nothing
      --track WHERE             also write metrics to tensorboard:DIR, wandb:PROJECT or mlflow:URI
      --choose-by HOW           the metric after the last round by which the best setting along lr and
                                shift is chosen: auto (default: accuracy, else loss, on validation data;
                                without them the training loss), a metric, min:NAME or max:NAME; of sweeps
      --bound [LAM]             also draw the paper's convergence bound, if it has one; with LAM also the
                                bound for LAM-strongly convex losses; of runs
      --no-plot                 draw no pictures
      --quiet                   print nothing, unless runs diverge
    """

    memory: int | None = _one(whole(1))
    on: str | None = _one()
    slurm_option: dict[str, str] = option(dict, written.pair, "repeat")
    chunk_seconds: float | None = _one(POSITIVE, alone="sweep")
    strict: bool = option(False, None)

    out: str | None = _one()
    resume: str | None = _one()
    extend: str | None = _one()
    force: bool = option(False, None, alone="run")
    plan: bool = option(False, None)
    track: str | None = _one()
    choose_by: str | None = _one(alone="sweep")
    bound: float | None = _one(real(least=0.0), bare="0", alone="run")
    no_plot: bool = option(False, None)
    quiet: bool = option(False, None)
    json: bool = option(False, None)


@dataclasses.dataclass(frozen=True)
class Study:
    """The runs that `jaxfl run` and `jaxfl sweep` compute: several values of an option are an axis."""

    algorithms: list[str]
    options: dict[str, list[Any]]  # of :class:`Setup`
    numbers: dict[str, list[Any]]  # hyper-parameters and ``rounds``; schedules are texts
    seeds: list[int]
    paired: bool = True
    assumed: dict[str, str] = dataclasses.field(default_factory=dict)  # values that nobody gave
    seeded: bool = True  # whether seeds were named: draws are then known to all

    @property
    def words(self) -> list[str]:
        """The words of a command that asks for this study."""
        given = {flag(name): values for name, values in self.options.items()}
        for name, values in self.numbers.items():
            given[hyper(name)] = ["auto" if value is None else value for value in values]
        out = [*self.algorithms, *["--unpaired"] * (not self.paired)]
        secret = not self.seeded and self.seeds == [*range(len(self.seeds))]
        given |= {"--seeds": [len(self.seeds)]} if secret else {"--seed": self.seeds}
        for option, values in given.items():
            first = values[0]
            if isinstance(first, dict):
                out += [f"{option}={name}={json.dumps(value)}" for name, value in first.items()]
            else:
                out += [option, *map(str, first if isinstance(first, list) else values)]
        return out

    @property
    def setup(self) -> Setup:
        """The options with one value."""
        one = {name: values[0] for name, values in self.options.items() if len(values) == 1}
        return Setup(next(iter(self.algorithms), ""), **one)

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The values of everything with several, and the algorithms."""
        both = [*self.options.items(), *self.numbers.items()]
        found = {name: values for name, values in both if len(values) > 1}
        twice = sum(len(values) > 1 for _, values in both) > len(found)
        require(not twice, "Two axes have one name", "give one of them a single value")
        return {"algorithm": self.algorithms, **found}

    @property
    def fixed(self) -> dict[str, Any]:
        """The hyper-parameters with one value, and the number of rounds."""
        one = {name: values[0] for name, values in self.numbers.items() if len(values) == 1}
        return {name: value for name, value in one.items() if value is not None}
