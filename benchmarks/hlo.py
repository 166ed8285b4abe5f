"""What a round launches, moves and waits for, from the optimized HLO text of a compiled program.

Standard library only.  A kernel is an instruction that computes or copies.  A *wait* is a turn of a
loop whose length is known at run time only, or a branch: a GPU asks its host there.  Of a branch the
cheaper side counts, since rare work is on the other one, which ``most`` counts instead.  A *draw* is 32
random bits, one evaluation of Threefry 2x32 [Salmon et al., SC 2011]; a kernel that draws anew counts anew.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Cost", "Program"]

SIZES = {"pred": 1, "token": 0, "bf16": 2, "c64": 8, "c128": 16}  # others end in their bits
ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\](\{[^}]*\})?")
HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
CALLED = re.compile(r"\b(?:calls|to_apply|\w+_computations?)=(?:\{([^}]*)\}|(%[\w.\-]+))")
NAME = re.compile(r"%([\w.\-]+)")
FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"),
    *("opt-barrier", "add-dependency", "partition-id", "replica-id", "domain"),
}
BUFFERS = ("AllocateBuffer", "AssumeGatherIndicesInBound", "Sharding")  # calls that launch nothing
LAUNCHED = ("fusion", "custom-call", "copy")  # even for a scalar
VIEWS = ("bitcast", "reshape", "copy")
SLICES = ("dynamic-slice", "gather", "slice")
ROTATIONS = 20  # of Threefry 2x32, in as many rounds: each shifts to the left once
SECTOR = 32  # bytes that a device reads or writes for one number
RUN = {  # the adjacent numbers of what a gather reads, and the dimension of those that a scatter writes
    "gather": re.compile(r"slice_sizes={[\d,]*?(\d+)}"),
    "scatter": re.compile(r"update_window_dims={[\d,]*?(\d+)}"),
}


class Instruction(NamedTuple):
    name: str
    type: str
    opcode: str
    operands: list[str]
    rest: str  # attributes
    root: bool

    def attribute(self, name: str) -> str:
        """A quoted or named attribute, or an empty string."""
        found = re.search(rf'\b{name}="?%?([^",}} ]+)', self.rest)
        return found[1] if found else ""


class Cost(NamedTuple):
    """Of one run of a computation: ``kernels`` and ``moved`` bytes by the operation that they come from."""

    kernels: Counter[str]
    moved: Counter[str]
    draws: float
    waits: float
    most: float  # kernels where every branch takes its dearer side
    loops: list[tuple[str, int | None]]  # where, and the trips known to the compiler

    @property
    def bytes(self) -> float:
        return float(sum(self.moved.values()))

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, n: float) -> Cost:
        kernels, moved = (
            Counter({name: n * k for name, k in each.items()})
            for each in (self.kernels, self.moved)
        )
        return Cost(kernels, moved, n * self.draws, n * self.waits, n * self.most, self.loops)


NOTHING = Cost(Counter(), Counter(), 0.0, 0.0, 0.0, [])


class Program:
    """An optimized module.

    ``trips`` stands for the length of a loop that is known at run time only.  With ``scalars``,
    arithmetic on single numbers launches kernels; a TPU has a unit for it.
    """

    def __init__(self, text: str, trips: int = 1, scalars: bool = True) -> None:
        self.computations: dict[str, list[Instruction]] = {}
        self.trips, self.scalars = trips, scalars
        inside: list[Instruction] = []
        for line in text.splitlines():
            if head := HEAD.match(line):
                inside = self.computations.setdefault(head[2], [])
                if head[1]:
                    self.entry = head[2]
            elif found := LINE.match(line):
                inside.append(_instruction(found[2], found[3], bool(found[1])))
        self.types = {
            name: {each.name: each.type for each in inside}
            for name, inside in self.computations.items()
        }

    def round(self) -> Cost:
        """One turn of the outermost loop of unknown length that launches most: that over rounds."""
        return max(map(self._turn, self._outermost(self.entry)), key=lambda cost: cost.most)

    def _turn(self, loop: Instruction) -> Cost:
        turn = self.cost(loop.attribute("body")) + self.cost(loop.attribute("condition"))
        return turn._replace(waits=turn.waits + 1)

    def _outermost(self, computation: str) -> Iterator[Instruction]:
        for each in self.computations[computation]:
            if each.opcode == "while" and self._known(each) is None:
                yield each
            elif each.opcode in ("call", "conditional"):
                for inner in _called(each):
                    yield from self._outermost(inner)

    def _known(self, loop: Instruction) -> int | None:
        """The trips that the compiler states, or compares with; a TPU's counts up from 0."""
        if found := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.rest):
            return int(found[1])
        inside = self.computations[loop.attribute("condition")]
        numbers = {each.name: each.operands[0] for each in inside if each.opcode == "constant"}
        (root,) = (each for each in inside if each.root)
        bounds = [numbers[name] for name in root.operands if name in numbers]
        counted = root.opcode == "compare" and root.attribute("direction") == "LT"
        return int(bounds[0]) if counted and bounds else None

    def cost(self, computation: str) -> Cost:
        """What one run of a computation takes."""
        total = NOTHING
        for each in self.computations[computation]:
            total += self._cost(computation, each)
        return total

    def _cost(self, computation: str, each: Instruction) -> Cost:
        where = each.attribute("op_name") or each.name
        if each.opcode == "while":
            known = self._known(each)
            loop = NOTHING._replace(loops=[(where, known)])
            body = self.cost(each.attribute("body"))
            if known is not None:
                return loop + body.times(known)
            head = self.cost(each.attribute("condition"))._replace(waits=1)
            return loop + body.times(self.trips) + head.times(self.trips + 1)
        if each.opcode == "conditional":
            sides = [self.cost(name) for name in _called(each)]
            cheap = min(sides, key=lambda side: (side.most, side.bytes))
            most = max(side.most for side in sides)
            return cheap._replace(waits=cheap.waits + 1, most=most)
        if each.opcode in ("call", "async-start"):
            return self.cost(_called(each)[0])
        nothing = each.opcode == "custom-call" and each.attribute("custom_call_target") in BUFFERS
        alone = not self.scalars and "[]" in each.type and not each.opcode.startswith(LAUNCHED)
        if nothing or alone or each.opcode in FREE or each.opcode.endswith("-done"):
            return NOTHING
        moved = Counter({where: self._moved(computation, each)})
        return Cost(Counter([where]), moved, self._draws(each), 0.0, 1.0, [])

    def _draws(self, each: Instruction) -> float:
        """Evaluations of Threefry in a kernel, by their shifts of 32-bit words to the left."""
        if each.opcode == "fusion":
            inside = self.computations[_called(each)[0]]
            return sum(self._draws(inner) for inner in inside)
        if each.opcode != "shift-left" or not each.type.startswith("u32"):
            return 0.0
        return size(each.type, chip=True) / 4 / ROTATIONS

    # --- bytes ---

    def _moved(self, computation: str, each: Instruction) -> float:
        """Bytes that a kernel reads and writes: of an array that it slices or updates, that part."""
        types = self.types[computation]
        operands = [types.get(name, "") for name in each.operands]
        if each.opcode == "fusion":
            (inner,) = _called(each)[:1]
            parameters = {
                int(p.operands[0]): p.name
                for p in self.computations[inner]
                if p.opcode == "parameter"
            }
            reads = [self._read(inner, parameters[i], size(t)) for i, t in enumerate(operands)]
            (root,) = (p for p in self.computations[inner] if p.root)
            return sum(reads) + min(self._written(inner, root), size(each.type))
        if each.opcode in SLICES:
            return size(each.type) + min(self._scattered(each.type, each), size(operands[0]))
        if each.opcode == "dynamic-update-slice":
            return 2.0 * size(operands[1])
        return size(each.type) + sum(map(size, operands))

    def _read(self, computation: str, name: str, full: float) -> float:
        part = 0.0
        for each in self.computations[computation]:
            for place, operand in enumerate(each.operands if each.opcode != "parameter" else ()):
                if operand != name:
                    continue
                if each.opcode in SLICES and place == 0:
                    part += self._scattered(each.type, each)
                elif each.opcode in VIEWS:
                    part += self._read(computation, each.name, full)
                elif each.opcode not in ("dynamic-update-slice", "scatter") or place:
                    return full
        return min(part, full)

    def _written(self, computation: str, root: Instruction) -> float:
        inside = {each.name: each for each in self.computations[computation]}
        while root.opcode in VIEWS:
            root = inside[root.operands[0]]
        types = self.types[computation]
        if root.opcode == "tuple":
            return sum(self._written(computation, inside[name]) for name in root.operands)
        if root.opcode == "dynamic-update-slice":
            return size(types[root.operands[1]])
        if root.opcode == "scatter":
            return 2.0 * self._scattered(types[root.operands[-1]], root)  # it adds to what is there
        return size(root.type)

    def _scattered(self, type: str, each: Instruction) -> float:
        """Bytes of an array that a gather or a scatter touches: whole sectors of it."""
        found = RUN[each.opcode].search(each.rest) if each.opcode in RUN else None
        if not found:
            return size(type)
        numbers = ARRAY.search(type)
        shape = [int(n) for n in re.findall(r"\d+", numbers[2])] if numbers else []
        run = int(found[1]) if each.opcode == "gather" else shape[int(found[1])]
        count = math.prod(shape)
        one = (
            size(type) / count
        )  # bytes of a number; none are read from what a TPU keeps on the chip
        return count / run * math.ceil(run * one / SECTOR) * SECTOR


def size(type: str, chip: bool = False) -> float:
    """Bytes of the arrays of a type, less those that a TPU keeps on the chip, or with them."""
    total = 0
    for kind, dims, layout in ARRAY.findall(type):
        if chip or "S(" not in layout:
            digits = re.search(r"\d+", kind)
            each = SIZES.get(kind, max(1, int(digits[0]) // 8) if digits else 0)
            total += each * math.prod(int(n) for n in re.findall(r"\d+", dims))
    return float(total)


def _instruction(name: str, text: str, root: bool) -> Instruction:
    text = re.sub(r"/\*.*?\*/", "", text)
    after = _closing(text, 0) if text.startswith("(") else text.index(" ")
    type, text = text[:after], text[after:].lstrip()
    opening = text.index("(")
    closing = _closing(text, opening)
    inner, opcode = text[opening + 1 : closing - 1], text[:opening]
    operands = [inner] if opcode in ("parameter", "constant") else NAME.findall(inner)
    return Instruction(name, type, opcode, operands, text[closing:], root)


def _closing(text: str, opening: int) -> int:
    """The place behind the bracket that closes the one here."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0:
            return place + 1
    raise ValueError(f"an open bracket in {text[:80]!r}")


def _called(each: Instruction) -> list[str]:
    return [name for pair in CALLED.findall(each.rest) for name in NAME.findall("".join(pair))]
