"""`jaxfl theory`: SoteriaFL's Tables 1 and 2 for the values on the command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxfl.algorithms.soteriafl.tables import table_1, table_2, text
from jaxfl.algorithms.soteriafl.theory import Setting
from jaxfl.cli.parser import Once, Parser
from jaxfl.cli.readers import real, whole
from jaxfl.cli.report import print_json
from jaxfl.cli.written import flag
from jaxfl.core.errors import InputError

__all__ = ["run_theory", "symbols", "theory_parser"]

ABOVE = real(above=0)
# option: (its symbol in the paper, the field of Setting, its default, its range, its meaning)
SYMBOLS = {
    "clients": ("n", "n", 10, whole(1), "number of clients"),
    "samples": ("m", "m", 3256, whole(1), "records per client"),
    "dimension": ("d", "d", 124, whole(1), "coordinates of the model"),
    "omega": ("omega", "omega", 19.0, real(least=0), "variance of the compressor"),
    "eps": ("eps", "eps", 1.0, ABOVE, "privacy"),
    "delta": ("delta", "delta", 1e-3, real(above=0, below=1), "privacy failure probability"),
    "smoothness": ("L", "L", 1.0, ABOVE, "smoothness of every example's loss"),
    "clip": ("G", "G", 1.0, ABOVE, "bound on every example's gradient"),
    "variance": (
        "sigma~^2",
        "",
        None,
        ABOVE,
        "absolute error of Q-DPSGD-1's quantizer (default: 1 + omega)",
    ),
}


def run_theory(words: Sequence[str]) -> None:
    """usage: jaxfl theory [--SYMBOL VALUE ...]

    Evaluate Tables 1 and 2 of SoteriaFL for any values: utility and communication of each algorithm, by
    the paper's asymptotic orders O(...), with every hidden constant taken as 1.

      jaxfl theory --clients 100 --samples 600 --eps 2 --omega 9
    """
    import numpy as np

    parser = theory_parser()
    found, rest = parser.parse_known_args(list(words))
    parser.finish(rest, "`jaxfl theory` takes options only", "`jaxfl theory --help` lists them")
    values: dict[str, Any] = {}
    for name, (_, _, default, read, _) in SYMBOLS.items():
        word = getattr(found, name)
        values[name] = default if word is None else read(flag(name), word)
    variance = values.pop("variance")
    s = Setting(**{SYMBOLS[name][1]: float(value) for name, value in values.items()})
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            tables = {
                "table_1": [row._asdict() for row in table_1(s, variance)],
                "table_2": [row._asdict() for row in table_2(s)],
            }
            lines = text(s, variance)
    except (OverflowError, FloatingPointError, ZeroDivisionError):
        name = max(values, key=lambda name: abs(math.log10(values[name] or 1)))
        raise InputError(
            "with the other values gives more than floating point holds",
            "take a number nearer to 1",
            **{flag(name): values[name]},
        ) from None
    if found.json:
        print_json({"values": values, **tables})
        return
    title = ", ".join(f"{SYMBOLS[name][0]} = {value:g}" for name, value in values.items())
    print(f"{title}\n\n{lines}")


def theory_parser() -> Parser:
    parser = Parser()
    for name, (*_, meaning) in SYMBOLS.items():
        parser.add_argument(flag(name), dest=name, action=Once, help=meaning)
    parser.add_argument("--json", action="store_true")
    return parser


def symbols(words: Sequence[str]) -> str:
    """The options of `jaxfl theory`."""
    lines = []
    for name, (letter, _, default, _, meaning) in SYMBOLS.items():
        known = "" if default is None else f" (default: {default:g})"
        lines.append(f"  {flag(name) + ' ' + letter:<24}  {meaning}{known}")
    return "\n".join(lines)
