"""Equations of docstrings as LaTeX.

Docstrings write equations in plain characters, which read well in a terminal::

    x <- x - eta mean_i (clip grad f_i(x) + xi_i),  xi_i ~ N(0, sigma^2 I)

:func:`latex` translates them.  A letter is a variable, ``_`` and ``^`` begin a subscript and an exponent,
``g~`` and ``g'`` carry marks, and bars are a norm.  Names of Greek letters and of functions stand for
these, and other words are text.  A row ends behind a comma, a semicolon or a colon with two spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from jaxfl.core.errors import InputError, require

__all__ = ["EQUATIONS", "equation_of", "latex", "rows"]

EQUATIONS: dict[str, str] = {}  # of registered algorithms, by name, as their docstrings have them

GREEK = (
    *(
        "alpha",
        "beta",
        "gamma",
        "delta",
        "zeta",
        "eta",
        "theta",
        "kappa",
        "lambda",
        "mu",
        "xi",
        "pi",
    ),
    *("rho", "sigma", "tau", "phi", "omega", "Pi", "Phi", "Delta", "Sigma", "Lambda"),
)
WORDS = ("mean", "clip", "round", "floor", "ceil", "sign", "mod", "diag", "argmax", "prox")
LETTERS = {**{name: rf"\{name}" for name in GREEK}, "eps": r"\varepsilon", "lam": r"\lambda"}
OPERATORS = {
    **{name: rf"\{name}" for name in ("exp", "min", "max", "log", "ln", "sqrt")},
    **{name: rf"\mathrm{{{name}}}" for name in WORDS},
}
SYMBOLS = {**LETTERS, **OPERATORS, "sum": r"\sum", "grad": r"\nabla", "in": r"\in"}
SIGNS = {
    **{"<-": r"\leftarrow", "~": r"\sim", "<=": r"\leq", ">=": r"\geq", "!=": r"\neq"},
    **{
        "||": r"\parallel",
        "|": r"\vert",
        "...": r"\dots",
        "..": r",\dots,",
        "*": r"\cdot",
        "{": r"\{",
        "}": r"\}",
    },
}
INDEX = re.compile(r"[ijklmnrst]{1,3}[A-Z]?|[A-Za-z]")  # letters of a script that are variables
WORD = r"[A-Za-z]{2,}"
TOKEN = re.compile(
    rf"(?P<words>{WORD}(?:[-.]{WORD}|'s)+)|(?P<code>(?!(?:{'|'.join(SYMBOLS)})_){WORD}(?:_{WORD})+)"
    r"|(?P<name>[A-Za-z]+)(?P<digits>\d*)(?P<tilde>~?)"
    r"|(?P<script>[_^])(?=[({\w-])|(?P<mark>'+|(?<=[\w)])[+*](?=[\s)/]))|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<sign><-|<=|>=|!=|\|\||\.\.\.|\.\.|[-+*/=<>~(){}\[\],;:.|])"
)
BLOCK = re.compile(r"::\n\n((?:[ ]+.*\n?|\n)+)")
ENDS = re.compile(r"(?<=[,;:]) {2,}")
GAP = re.compile(r"(?<![=~<]) {2,}(?![=~<]|mod )")  # before a remark


def equation_of(doc: str) -> str:
    """The first literal block of a docstring without its indentation, or nothing."""
    found = BLOCK.search(doc + "\n")
    lines = found[1].rstrip().split("\n") if found else []
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:].rstrip() for line in lines)


def latex(equation: str) -> str:
    """An equation in LaTeX, one row below the other; raises where it cannot be read.

    >>> print(latex("x <- x - eta mean_i g_i"))
    x \\leftarrow x - \\eta \\operatorname{mean}_{i} g_{i}
    """
    found = rows(equation)
    if len(found) == 1:
        return found[0]
    return "\\begin{aligned}\n& " + " \\\\\n& ".join(found) + "\n\\end{aligned}"


def rows(equation: str) -> list[str]:
    """The rows of an equation, each in LaTeX.

    >>> rows("q = t d,  output x_T")
    ['q = t d,', '\\\\text{output } x_{T}']
    """
    out = []
    for line in filter(str.strip, equation.split("\n")):
        steps = ENDS.split(line.strip())
        for i, row in enumerate(steps):
            deeper = line[0] == " " or any(step.endswith(":") for step in steps[:i])  # in a loop
            parts = (_translated(_tokens(part)) for part in GAP.split(row))
            out.append(r"\quad " * deeper + r" \qquad ".join(parts))
    return out


def _tokens(text: str) -> list[re.Match[str]]:
    text, found, at = text.strip(), [], 0
    while at < len(text):
        token = TOKEN.match(text, at)
        if token is None:
            raise InputError(f"No rule reads {text[at:]!r} of the equation {text!r}")
        found.append(token)
        at = token.end() + len(text[token.end() :]) - len(text[token.end() :].lstrip())
    return found


def _translated(tokens: Sequence[re.Match[str]]) -> str:
    out: list[str] = []
    text: list[str] = []  # words that wait to be written together
    at = 0
    while at < len(tokens) or text:
        token = tokens[at] if at < len(tokens) else None
        if token and _is_text(tokens, at):
            text.append(token[0])
            at += 1
            continue
        if text:
            tight = token is None or token[0] in (",", ";", ":", ".", ")")
            first = not out or out[-1] in ("(", "[")
            out.append(rf"\text{{{' ' * (not first)}{' '.join(text)}{' ' * (not tight)}}}")
            text = []
            continue
        assert token is not None
        if token["script"]:
            script, at = _script(tokens, at)
            out[-1] += script
            continue
        if token["mark"]:
            out[-1] += token[0] if token[0][0] == "'" else f"^{{{token[0]}}}"
        elif token[0] == "sqrt" and at + 1 < len(tokens) and tokens[at + 1][0] == "(":
            inner, at = _group(tokens, at + 1)
            out.append(rf"\sqrt{{{inner}}}")
            continue
        elif token["code"]:
            out.append(r"\mathtt{" + token[0].replace("_", r"\_") + "}")
        elif token["name"]:
            out.append(_name(tokens, at))
        elif token[0] == ":" and token.string[token.start() - 1 : token.start()] != " ":
            out.append("{:}")
        else:
            out.append(SIGNS.get(token[0], token[0]))
        at += 1
    return re.sub(r" ([,;)\]])|([(\[]) ", r"\1\2", " ".join(_apart(out)))


def _apart(pieces: Sequence[str]) -> Iterator[str]:
    """Insert a space between a word and adjacent letters, which LaTeX leaves out."""
    last = ""
    for piece in pieces:
        letters = all(
            p and p[0] not in "()[],;:./=+-<>" and p not in SIGNS.values() for p in (last, piece)
        )
        worded = any(p.startswith((r"\mathrm", r"\mathtt")) for p in (last, piece))
        if letters and worded and not any(p.startswith(r"\text") for p in (last, piece)):
            yield r"\,"
        yield piece
        last = piece


def _is_text(tokens: Sequence[re.Match[str]], at: int) -> bool:
    """Whether a token is a word of a sentence; names that a function or a script follows are none."""
    token = tokens[at]
    if token["words"]:
        odd = [word for word in re.split(r"[-.]", token[0]) if word in SYMBOLS]
        require(not odd, lambda: f"{token[0]!r} is no word: put spaces around the sign")
        return True
    if not token["name"]:
        return False
    after = tokens[at + 1] if at + 1 < len(tokens) else None
    close = after is not None and after.start() == token.end()
    worded = after is not None and _is_text(tokens, at + 1)
    if token[0] == "a":
        return worded
    if token[0] == "in":
        before = tokens[at - 1] if at else None
        if worded or before is None:
            return True
        return len(before["name"] or "") > 1 and before["name"] not in SYMBOLS
    if token[0] in OPERATORS:
        return worded or after is None or bool(after["sign"] and after[0] not in "([-{")
    return (
        len(token["name"]) > 1
        and token["name"] not in SYMBOLS
        and not (close and after is not None and (after["script"] or after[0] == "("))
    )


def _name(tokens: Sequence[re.Match[str]], at: int) -> str:
    token = tokens[at]
    after = [other[0] for other in tokens[at + 1 : at + 3]]
    symbol = SYMBOLS.get(token["name"])
    if symbol is None and len(token["name"]) > 1:
        symbol = rf"\mathrm{{{token['name']}}}"
    elif token[0] == "N" and after == ["(", "0"]:
        symbol = r"\mathcal{N}"
    symbol = symbol or token["name"]
    symbol = rf"\tilde{{{symbol}}}" if token["tilde"] else symbol
    return symbol + (f"_{{{token['digits']}}}" if token["digits"] else "")


def _script(tokens: Sequence[re.Match[str]], at: int) -> tuple[str, int]:
    """A subscript or an exponent, and the place behind it."""
    sign, first = tokens[at]["script"], tokens[at + 1]
    if first[0] in "({":
        inner, end = _group(tokens, at + 1)
        return f"{sign}{{{inner}}}", end
    if first[0] == "-":
        return f"{sign}{{-{_translated(tokens[at + 2 : at + 3])}}}", at + 3
    name, digits = first["name"], first["digits"]
    if not name:
        return f"{sign}{{{first[0]}}}", at + 2
    plain = name if INDEX.fullmatch(name) else rf"\mathrm{{{name}}}"
    return f"{sign}{{{LETTERS.get(name, plain)}" + f"_{{{digits}}}" * bool(digits) + "}", at + 2


def _group(tokens: Sequence[re.Match[str]], at: int) -> tuple[str, int]:
    """The translated content of the bracket that opens here, and the position after its end."""
    ends = {"(": ")", "{": "}"}
    begin, depth, end = tokens[at][0], 1, at + 1
    while depth:
        require(
            end < len(tokens), lambda: f"A bracket of the equation {tokens[0].string!r} is open"
        )
        depth += (tokens[end][0] == begin) - (tokens[end][0] == ends[begin])
        end += 1
    return _translated(tokens[at + 1 : end - 1]), end
