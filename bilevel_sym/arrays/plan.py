"""From tensors to steps: which products are formed, in which order, each once.

A plan is a list of steps that grows as tensors are asked for. A step has the values of earlier ones as arguments; equal
steps are one. The factors of a term are first joined where they have the same indices, then contracted pair by pair in
the order that costs least (``order``); terms that end in a contraction with the same array are summed before it. A step
on data alone belongs to stage -1: it is performed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from bilevel_sym.arrays.order import PRODUCT, THIN, Labels, Product, Tree, places_in
from bilevel_sym.arrays.tensor import GROUP, Apply, Delta, Factor, Head, Leaf, LogSumExp, Tensor, Term

__all__ = ["CALL", "DATA", "ExactPlan", "Part", "Plan", "Step"]

DATA = -1  # the stage of what does not depend on a point
CALL = 1000.0  # entries that could be read and written in the time that NumPy takes for a call
SUMMED = -1  # the label that the summands of a shared contraction have in common
Operand = tuple[int, Labels]  # a step, and a label for each of its axes
Weight = tuple[int, int]  # a step whose value is a vector, and its label
Deltas = tuple[tuple[int, int], ...]
Number = float | Fraction


@dataclass(frozen=True)
class Step:
    """One operation on the values of earlier steps.

    - ``kind``: "leaf", "apply", "logsumexp", "multiply", "contract", "gram", "sum", "diagonal", "transpose",
      "combine" or "fill".
    - ``args``: the steps whose values it takes.
    - ``parameter``: what else it takes; it depends on the kind.
    - ``shape``: of its value at one point.
    - ``stage``: the last stage of inputs that it depends on; ``DATA`` for none.
    - ``sparse``: whether its value is a sparse matrix.
    """

    kind: str
    args: tuple[int, ...]
    parameter: tuple[Hashable, ...]
    shape: tuple[int, ...]
    stage: int
    sparse: bool = False

    @property
    def entries(self) -> int:
        """The number of entries of its value."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Part:
    """A summand of a block: the value of a step where some pairs of indices are equal, and zero elsewhere.

    - ``deltas``: pairs of free indices, the second of which the value does not have.
    - ``step``: the value, over the other free indices in their order.
    """

    deltas: Deltas
    step: int


@dataclass(frozen=True)
class Ordered:
    """A product: its coefficient, its factors with their labels, and the order in which they are contracted."""

    coefficient: Number
    operands: tuple[Operand, ...]
    shape: Product
    tree: Tree


class Plan:
    """Steps for tensors over arrays of known sizes.

    - ``sizes``: the number that each dimension stands for.
    - ``stage_of``: the stage of inputs to which a leaf belongs.
    - ``nonzeros``: how many entries a sparse array has, by its name.

    >>> A, y = Leaf("A", ("m", "n"), "data"), Leaf("y", ("n",), "y")
    >>> from bilevel_sym.arrays.algebra import contract
    >>> plan = Plan({"m": 3, "n": 2}, lambda leaf: DATA if leaf.role == "data" else 0, {})
    >>> plan.steps[plan.value(contract([(Tensor.leaf(A), "ij"), (Tensor.leaf(y), "j")], "i"))].kind
    'contract'
    """

    def __init__(self, sizes: Mapping[str, int], stage_of: Callable[[Leaf], int], nonzeros: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.steps: list[Step] = []
        self.leaves: dict[str, int] = {}
        self._stage_of, self._nonzeros = stage_of, nonzeros
        self._known: dict[tuple[object, ...], int] = {}
        self._values: dict[str, int] = {}

    def work(self, k: int) -> float:
        """What a step costs at one point, in entries that are read and written; a call costs as much as many."""
        step = self.steps[k]
        if step.kind == "gram":
            return CALL + PRODUCT * step.entries * self.steps[step.args[0]].entries / step.shape[0] / 2
        if step.kind != "contract":
            return 0.0 if step.kind in ("leaf", "transpose") else CALL + step.entries
        one, two, _ = cast("tuple[Labels, Labels, Labels]", step.parameter)
        dims = self._dims_of(list(zip(step.args, (one, two), strict=True)))
        thin = not (set(one) - set(two)) or not (set(two) - set(one))
        return CALL + math.prod(dims.values()) * (THIN if thin else PRODUCT)

    # ---- tensors --------------------------------------------------------------------------------------------------

    def value(self, tensor: Tensor) -> int:
        """The step whose value is the tensor, dense."""
        if tensor.key not in self._values:
            self._values[tensor.key] = self._whole(tensor)
        return self._values[tensor.key]

    def parts(self, tensor: Tensor) -> tuple[Part, ...]:
        """The tensor as a sum over patterns of equal indices; nothing larger than it needs to be is formed."""
        groups: dict[Deltas, list[tuple[Term, Number]]] = {}
        for term in tensor.terms:
            groups.setdefault(_deltas(term), []).append((term, self._coefficient(term)))
        return tuple(Part(deltas, self._group(tensor, deltas, terms)) for deltas, terms in sorted(groups.items()))

    def _whole(self, tensor: Tensor) -> int:
        parts = self.parts(tensor)
        if len(parts) == 1 and not parts[0].deltas:
            return parts[0].step
        rows = tuple((1.0, _kept(tensor.rank, part.deltas), part.deltas) for part in parts)
        return self._add("combine", [part.step for part in parts], (rows, 0.0), self._shape(tensor.dims))

    def _group(self, tensor: Tensor, deltas: Deltas, terms: Sequence[tuple[Term, Number]]) -> int:
        """The sum of terms with the same deltas, over the indices that the deltas leave."""
        kept = _kept(tensor.rank, deltas)
        shape = self._shape(tensor.dims[i] for i in kept)
        constant = self._number(sum(coefficient for term, coefficient in terms if not _heads(term)))
        products = [self._ordered_product(term, tensor.rank, c) for term, c in terms if _heads(term)]
        found = self._collected(products, tensor.rank)
        if not found:
            return self._add("fill", (), (constant,), shape)
        rows = tuple((number, tuple(kept.index(i) for i in labels), ()) for number, (_, labels) in found)
        steps = [step for _, (step, _) in found]
        if len(steps) == 1 and not constant and rows[0] == (1.0, tuple(range(len(kept))), ()):
            return steps[0]
        return self._add("combine", steps, (rows, constant), shape)

    @staticmethod
    def _number(value: Number) -> Number:
        """A coefficient as steps have it."""
        return float(value)

    def _counts_once(self, step: int) -> bool:
        """Whether what is made of a step and others like it is made once, and costs little."""
        return self.steps[step].stage == DATA

    def _coefficient(self, term: Term) -> Number:
        sizes = math.prod((Fraction(self.sizes[dim]) ** power for dim, power in term.sizes), start=Fraction(1))
        return self._number(term.coefficient * sizes)

    # ---- sums of products -------------------------------------------------------------------------------------------

    def _collected(self, products: Sequence[Ordered], rank: int) -> list[tuple[Number, Operand]]:
        """Products as summands; those whose last contraction is with the same array go through it together."""
        groups: dict[object, list[Ordered]] = {}
        for k, product in enumerate(products):
            groups.setdefault(self._last_factor(product) or k, []).append(product)
        found: list[tuple[Number, Operand]] = []
        for members in groups.values():
            if len(members) > 1:
                found.append(self._together(members, rank))
            else:
                found += [self._alone(product, rank) for product in members]
        return found

    def _alone(self, product: Ordered, rank: int) -> tuple[Number, Operand]:
        operands, coefficient = product.operands, product.coefficient
        free = {label for _, labels in operands for label in labels if label < rank}
        different = len({step for step, _ in operands}) > 1  # of a matrix and itself half suffices, if it is left alone
        if coefficient != 1.0 and len(free) > 1 and different:
            operands, coefficient = self._with_coefficient(operands, coefficient), 1.0
        performed = self._subtree(product.tree, operands, product.shape)
        return coefficient, self._summed(performed, free)

    def _last_factor(self, product: Ordered) -> object:
        """What tells products apart that cannot share their last contraction: its single factor, and what is summed.

        None where the last contraction is of two composed arrays, or of a matrix with itself.
        """
        if isinstance(product.tree, int):
            return None
        single = next((k for k in product.tree if isinstance(k, int)), None)
        if single is None:
            return None
        step, labels = product.operands[single]
        rest = places_in(product.tree) - {single}
        shared = set(labels) & product.shape.left(rest) - product.shape.left(rest | {single})
        inside = product.shape.left(rest)
        if len(shared) != 1 or any(
            product.operands[k][0] == step and inside.issuperset(product.operands[k][1]) for k in rest
        ):
            return None
        return step, tuple(SUMMED if label in shared else label for label in labels)

    def _together(self, members: Sequence[Ordered], rank: int) -> tuple[Number, Operand]:
        """A sum of products with one factor in common: the others are summed first.

        A coefficient that all have, but for signs, waits for the result where that is smaller.
        """
        rests: list[tuple[Number, Operand]] = []
        for product in members:
            assert not isinstance(product.tree, int)
            one, two = product.tree
            single, other = (one, two) if isinstance(one, int) else (two, one)
            assert isinstance(single, int)
            step, labels = product.operands[single]
            composed, own = self._subtree(other, product.operands, product.shape)
            shared = next(label for label in labels if label in own and label >= rank)
            rests.append((product.coefficient, (composed, tuple(SUMMED if k == shared else k for k in own))))
            common = step, tuple(SUMMED if label == shared else label for label in labels)
        dims = self._dims_of([common, *(operand for _, operand in rests)])
        keep = {label for label in dims if 0 <= label < rank}
        scale = max(rests[0][0], -rests[0][0])
        before = math.prod(dims[label] for label in {k for _, (_, own) in rests for k in own})
        if any(abs(number) != scale for number, _ in rests) or math.prod(dims[k] for k in keep) > before:
            return 1.0, self._pair(common, self._added(rests), keep)
        signs = [(self._number(-1 if number < 0 else 1), operand) for number, operand in rests]
        return scale, self._pair(common, self._added(signs), keep)

    def _added(self, summands: Sequence[tuple[Number, Operand]]) -> Operand:
        """The sum of arrays, constant along the labels that they do not have."""
        labels = tuple(dict.fromkeys(label for _, (_, own) in summands for label in own))
        dims = self._dims_of([operand for _, operand in summands])
        rows = tuple((number, tuple(labels.index(label) for label in own), ()) for number, (_, own) in summands)
        shape = tuple(dims[label] for label in labels)
        return self._add("combine", [step for _, (step, _) in summands], (rows, 0.0), shape), labels

    # ---- products ---------------------------------------------------------------------------------------------------

    def _ordered_product(self, term: Term, rank: int, coefficient: Number) -> Ordered:
        """The factors of a term, those with the same labels joined, and the order in which they are contracted."""
        factors = [self._diagonal(self._head(head), indices) for head, indices in _heads(term)]
        vectors = [k for k, (step, labels) in enumerate(factors) if len(labels) == 1 and self.steps[step].stage == DATA]
        if coefficient != 1.0 and vectors and len(factors) > 1:  # scaled once and for all
            factors[vectors[0]], coefficient = self._scaled(factors[vectors[0]], coefficient), 1.0
        groups: dict[frozenset[int], list[Operand]] = {}
        for step, labels in factors:
            groups.setdefault(frozenset(labels), []).append((step, labels))
        operands = tuple(self._merged(members) for members in groups.values())
        data = tuple(self._counts_once(step) for step, _ in operands)
        shape = Product(tuple(labels for _, labels in operands), self._dims_of(operands), data, rank)
        return Ordered(coefficient, operands, shape, shape.cheapest())

    def _head(self, head: Head) -> int:
        """The step of a head over its own indices."""
        if isinstance(head, Leaf):
            return self._leaf(head)
        if isinstance(head, LogSumExp):
            rows = [self.value(part) for part in head.parts]
            return self._add("logsumexp", rows, (head.rank,), self._shape(head.dims))
        assert isinstance(head, Apply)
        if head.op == GROUP:
            return self.value(head.bodies[0])
        bodies = [self.value(body) for body in head.bodies]
        return self._add("apply", bodies, (head.op, head.parameter), self._shape(head.dims))

    def _leaf(self, leaf: Leaf) -> int:
        if leaf.name not in self.leaves:
            sparse = leaf.name in self._nonzeros
            step = Step("leaf", (), (leaf.name,), self._shape(leaf.dims), self._stage_of(leaf), sparse)
            self.steps.append(step)
            self.leaves[leaf.name] = len(self.steps) - 1
        return self.leaves[leaf.name]

    def _diagonal(self, step: int, labels: Labels) -> Operand:
        distinct = tuple(dict.fromkeys(labels))
        if len(distinct) == len(labels):
            return step, labels
        shape = tuple(self.steps[step].shape[labels.index(label)] for label in distinct)
        return self._add("diagonal", [step], (_renamed(labels),), shape), distinct

    def _merged(self, members: Sequence[Operand]) -> Operand:
        """The product of values with the same labels: first data, then what depends on less."""
        (result, labels), *others = sorted(members, key=lambda member: (self.steps[member[0]].stage, member[0]))
        for step, own in others:
            places = tuple(range(len(labels)))
            order = tuple(own.index(label) for label in labels)
            result = self._multiplied((result, places), (self._transposed(step, order), places))[0]
        return result, labels

    def _transposed(self, step: int, order: Labels) -> int:
        """The step with its axes in another order."""
        if order == tuple(range(len(order))):
            return step
        shape, sparse = tuple(self.steps[step].shape[k] for k in order), self.steps[step].sparse
        return self._add("transpose", [step], order, shape, sparse=sparse)

    def _with_coefficient(self, operands: tuple[Operand, ...], coefficient: Number) -> tuple[Operand, ...]:
        """The coefficient of a matrix goes to its smallest factor."""
        least = min(range(len(operands)), key=lambda k: self.steps[operands[k][0]].entries)
        return tuple(self._scaled(o, coefficient) if k == least else o for k, o in enumerate(operands))

    def _scaled(self, operand: Operand, coefficient: Number) -> Operand:
        step, labels = operand
        shape, sparse = self.steps[step].shape, self.steps[step].sparse
        rows = ((coefficient, tuple(range(len(labels))), ()),)
        return self._add("combine", [step], (rows, 0.0), shape, sparse=sparse), labels

    def _dims_of(self, operands: Sequence[Operand]) -> dict[int, int]:
        return {
            label: size for step, labels in operands for label, size in zip(labels, self.steps[step].shape, strict=True)
        }

    def _subtree(self, tree: Tree, operands: Sequence[Operand], shape: Product) -> Operand:
        """The contraction of some operands, with the labels that others still need."""
        left = shape.left(places_in(tree))
        if isinstance(tree, int):
            return self._summed(operands[tree], left)
        one, two = (self._subtree(branch, operands, shape) for branch in tree)
        return self._pair(one, two, left)

    def _pair(self, one: Operand, two: Operand, keep: Labels | set[int] | frozenset[int]) -> Operand:
        shared = {label for label in one[1] if label in two[1]} - set(keep)
        one = self._summed(one, set(keep) | shared)
        two = self._summed(two, set(keep) | shared)
        return self._matrix_product(one, two, shared) if shared else self._multiplied(one, two)

    def _summed(self, operand: Operand, keep: set[int] | frozenset[int] | Labels) -> Operand:
        step, labels = operand
        gone = tuple(k - len(labels) for k, label in enumerate(labels) if label not in keep)
        if not gone:
            return operand
        rest = tuple(label for label in labels if label in keep)
        shape = tuple(size for size, label in zip(self.steps[step].shape, labels, strict=True) if label in keep)
        return self._add("sum", [step], gone, shape), rest

    def _multiplied(self, one: Operand, two: Operand) -> Operand:
        """Entry by entry; the axes of the larger come first."""
        if len(one[1]) < len(two[1]):
            one, two = two, one
        labels = (*one[1], *(label for label in two[1] if label not in one[1]))
        dims = self._dims_of((one, two))
        places = tuple(tuple(labels.index(label) for label in own) for _, own in (one, two))
        sparse = self.steps[one[0]].sparse and len(labels) == len(one[1])
        shape = tuple(dims[label] for label in labels)
        return self._add("multiply", [one[0], two[0]], places, shape, sparse=sparse), labels

    def _matrix_product(self, one: Operand, two: Operand, summed: set[int]) -> Operand:
        if len(one[1]) < len(two[1]) or (
            len(one[1]) == len(two[1]) and self.steps[two[0]].stage < self.steps[one[0]].stage
        ):
            one, two = two, one
        if (gram := self._gram(one, two, summed)) is not None:
            return gram
        both = [label for label in one[1] if label in two[1] and label not in summed]
        left = [label for label in one[1] if label not in two[1]]
        right = [label for label in two[1] if label not in one[1]]
        out = (*both, *left, *right)
        dims = self._dims_of((one, two))
        names = {label: k for k, label in enumerate(dict.fromkeys((*one[1], *two[1])))}
        parameter = tuple(tuple(names[label] for label in group) for group in (one[1], two[1], out))
        return self._add("contract", [one[0], two[0]], parameter, tuple(dims[label] for label in out)), out

    def _gram(self, one: Operand, two: Operand, summed: set[int]) -> Operand | None:
        """M^T diag(w) M, where that is what a product is: it is symmetric, and half of it suffices."""
        if len(one[1]) != 2 or len(two[1]) != 2 or len(summed) != 1:
            return None
        (first, own), (second, other) = self._unscaled(one), self._unscaled(two)
        (k,) = summed
        same = first[0] == second[0] and first[1].index(k) == second[1].index(k) and not self.steps[first[0]].sparse
        weights = [*own, *other]
        if not same or any(label != k for _, label in weights) or len(set(first[1])) < 2:
            return None
        axis = first[1].index(k)
        out = first[1][1 - axis], second[1][1 - axis]
        if out[0] == out[1]:
            return None
        size = self.steps[first[0]].shape[1 - axis]
        args = [first[0], *(step for step, _ in weights)]
        return self._add("gram", args, (axis,), (size, size)), out

    def _unscaled(self, operand: Operand) -> tuple[Operand, list[Weight]]:
        """A matrix behind transpositions and a scaling by a vector, and that vector with its label."""
        step, labels = operand
        made = self.steps[step]
        weights: list[Weight] = []
        while made.kind == "transpose" or (made.kind == "multiply" and self._scales(made)):
            if made.kind == "multiply":
                (place,) = cast("tuple[int]", made.parameter[1])
                weights.append((made.args[1], labels[place]))
                step = made.args[0]
            else:
                step, labels = made.args[0], _undone(made.parameter, labels)
            made = self.steps[step]
        return (step, labels), weights

    def _scales(self, made: Step) -> bool:
        one, two = cast("tuple[Labels, Labels]", made.parameter)
        return one == (0, 1) and len(two) == 1 and len(made.shape) == 2

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _add(
        self,
        kind: str,
        args: Sequence[int],
        parameter: tuple[Hashable, ...],
        shape: tuple[int, ...],
        *,
        sparse: bool = False,
    ) -> int:
        """The number of a step, which is made if there is none that is equal.

        kind: see ``Step``
        args: the steps whose values it takes
        parameter: what else it takes
        shape: of its value
        sparse: whether that is a sparse matrix
        """
        key = (kind, tuple(args), parameter, shape)
        if key not in self._known:
            stage = max((self.steps[k].stage for k in args), default=DATA)
            self.steps.append(Step(kind, tuple(args), parameter, shape, stage, sparse))
            self._known[key] = len(self.steps) - 1
        return self._known[key]

    def _shape(self, dims: Iterable[str]) -> tuple[int, ...]:
        return tuple(self.sizes[dim] for dim in dims)


class ExactPlan(Plan):
    """A plan for proofs: coefficients are fractions, and products of data with data are worth no more than others.

    >>> half = Tensor((), (Term(Fraction(1, 3), (), (), ()),))
    >>> plan = ExactPlan({}, lambda leaf: DATA, {})
    >>> plan.steps[plan.value(half)].parameter
    (Fraction(1, 3),)
    """

    @staticmethod
    def _number(value: Number) -> Number:
        return Fraction(value)

    def _counts_once(self, step: int) -> bool:
        return False


def _deltas(term: Term) -> Deltas:
    return tuple(sorted((own[0], own[1]) for head, own in term.factors if isinstance(head, Delta)))


def _heads(term: Term) -> list[Factor]:
    """The factors that are no deltas."""
    return [factor for factor in term.factors if not isinstance(factor.head, Delta)]


def _kept(rank: int, deltas: Deltas) -> Labels:
    gone = {j for _, j in deltas}
    return tuple(i for i in range(rank) if i not in gone)


def _renamed(labels: Labels) -> Labels:
    names = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    return tuple(names[label] for label in labels)


def _undone(order: tuple[Hashable, ...], labels: Labels) -> Labels:
    """The labels before axes were put in this order."""
    return tuple(labels[order.index(k)] for k in range(len(labels)))
