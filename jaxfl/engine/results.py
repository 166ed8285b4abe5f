"""Results: one portable file, and descriptions in words.

Files are netCDF3, which every netCDF reader opens.  It has no 64-bit integers, so totals are
float64; a total that float64 would round raises an error.  The first attribute is a digest of all other
bytes of the file.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxfl.core.checks import kind_of, one_path
from jaxfl.core.errors import InputError, require
from jaxfl.core.files import (
    NO_DIGEST,
    check_digest,
    check_format,
    reading,
    replace,
    sealed,
    writable,
)
from jaxfl.privacy.claims import above, understates

if TYPE_CHECKING:
    import xarray


__all__ = [
    "FORMAT",
    "LABELS",
    "RESULT",
    "assumed",
    "config",
    "exact",
    "labelled",
    "load",
    "measured_on",
    "plain",
    "portable",
    "privacy",
    "save",
    "unproven",
]

Array: TypeAlias = npt.NDArray[Any]

FORMAT = 1
RESULT = "result.nc"  # the file in the folder of a run or a sweep
DIGEST = (
    b"\0\0\0\6digest\0\0\0\0\0\2\0\0\0\x40"  # name, kind and length of the attribute, in netCDF3
)

UNITS = {
    **dict.fromkeys(("round", "last_round", "diverged_at", "stopped_at", "client_rounds"), "round"),
    **dict.fromkeys(("uplink_bits", "downlink_bits"), "bit"),
    "messages": "message",
    "gradients": "gradient",
}
WORDS = {
    "round": "communication round",
    "client": "client",
    "coordinate": "coordinate of the model",
    "loss": "training loss, mean over clients",
    "grad_norm_sq": "squared norm of the full gradient",
    "accuracy": "training accuracy, mean over clients",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "validation_loss": "validation loss",
    "validation_accuracy": "validation accuracy",
    "accuracy_deviation": "standard deviation over clients of the training accuracy",
    "test_accuracy_deviation": "standard deviation over clients of the test accuracy",
    "utility": "running mean of the squared norm of the full gradient",
    "messages": "messages sent by all clients so far",
    "coordinates": "coordinates in these messages so far",
    "gradients": "per-example gradients evaluated so far",
    "clamped": "coordinates clamped by secure aggregation so far",
    "eps_spent": "eps proven for the rounds so far",
    "client_rounds": "rounds in which each client took part",
    "client_eps": "eps proven for each client and its own rounds",
    "client_eps_claimed": "eps of each client by the paper's formula",
    "uplink_bits": "bits sent by all clients so far",
    "downlink_bits": "bits sent to all clients so far",
    "x": "the model, flat",
    "seed": "seed",
    "last_round": "the run's number of rounds",
    "diverged_at": "first evaluated round at which the run was not finite",
    "complete": "whether the run has finished",
    "proven_eps": "eps that an accountant proves for one run",
    "claimed_eps": "eps that the paper's formula claims for this noise",
    "delta": "delta of both eps",
    "delta_of_eps": "delta of both eps, where delta is an axis",
    "delta_at_claimed": "delta proven at the claimed eps",
    "mu": "mu of Gaussian DP down to the stated delta, where its regret is at most 0.01",
    "tpr_at_0.01": "largest true positive rate of an attack at a false positive rate of 1 %",
    "tpr_at_0.001": "largest true positive rate of an attack at a false positive rate of 0.1 %",
    "flag": "whether the proven eps exceeds the claimed one by more than 1 %, or a bound does not hold",
    "broken": "largest norm of an example's gradient at x0 where it breaks gradient_bound",
    "noisy_losses": "losses with noise that a stopping rule may read: the proven eps covers them",
    "n": "clients of the problem",
    "tried": "runs among which a step size is selected: steps and shifts times seeds",
    "eps_of_choice": "eps proven for the release of all these runs; none if they share noise",
    "stated": "1 where the user states the event, which nobody checked; 2 where parts declare it",
    "protects": "whom the proven eps protects from whom: see flag_meanings",
    "noisy": "whether the algorithm adds noise; without, nothing is private",
    "stopped_at": "the round at which a rule stopped the run",
}
for _name in ("loss", "accuracy", "test_loss", "test_accuracy"):
    _metric = _name.replace("_", " ") if "test" in _name else f"training {_name}"
    WORDS[f"client_{_name}"] = f"{_metric} of each client"
    WORDS[f"worst_client_{_name}"] = f"{_metric} of the worst client"
    WORDS[f"worst_tenth_{_name}"] = f"{_metric}, mean over the worst tenth of the clients"
LABELS = {name: (UNITS.get(name, "1"), words) for name, words in WORDS.items()}  # unit, meaning


def measured_on(about: Mapping[str, Any]) -> str:
    """The data that ``loss`` and ``accuracy`` are of, in words: "training", "test" or "validation"."""
    on = about.get("metrics_on") or about["settings"].get("metrics_on", "train")
    return "training" if on == "train" else str(on)


def config(ds: xarray.Dataset) -> dict[str, Any]:
    """The values of a result with their sources, its facts, settings, times, privacy and ending.

    Values that are not finite are the strings "inf", "-inf" and "nan"; ``float`` reads them.
    """
    about = getattr(ds, "attrs", {})
    way = "pass run.dataset(), what jaxfl.sweep or jaxfl.load returns, or the .ds of a selection"
    require("config" in about, lambda: f"{kind_of(ds)} is no result of jaxfl", way)
    out: dict[str, Any] = json.loads(about["config"])
    return out


def privacy(about: Mapping[str, Any], *, claim: bool = True, whom: bool = True) -> str:
    """The privacy of a run in words, from its :func:`config`: what is proven, ``whom`` that protects, and
    what the paper's formula says (``claim``)."""
    found = about["privacy"]
    if found is None:
        return "not private: no noise"
    proven, delta = float(found["proven"]), float(found["delta"])
    if math.isinf(proven) and not about["settings"]["per_record"]:
        return "no per-record privacy guarantee (only the batch's mean is clipped)"
    claimed = "" if found["claimed"] is None else f"{float(found['claimed']):.4g}"
    note = found.get("note")  # older files have none
    after = f"; {note}" if note else ""
    if math.isinf(proven):
        finite = claimed not in ("", "inf")
        why = found["method"] if found["method"].startswith("no claim: ") else ""
        words = why.replace("no claim", "no eps proven") or "no eps proven"
        return words + (f", where the paper's formula claims {claimed}" * finite) + after
    said = {"U": "stated by the user, not proven,", "P": "proven if parts are as declared,"}
    how = said.get(found.get("status"), "proven")
    words = f"eps = {above(proven):.4g}, delta = {above(delta):.4g} {how}"
    # older files have none
    words += f" for {found['protects']}" if whom and found.get("protects") else ""
    if claimed and claim:
        says = "claims only" if understates(float(found["claimed"]), proven) else "says"
        words += f"; the paper's formula {says} {claimed} for this noise"
        fails = any(condition[1] is False for condition in found.get("conditions", ()))
        words += ", outside the conditions of its theorem" * fails
    return words + after


def unproven(proven: float, method: str) -> str:
    """Why a statement has no finite eps; "" where it has one."""
    return method.removeprefix("no privacy claim: ") * math.isinf(proven)


def assumed(about: Mapping[str, Any]) -> str:
    """The assumptions of a proven or stated eps, in words; empty where there is none."""
    found = about["privacy"]
    said: str = "" if found is None else found.get("assumes", "")  # older files have none
    if said and about.get("repeated"):
        said += "; the shorter run that this folder held did, and no eps holds for both"
    return said if said and math.isfinite(float(found["proven"])) else ""


def save(ds: xarray.Dataset, path: str | Path) -> Path:
    """Write a result to one file, whole or not at all."""
    path = one_path("path", path)
    table = "for a table write run.dataset().to_dataframe().to_csv(...)"
    require(path.suffix != ".csv", "names a table, and results are netCDF files", table, path=path)
    writable(path, "result")
    plain = ds.copy()
    for variable in plain.variables.values():
        variable.encoding = {"_FillValue": None}
    plain.attrs = {"digest": NO_DIGEST, **ds.attrs}
    content = bytes(plain.to_netcdf(engine="scipy", format="NETCDF3_64BIT"))
    replace(path, lambda file: file.write(sealed(content, DIGEST)))
    return path


def load(path: str | Path, *, unchecked: bool = False) -> xarray.Dataset:
    """Read a result, an ``xarray.Dataset``, from the ``path`` of a file or folder of a run or a sweep.

    Raise if the contents do not match their digest (the file is damaged) or have none (an earlier
    version wrote it).  ``unchecked=True`` reads as much of such a file as possible; its values may be
    wrong.
    """
    import xarray

    path = one_path("path", path)
    path = path / RESULT if path.is_dir() else path
    with reading(path, "result file of jaxfl", "name another, or write it again"):
        content = path.read_bytes()
        require(content[:3] == b"CDF", lambda: f"{path} is not a result file of jaxfl (netCDF3)")
        if not unchecked:
            way = "write it again, or read it as it is with {unchecked}"
            check_digest(path, content, DIGEST, way, suggested={"unchecked": True})
        out = xarray.load_dataset(io.BytesIO(content), engine="scipy")
        out.attrs.pop("digest", None)
        check_format(path, "result", config(out)["format"], FORMAT)
    return out


# --- pieces --------------------------------------------------------------------------------------


def portable(name: str, values: Array) -> Array:
    """The same values in a type that the file format has."""
    kind = values.dtype
    if kind == np.bool_:
        return values.astype(np.int8)
    if jnp.issubdtype(kind, jnp.integer):
        narrow = values.astype(np.int32)
        return narrow if np.array_equal(narrow, values) else exact(values)
    if jnp.issubdtype(kind, jnp.floating):
        return values if kind in (np.float32, np.float64) else values.astype(np.float32)
    raise InputError(f"Metric {name!r} has dtype {kind}", "make it return real numbers")


def exact(values: Any) -> Array:
    """Whole numbers as float64: exact up to 2^53, and the nearest beyond, to 16 digits."""
    return np.asarray(values, np.float64)


def labelled(spent: Mapping[str, Any]) -> dict[str, Any]:
    """Totals by the names that they have in results."""
    return {"messages" if name == "clients" else name: value for name, value in spent.items()}


def plain(value: Any) -> Any:
    """``value`` as strict JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy and JAX
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
