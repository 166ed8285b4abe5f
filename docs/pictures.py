"""The picture of the README, drawn from a sweep that is recorded beside it.

``python docs/pictures.py`` draws it anew; ``python docs/pictures.py FOLDER`` first records the
sweep in FOLDER, which these words computed:

jaxfl sweep soteriafl_sgd cdp_sgd ldp_sgd --data a9a --clients 10 --partition by_label --eps 1 4 16
    --omega 3 15 61 --batch 128 --lr 0.03 0.1 0.3 1 3 10 30 --rounds 1000 --seeds 3 --out FOLDER
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxfl.engine.results import load, save
from jaxfl.views.plots import figures
from jaxfl.views.selection import select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["KEY", "PICTURE", "RECORD", "digest", "draw", "record"]

PICTURE = Path(__file__).with_name("front.png")
RECORD = PICTURE.with_suffix(".nc")
KEY = "Contents"  # of the digest in the picture's metadata
DPI = 200


def record(folder: Path) -> None:
    """Keep of a sweep the best step sizes, and their first and last rounds."""
    save(select(load(folder / "result.nc")).ds.isel(round=[0, -1]), RECORD)


def draw() -> Figure:
    return figures(load(RECORD), metrics=["loss"])["front-loss"]


def digest(figure: Figure) -> str:
    """Of what the figure says and shows; another version of a font does not change it."""
    texts = [text.get_text() for text in figure.texts]
    texts += [text.get_text() for key in figure.legends for text in key.get_texts()]
    panels = [
        [ax.get_title(), ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale(), ax.get_yscale()]
        + [
            [line.get_color(), line.get_marker(), *np.char.mod("%.5g", line.get_xydata()).ravel()]
            for line in ax.get_lines()
        ]
        for ax in figure.axes
    ]
    return hashlib.sha256(json.dumps([texts, panels]).encode()).hexdigest()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        record(Path(name))
    drawn = draw()
    drawn.savefig(PICTURE, dpi=DPI, metadata={KEY: digest(drawn)})
