"""Displays in notebooks: a table, the curve of a metric, an equation; numbers and letters as texts.

Colours are those of the page around, light or dark.  Texts are escaped, and MathJax leaves them alone.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Collection, Iterable, Sequence

from jaxfl.core.equations import EQUATIONS, latex
from jaxfl.core.errors import InputError, printable

__all__ = ["Html", "between", "equation", "greek", "plain", "progress", "sparkline", "table"]

WIDTH, HEIGHT = 120, 20  # of a curve, in pixels
POINTS = 60  # of a curve
WIDE = 10.0  # ratio of the largest to the smallest value from which a curve is logarithmic
PLAIN = 'class="mathjax_ignore tex2jax_ignore"'
MATH = 'class="mathjax_process tex2jax_process"'
LETTERS = {"ε": "eps", "δ": "delta", "ω": "omega", "σ": "sigma", "γ": "shift", "μ": "mu"}


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


def between(least: int, most: int) -> str:
    """``120 to 3,256``, or one number where both are equal."""
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def greek(text: str) -> str:
    """A text for pictures and HTML: ε and δ in place of the words eps and delta, but not in options."""
    words = {LETTERS[letter]: letter for letter in "εδ"}
    return re.sub(r"(?<![\w-])(eps|delta)\b", lambda found: words[found[1]], text)


def plain(text: str) -> str:
    """A text for terminals and files of text: eps in place of ε, and so on."""
    for letter, word in LETTERS.items():
        text = text.replace(letter, word)
    return printable(text)


def table(
    title: str,
    rows: Iterable[Sequence[str]],
    heads: Sequence[str] = (),
    *,
    notes: Iterable[str] = (),
    bold: Collection[int] = (),
    above: str = "",
) -> str:
    """A table; without ``heads`` the first cell of a row is its name.  ``above`` is HTML over it."""
    lines = [_line(heads, "th", "th")] if heads else []
    for i, row in enumerate(rows):
        lines.append(_line(row, "td" if heads else "th", "td", "font-weight:bold" * (i in bold)))
    title = f"<div {PLAIN}><b>{_escaped(title)}</b></div>" if title else ""
    said = "".join(f"<div {PLAIN}><small>{_escaped(note)}</small></div>" for note in notes)
    body = f'<table {PLAIN} style="margin:0.3em 0">{"".join(lines)}</table>'
    return f'<div style="overflow-x:auto">{title}{above}{body}{said}</div>'


def equation(name: str) -> str:
    """The equation of a registered algorithm, for MathJax; nothing for others."""
    found = EQUATIONS.get(name)
    if not found:
        return ""
    try:
        return f"<div {MATH}>$${html.escape(latex(found))}$$</div>"
    except InputError:  # a user's, in other words
        return f"<pre {PLAIN}>{html.escape(found)}</pre>"


def sparkline(values: Iterable[float], label: str = "") -> Html:
    """A curve without axes; values that are not finite are left out."""
    pairs = [(x, float(y)) for x, y in enumerate(values)]
    finite = [(x, y) for x, y in pairs if math.isfinite(y)]
    if len(finite) < 2:
        return Html("")
    step = max(1, len(finite) // POINTS)
    kept = [*finite[:-1:step], finite[-1]]
    least, most = min(y for _, y in kept), max(y for _, y in kept)
    if least > 0 and most > WIDE * least:
        kept = [(x, math.log(y)) for x, y in kept]
        least, most = math.log(least), math.log(most)
    across, up = WIDTH / max(1, pairs[-1][0]), (HEIGHT - 2) / ((most - least) or 1.0)
    points = " ".join(f"{x * across:.1f},{HEIGHT - 1 - (y - least) * up:.1f}" for x, y in kept)
    return Html(
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" style="vertical-align:middle">'
        f"<title>{_escaped(label)}</title>"
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.2"/></svg>'
    )


def progress(done: int, total: int, words: str) -> str:
    """A progress bar followed by words; without a total it has no length."""
    share = f' value="{done}" max="{total}"' if total else ""
    return f'<div {PLAIN}><progress{share} style="width:16em"></progress> {_escaped(words)}</div>'


def _line(cells: Sequence[str], first: str, other: str, style: str = "") -> str:
    tags = [first, *[other] * (len(cells) - 1)]
    style = f"text-align:left;padding:0.1em 0.6em 0.1em 0;{style}"
    whole = (
        style + ";white-space:nowrap" * ("±" in cell) for cell in cells
    )  # a mean and its error
    each = zip(tags, whole, cells, strict=True)
    inner = (f'<{tag} style="{style}">{_escaped(cell)}</{tag}>' for tag, style, cell in each)
    return f"<tr>{''.join(inner)}</tr>"


def _escaped(text: str) -> str:
    return text if isinstance(text, Html) else html.escape(printable(text))
