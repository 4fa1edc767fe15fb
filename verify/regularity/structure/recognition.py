"""A formula as a quadratic form and a sum of parts: over some indices, products of functions of affine forms.

A part is sum_i D_i h_1(z_1i, ...) h_2(...) with data D and affine forms z of the variables (``Atom``), one row for
every choice of the indices. So are generalised linear models: h is a loss, z = A y - b; a weight sigmoid(x_i), or a
penalty exp(x_j) y_j**2/2, has an affine form of its own. A logarithm of a sum of exponentials is a function of several
entries of one affine form. What is none of this is refused by its name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from flint import fmpq

from bilevel_sym.arrays.algebra import contract
from bilevel_sym.arrays.tensor import GROUP, Apply, Factor, Head, Leaf, LogSumExp, Tensor, Term
from bilevel_sym.errors import BilevelError
from bilevel_sym.graph.nodes import ONE_FORM, Graph, LinearForm, total
from verify.regularity.structure.loss_ranges import LossFunction

__all__ = ["Atom", "Formula", "Group", "Part", "SoftMaximum", "Unrecognised", "recognised"]

MAX_NUMBERS = 12  # affine forms and data that one part may have
Item = tuple[Tensor, tuple[int, ...]]  # a tensor and the labels of its indices


class Unrecognised(BilevelError):
    """A formula that is no sum of functions of affine forms.

    >>> print(Unrecognised("sqrt(sum(y**2))", hint="a box"))
    sqrt(sum(y**2))
    try: a box
    """


@dataclass(frozen=True, eq=False)
class Atom:
    """An affine form of the variables, or data: a tensor, and which indices of its part its own indices are.

    >>> Atom(Tensor.leaf(Leaf("y", ("n",), "y")), (0,)).tensor.rank
    1
    """

    tensor: Tensor
    places: tuple[int, ...]

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        """Equal atoms have equal keys."""
        return self.tensor.key, self.places


@dataclass(frozen=True, eq=False)
class Group:
    """A factor of a part: a function, as a form of the graph, of some atoms and data, by their numbers."""

    form: LinearForm
    atoms: tuple[int, ...]
    data: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SoftMaximum:
    """A factor log(sum(exp(z))) of a part; every z is an atom whose last ``summed`` indices are summed over."""

    atoms: tuple[Atom, ...]
    summed: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """sum over ``dims`` of ``number`` times data times functions.

    - ``number``: a rational number.
    - ``dims``: the dimensions that are summed over.
    - ``scale``: data that multiply it.
    - ``graph``: where the functions live; its variables are ``atoms``, by number.
    - ``atoms``: affine forms, and data inside functions.
    - ``groups``: factors that share no atom.
    - ``soft``: a logarithm of a sum of exponentials, where there is one.
    """

    number: Fraction
    dims: tuple[str, ...]
    scale: tuple[Atom, ...]
    graph: Graph
    atoms: tuple[Atom, ...]
    groups: tuple[Group, ...]
    soft: SoftMaximum | None = None

    @cached_property
    def functions(self) -> tuple[LossFunction, ...]:
        """The functions of the groups, with what is known of their ranges."""
        return tuple(LossFunction(self.graph, group.form, group.atoms, group.data) for group in self.groups)


@dataclass(frozen=True, eq=False)
class Formula:
    """What was recognised: a polynomial of degree two at most, and parts."""

    quadratic: Tensor
    parts: tuple[Part, ...] = field(default=())


def recognised(formula: Tensor, sizes: dict[str, int]) -> Formula:
    """A formula without free indices as a quadratic and parts; ``Unrecognised`` where it is not such a sum.

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("sum(y)", "sum(softplus(A @ y)) + y @ y/2", "x", "y[n]", data={"A": [[1, 2]]})
    >>> found = recognised(problem.array_model.g, {"m": 1, "n": 2})
    >>> len(found.quadratic.terms), len(found.parts), found.parts[0].dims
    (1, 1, ('m',))
    """
    terms = [term for given in formula.terms for term in _multiplied_out(given)]
    plain = [term for term in terms if _is_low(term)]
    others = [term for term in terms if not _is_low(term)]
    return Formula(Tensor((), tuple(plain)), tuple(_Reading(sizes).part(term) for term in others))


def _multiplied_out(term: Term) -> Iterator[Term]:
    """A weight times a sum of losses, w_i (logsumexp(z_i) - z_i . t_i), as terms: each is a part of its own."""
    for k, (head, indices) in enumerate(term.factors):
        if isinstance(head, Apply) and head.op == GROUP and any(map(_is_part, head.bodies[0].terms)):
            others, (body,) = (*term.factors[:k], *term.factors[k + 1 :]), head.bodies
            for inner in body.terms:
                labels = (*indices, *range(len(term.dummies), len(term.dummies) + len(inner.dummies)))
                own = (Factor(factor.head, tuple(labels[i] for i in factor.indices)) for factor in inner.factors)
                number, sizes = term.coefficient * inner.coefficient, (*term.sizes, *inner.sizes)
                yield from _multiplied_out(Term(number, sizes, (*others, *own), (*term.dummies, *inner.dummies)))
            return
    yield term


def _is_part(term: Term) -> bool:
    """Whether a term inside a product must stand alone: a logarithm of a sum, or a sum of what is not affine."""
    degree = _term_degree(term)
    return any(isinstance(f.head, LogSumExp) for f in term.factors) or (
        bool(term.dummies) and (degree is None or degree > 1)
    )


def _is_low(term: Term) -> bool:
    degree = _term_degree(term)
    return degree is not None and degree <= 2


def _varies(head: Head) -> bool:
    return any(leaf.role in ("x", "y") for leaf in head.leaves)


def _term_degree(term: Term) -> int | None:
    degrees = [_head_degree(factor.head) for factor in term.factors]
    return None if None in degrees else sum(d for d in degrees if d is not None)


def _head_degree(head: Head) -> int | None:
    """The degree of a polynomial in the variables; None of anything else."""
    if not _varies(head):
        return 0
    if isinstance(head, Leaf):
        return 1
    if isinstance(head, Apply) and head.op == GROUP:
        return _degree(head.bodies[0])
    return None


def _degree(tensor: Tensor) -> int | None:
    degrees = [_term_degree(term) for term in tensor.terms]
    return None if None in degrees else max((d for d in degrees if d is not None), default=0)


class _Reading:
    """One term on its way to a part."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.graph = Graph(MAX_NUMBERS)
        self.atoms: list[Atom] = []
        self.soft: SoftMaximum | None = None

    def part(self, term: Term) -> Part:
        """A term without free indices, its dummies as they are numbered."""
        items = _merged(_items(term.factors), keep=())
        left = sorted({label for _, labels in items for label in labels})
        names = {label: k for k, label in enumerate(left)}
        scale, forms = [], []
        for tensor, labels in items:
            places = tuple(names[label] for label in labels)
            if not any(leaf.role in ("x", "y") for leaf in tensor.leaves):
                scale.append(Atom(tensor, places))
            elif (soft := _soft_head(tensor)) is not None:
                self._add_soft(soft, places)
            else:
                forms.append(self._form(tensor, places))
        dims = tuple(_dim_of(label, items) for label in left)
        number, groups = self._number(term), self._groups(forms)
        return Part(number, dims, tuple(scale), self.graph, tuple(self.atoms), groups, self.soft)

    def _number(self, term: Term) -> Fraction:
        sizes = (Fraction(self.sizes[dim]) ** power for dim, power in term.sizes)
        return math.prod(sizes, start=term.coefficient)

    def _groups(self, forms: Sequence[LinearForm]) -> tuple[Group, ...]:
        """Factors that share an atom become one function of it."""
        varying = sum(1 << k for k, atom in enumerate(self.atoms) if _is_variable(atom.tensor))
        groups: list[tuple[int, LinearForm]] = []
        for form in forms:
            support = self._support(form)
            for own in [own for own in groups if own[0] & support & varying]:
                groups.remove(own)
                support, form = support | own[0], self.graph.mul(own[1], form)
            groups.append((support, form))
        numbers = range(len(self.atoms))
        return tuple(
            Group(
                form,
                tuple(k for k in numbers if support & varying & (1 << k)),
                tuple(k for k in numbers if support & ~varying & (1 << k)),
            )
            for support, form in groups
        )

    def _support(self, form: LinearForm) -> int:
        found = 0
        for node in form.terms:
            found |= self.graph.support[node]
        return found

    # ---- forms ----------------------------------------------------------------------------------------------------

    def _form(self, tensor: Tensor, places: tuple[int, ...]) -> LinearForm:
        """A tensor at one place of the part, as a form of the graph."""
        if not any(term.factors or term.dummies for term in tensor.terms):  # a number, such as the 0 of a hinge
            number = sum(map(self._number, tensor.terms), start=Fraction(0))
            return LinearForm(fmpq(number.numerator, number.denominator), {})
        degree = _degree(tensor)
        opened = _opened(tensor)
        if opened is not None:
            head, own = opened
            return self._head(head, tuple(places[i] for i in own))
        if degree is not None and degree <= 1:
            return self._unknown_array(tensor, places)
        return total(self._term(term, tensor.rank, places) for term in tensor.terms)

    def _term(self, term: Term, rank: int, places: tuple[int, ...]) -> LinearForm:
        items = _merged(_items(term.factors), keep=range(rank))
        if any(label >= rank for _, labels in items for label in labels):
            raise Unrecognised("a sum inside a function, of what is not affine in the variables")
        forms = [self._form(tensor, tuple(places[label] for label in labels)) for tensor, labels in items]
        number = self._number(term)
        product = self.graph.product(forms) if forms else ONE_FORM
        return product.scaled(fmpq(number.numerator, number.denominator))

    def _head(self, head: Head, places: tuple[int, ...]) -> LinearForm:
        if isinstance(head, Leaf):
            return self._unknown_array(Tensor.leaf(head), places)
        if not isinstance(head, Apply):
            raise Unrecognised(f"{type(head).__name__} inside a function")
        if not _varies(head):
            return self._unknown_array(head.whole, places)
        if head.op == GROUP:
            return self._form(head.bodies[0], places)
        forms = [self._form(body, places) for body in head.bodies]
        if head.op in ("ipow", "rpow"):
            return self.graph.power(forms[0], *head.parameter)
        if head.op == "log" and (cosh := self._cosh(head.bodies[0], places)) is not None:
            return cosh
        return self.graph.apply(head.op, *forms)

    def _cosh(self, body: Tensor, places: tuple[int, ...]) -> LinearForm | None:
        """log(cosh(z)) = softplus(2 z) - z - log(2), whose derivatives have bounds far out."""
        opened = _opened(body)
        if opened is None or not isinstance(opened[0], Apply) or opened[0].op != "cosh":
            return None
        z = self._form(opened[0].bodies[0], tuple(places[i] for i in opened[1]))
        two = LinearForm(fmpq(2), {})
        return self.graph.apply("softplus", z.scaled(fmpq(2))) - z - self.graph.apply("log", two)

    def _unknown_array(self, tensor: Tensor, places: tuple[int, ...]) -> LinearForm:
        atom = Atom(tensor, places)
        for k, known in enumerate(self.atoms):
            if known.key == atom.key:
                return self.graph.variables[k]
        if len(self.atoms) == MAX_NUMBERS:
            raise Unrecognised(f"a product of functions of more than {MAX_NUMBERS} affine forms")
        self.atoms.append(atom)
        return self.graph.variables[len(self.atoms) - 1]

    def _add_soft(self, head: LogSumExp, places: tuple[int, ...]) -> None:
        if self.soft is not None:
            raise Unrecognised("a product of two logarithms of sums of exponentials")
        for part in head.parts:
            degree = _degree(part)
            if degree is None or degree > 1:
                raise Unrecognised("a logarithm of a sum of exponentials of what is not affine in the variables")
        atoms = tuple(Atom(part, places) for part in head.parts)
        self.soft = SoftMaximum(atoms, tuple(part.rank - head.rank for part in head.parts))


def _is_variable(tensor: Tensor) -> bool:
    return any(leaf.role in ("x", "y") for leaf in tensor.leaves)


def _opened(tensor: Tensor) -> tuple[Head, tuple[int, ...]] | None:
    """The one head that a tensor is, with the places of its indices."""
    if len(tensor.terms) != 1:
        return None
    (term,) = tensor.terms
    if term.coefficient != 1 or term.sizes or term.dummies or len(term.factors) != 1:
        return None
    return term.factors[0].head, term.factors[0].indices


def _soft_head(tensor: Tensor) -> LogSumExp | None:
    opened = _opened(tensor)
    return opened[0] if opened is not None and isinstance(opened[0], LogSumExp) else None


def _items(factors: Sequence[Factor]) -> list[Item]:
    return [(head.whole, indices) for head, indices in factors]


def _dim_of(label: int, items: Iterable[Item]) -> str:
    return next(tensor.dims[k] for tensor, labels in items for k, own in enumerate(labels) if own == label)


def _merged(items: list[Item], keep: Iterable[int]) -> list[Item]:
    """Products of an affine item with data over an index that nothing else has become one affine item."""
    kept = set(keep)
    while (pair := _mergeable(items, kept)) is not None:
        k, j = pair
        (one, own), (two, others) = items[k], items[j]
        rest = [item for i, item in enumerate(items) if i not in (k, j)]
        elsewhere = {label for _, labels in rest for label in labels} | kept
        out = tuple(dict.fromkeys(label for label in (*own, *others) if label in elsewhere))
        items = [*rest, (contract([(one, own), (two, others)], out), out)]
    return items


def _mergeable(items: Sequence[Item], kept: set[int]) -> tuple[int, int] | None:
    for k, (tensor, labels) in enumerate(items):
        degree = _degree(tensor)
        if degree is None or degree > 1:
            continue
        for label in labels:
            owners = [j for j, (_, other) in enumerate(items) if label in other]
            if label in kept or len(owners) != 2:
                continue
            j = owners[0] if owners[1] == k else owners[1]
            if _degree(items[j][0]) == 0 and (degree == 1 or _degree(tensor) == 0):
                return k, j
    return None
