"""Programs: the part of a graph that some outputs need, put in order, grouped, and given places to live.

Nodes with the same operation whose arguments are ready together form one step, which an arithmetic performs as one
call. Inputs come in stages: (x, y) first, then v, then directions; a node belongs to the first stage at which its
inputs are known, so that a later stage never recomputes an earlier one. Place 0 holds the number one, so that a
linear combination with a constant is linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from flint import fmpq

from bilevel_sym.graph.nodes import Graph, LinearForm, Parameter, gathered

__all__ = ["Output", "Program", "Row", "Step", "build"]


@dataclass(frozen=True, slots=True)
class Row:
    """One linear combination: the places that it reads, and the coefficient of each. It runs over its terms.

    >>> row = Row.of([(1, fmpq(2)), (4, fmpq(1, 2))])
    >>> row.places, len(row), list(row)
    ((1, 4), 2, [(1, 2), (4, 1/2)])
    """

    places: tuple[int, ...]
    coefficients: tuple[fmpq, ...]

    @classmethod
    def of(cls, terms: Iterable[tuple[int, fmpq]]) -> Row:
        """The row of these terms."""
        places, coefficients = zip(*terms, strict=True)
        return cls(places, coefficients)

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[tuple[int, fmpq]]:
        return zip(self.places, self.coefficients, strict=True)


@dataclass(frozen=True)
class Step:
    """One operation on many nodes: places first, first + 1, ... receive ``op`` of the places in ``sources``.

    ``sources[k]`` lists the k-th argument of each node. A "lin" step has ``rows`` in place of sources.
    """

    op: str
    first: int
    size: int
    parameter: Parameter = ()
    sources: tuple[tuple[int, ...], ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def places(self) -> range:
        """Where the results go."""
        return range(self.first, self.first + self.size)


@dataclass(frozen=True)
class Output:
    """An array of results: its shape, and the place of each entry (symmetric entries share one)."""

    shape: tuple[int, ...]
    places: tuple[int, ...]
    stage: int


@dataclass(frozen=True)
class Program:
    """``constants`` run once an arithmetic, ``stages[k]`` once the inputs up to ``inputs[k]`` are known.

    Places: 0 is one, then the inputs of all stages in order, then what the steps compute.
    """

    inputs: tuple[range, ...]
    size: int
    constants: tuple[Step, ...]
    stages: tuple[tuple[Step, ...], ...]
    outputs: Mapping[str, Output]

    def steps(self) -> Iterator[Step]:
        """All steps in the order of execution."""
        yield from self.constants
        for stage in self.stages:
            yield from stage


def build(
    graph: Graph,
    inputs: Sequence[Sequence[int]],
    outputs: Mapping[str, tuple[tuple[int, ...], Sequence[LinearForm]]],
) -> Program:
    """The program that computes ``outputs`` (name: shape and entries) from ``inputs``, the variables of each stage.

    >>> graph = Graph(2)
    >>> a, b = graph.variables
    >>> program = build(graph, [[0], [1]], {"p": ((), [graph.mul(graph.apply("exp", a), b)])})
    >>> [[step.op for step in stage] for stage in program.stages], program.outputs["p"].stage
    ([['exp'], ['mul']], 1)
    """
    distinct = {id(form): form for _, forms in outputs.values() for form in forms}  # symmetric entries are one form
    atoms = {key: graph.node_of(form) for key, form in distinct.items()}
    entries = {name: [atoms[id(form)] for form in forms] for name, (_, forms) in outputs.items()}
    nodes = graph.reachable({node for group in entries.values() for node in group})
    stage_of = _stages(graph, nodes, inputs)
    place = {variable: 1 + k for k, variable in enumerate(v for group in inputs for v in group)}
    size = 1 + len(place)
    groups: list[list[Step]] = []
    for stage in range(-1, len(inputs)):
        steps, size = _schedule(graph, [k for k in nodes if stage_of[k] == stage], place, size)
        groups.append(steps)
    bounds = np.cumsum([1, *(len(group) for group in inputs)]).tolist()
    return Program(
        inputs=tuple(range(low, high) for low, high in pairwise(bounds)),
        size=size,
        constants=tuple(groups[0]),
        stages=tuple(tuple(group) for group in groups[1:]),
        outputs={
            name: Output(shape, tuple(place[k] for k in entries[name]), max([0, *(stage_of[k] for k in entries[name])]))
            for name, (shape, _) in outputs.items()
        },
    )


def _stages(graph: Graph, nodes: Sequence[int], inputs: Sequence[Sequence[int]]) -> dict[int, int]:
    """The stage of each node: -1 for constants."""
    masks = [sum(1 << v for v in group) for group in inputs]
    supports = set(map(graph.support.__getitem__, nodes))  # few: most nodes of a dense problem depend on everything
    known = {bits: max((k for k, mask in enumerate(masks) if bits & mask), default=-1) for bits in supports}
    return {node: known[graph.support[node]] for node in nodes}


def _schedule(graph: Graph, nodes: Sequence[int], place: dict[int, int], size: int) -> tuple[list[Step], int]:
    """Steps for the nodes of one stage, level by level; ``place`` learns where each result goes."""
    level = [0] * len(graph)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for node in nodes:
        if graph.op[node] != "var":
            level[node] = 1 + max(gathered(level, graph.args[node]), default=0)
            groups.setdefault((level[node], graph.op[node], graph.parameter[node]), []).append(node)
    steps = []
    for (_, op, parameter), members in sorted(groups.items(), key=lambda item: item[0][0]):
        reads = {node: gathered(place, graph.args[node]) for node in members}
        # neighbours in, neighbours out: results that are read together later lie together
        members.sort(key=reads.__getitem__)
        steps.append(_step(graph, op, parameter, members, reads, size))
        place.update(zip(members, range(size, size + len(members)), strict=True))
        size += len(members)
    return steps, size


def _step(
    graph: Graph,
    op: str,
    parameter: Parameter,
    members: Sequence[int],
    reads: Mapping[int, tuple[int, ...]],
    first: int,
) -> Step:
    if op == "lin":
        return Step(op, first, len(members), rows=tuple(_row(*graph.linear[node], reads[node]) for node in members))
    columns = zip(*map(reads.__getitem__, members), strict=True)
    return Step(op, first, len(members), parameter, tuple(columns))


def _row(constant: fmpq, coefficients: tuple[fmpq, ...], places: tuple[int, ...]) -> Row:
    return Row((0, *places), (constant, *coefficients)) if constant or not places else Row(places, coefficients)
