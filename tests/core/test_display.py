"""Displays in notebooks: escaped, in the colours of the page, with equations that LaTeX reads."""

import dataclasses
import inspect
import math
import re
from html.parser import HTMLParser
from typing import Any

import jax
import pytest
from matplotlib.mathtext import MathTextParser
from rows import a_problem

import jaxfl
from jaxfl.core.display import greek, plain, sparkline, table
from jaxfl.core.equations import EQUATIONS, equation_of, latex, rows
from jaxfl.views.tables import Column, Table

pytestmark = pytest.mark.once

EVIL = "<script>alert('x')</script> & $$x$$"
READ = {
    "x <- x - eta mean_i g_i": r"x \leftarrow x - \eta \, \mathrm{mean}_{i} \, g_{i}",
    "d <- g + (1 - 1/t)(d - g~)": r"d \leftarrow g + (1 - 1 / t) (d - \tilde{g})",
    "sum_{j ~ i} v_ij,  sigma1^2": "\\begin{aligned}\n& \\sum_{j \\sim i} v_{ij}, \\\\\n& "
    "\\sigma_{1}^{2}\n\\end{aligned}",
    "w_md + a (g_i' - x')": r"w_{\mathrm{md}} + a (g_{i}' - x')",
    "eta_C |v|^2 <= 2^{i p}": r"\eta_{C} \vert v \vert^{2} \leq 2^{i p}",
    "xi ~ N(0, sigma^2 I)": r"\xi \sim \mathcal{N} (0, \sigma^{2} I)",
    "sqrt(2 (a + b))/c": r"\sqrt{2 (a + b)} / c",
    "f_B0(x_0) + G* + c_i+ - 1": r"f_{B_{0}} (x_{0}) + G^{*} + c_{i}^{+} - 1",
    "one j a round, output a point in K": r"\text{one } j \text{ a round}, \text{ output a point in } K",
    "x <- y;  k times:  z <- x,  y <- z\nx <- y": "\\begin{aligned}\n& x \\leftarrow y; \\\\\n& "
    "k \\text{ times} {:} \\\\\n& \\quad z \\leftarrow x, \\\\\n& \\quad y \\leftarrow z \\\\\n& "
    "x \\leftarrow y\n\\end{aligned}",
    "s = noise_std": r"s = \mathtt{noise\_std}",
}


@pytest.mark.parametrize("text", READ)
def test_an_equation_as_latex(text: str) -> None:
    assert latex(text) == READ[text]


@pytest.mark.parametrize("text", ["x <- (2^{i", "f(x) = 'a'?", "sigma-eta = 1 é"])
def test_what_is_no_equation_is_refused(text: str) -> None:
    with pytest.raises(jaxfl.InputError):
        latex(text)


SILENT = [
    "mathrm",
    "mathtt",
    "mathcal",
    "text",
    "tilde",
    "quad",
    "qquad",
    "leftarrow",
    "sim",
    "leq",
]
SILENT += ["geq", "neq", "vert", "dots", "cdot"]
NAMES = {"nabla": "grad", "varepsilon": "eps", **dict.fromkeys(SILENT, "")}


def letters(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", text)


def test_every_equation_of_an_algorithm_is_read_and_nothing_of_it_is_lost() -> None:
    """By another parser of LaTeX; names of commands read back are the letters of the docstring."""
    parser = MathTextParser("path")
    for name, make in jaxfl.ALGORITHMS.items():
        text = equation_of(inspect.getdoc(make) or "")
        assert text == EQUATIONS[name] != ""
        found = rows(text)
        for row in found:
            parser.parse(f"${row}$")
        back = re.sub(r"\\([A-Za-z]+)", lambda m: NAMES.get(m[1], m[1]), " ".join(found))
        assert letters(back) == letters(text), name


class Page(HTMLParser):
    """The tags of a display and its texts, each with whether MathJax reads it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[bool] = []  # whether it leaves its texts alone
        self.texts: list[tuple[str, bool]] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append("mathjax_ignore" in (dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((data, not any(self.open)))

    @property
    def words(self) -> list[str]:
        return [text for text, typeset in self.texts if not typeset]


def displays() -> dict[str, Page]:
    problem = dataclasses.replace(a_problem(), name=EVIL)
    run = jaxfl.simulate("cdp_gd", problem, jax.random.key(0), 4, eps=50.0, lr=0.1)
    found = Table(
        EVIL, (Column("a", EVIL, (EVIL, "b")),), (EVIL,), frozenset({1}), ([1.0, 2.0], [3.0])
    )
    shown: dict[str, Any] = {
        "problem": problem,
        "run": run,
        "report": run.privacy(),
        "table": found,
    }
    shown |= {"algorithm": jaxfl.algorithm("cdp_gd"), "sweep": jaxfl.views.table(run.dataset())}
    return {name: Page(one._repr_html_()) for name, one in shown.items()}


def test_displays_are_escaped_and_have_the_colours_of_the_page() -> None:
    found = displays()
    for name, page in found.items():
        assert "script" not in page.tags, name
        assert all(EVIL not in text for text, typeset in page.texts if typeset), name
    for name in ("problem", "run", "table"):
        assert any(EVIL in words for words in found[name].words), name
    for name in ("algorithm", "run"):
        (equation,) = [text for text, typeset in found[name].texts if typeset]
        assert equation == f"$${latex(EQUATIONS['cdp_gd'])}$$"
    assert "svg" in found["run"].tags
    assert "svg" in found["sweep"].tags
    assert found["table"].tags.count("svg") == 1  # one point is no curve
    assert 'white-space:nowrap">1 ± 0.1<' in table("t", [("a", "1 ± 0.1")])
    html = table("t", [("a", sparkline([1, 2]))])
    assert "currentColor" in html
    assert not re.search(r"(?<!current)color:|#[0-9a-f]{3}", html)


def test_a_curve_has_the_finite_values_in_their_order() -> None:
    """Down where values fall, logarithmic where they span more, and nothing of a single value."""

    def heights(values: list[float]) -> list[float]:
        (points,) = re.findall('points="([^"]*)"', sparkline(values))
        return [float(point.split(",")[1]) for point in points.split()]

    falling = heights([4.0, 3.0, math.nan, 1.0])
    assert len(falling) == 3
    assert falling == sorted(falling)
    assert heights([100.0, 10.0, 1.0])[1] == pytest.approx(10.0)
    assert heights([3.0, 2.0, 1.0])[1] == pytest.approx(10.0)
    assert sparkline([1.0, math.inf]) == ""
    assert len(heights([*range(1000)])) < 70


def test_a_table_as_text_is_text_in_a_notebook_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """There rich would display it, and leave the text empty."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert Table("t", (Column("a", "a", ("b",)),)).text() == "t\na\nb\n"


def test_letters_are_greek_in_html_and_words_in_text() -> None:
    """Options and names of variables are code."""
    said = "eps = 2 at delta 0.1 by --eps 2, eps_spent and proven_eps"
    assert greek(said) == "ε = 2 at δ 0.1 by --eps 2, eps_spent and proven_eps"
    assert plain("ε, δ, ω: proven ε") == "eps, delta, omega: proven eps"
    shown = Table("ε = 1", (Column("eps", "ε", ("proven eps",)),), ("no eps, ε = 2",))
    assert shown.text() == "eps = 1\neps\nproven eps\nno eps, eps = 2\n"
    html = shown._repr_html_()
    assert ("eps" in html, html.count("ε")) == (False, 5)
