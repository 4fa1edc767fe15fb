"""abs, min, max, conditions and cases: what SymPy compares when a user asks for formulas, which can be slow.

SymPy asks for the sign of every difference. It cannot know the sign of an affine form in free variables, so those
are free of charge. For everything else the price goes by size, and what is known to take exponential time is refused:
tall continued fractions, sums of many roots, cases inside a condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from bilevel_sym.graph.nodes import LinearForm
from bilevel_sym.problem.parsing.guarded import Arithmetic, Refusal, Value

_MAX_HEIGHT = 24
_MAX_ROOTS = 4
_AS_GOOD_AS_EQUAL = 1e-9


class Builder(Arithmetic):
    """Everything that the grammar can build, over a given set of symbols.

    >>> import sympy as sp
    >>> x = sp.Symbol("x")
    >>> build = Builder([x])
    >>> build.draft.op[build.draft.node_of(build.absolute(build.variable(x)).form)]
    'abs'
    """

    def absolute(self, a: Value) -> Value:
        """abs(a)."""
        if not (len(a.form.terms) + bool(a.form.constant) > 1 and self._is_affine(a.form)):
            self._charge_comparison(a)
        number = None if a.number is None else abs(a.number)
        return self.settle(self.draft.apply("abs", a.form), number, (a,), plain=False, count=2 * a.terms)

    def extremum(self, name: str, values: Sequence[Value]) -> Value:
        """min or max of two or more values."""
        if not self._is_undecided(values):
            # SymPy flattens min(min(a, b), c) and then compares all pairs
            count = sum(self._count(name, value.form) for value in values)
            for _ in range(count - 1):
                self._charge_comparison(*values)
        form = self.draft.apply(name, *(value.form for value in values))
        return self.settle(form, _number_of(form, values), values, plain=False, count=_terms(values))

    def compare(self, sign: str, a: Value, b: Value) -> Value:
        """The condition a < b, or its like: 1 where it holds and 0 where it does not."""
        if not self._is_undecided((a, b)):
            self._charge_comparison(a, b)
            if any(self.draft.op[k] == "select" for k in self.draft.reachable({*a.form.terms, *b.form.terms})):
                raise Refusal("a condition must not contain a Piecewise", "write out its cases")
        difference = a.form - b.form if sign[0] == "<" else b.form - a.form
        form = self.draft.apply("le" if sign[1:] else "lt", difference)
        size, height = a.size + b.size + 1, max(a.height, b.height) + 1
        return Value(form, None, False, size, height, a.roots + b.roots, a.terms + b.terms, a.askable and b.askable)

    def piecewise(self, pieces: Sequence[tuple[Value, Value]]) -> Value:
        """The value of the first piece whose condition holds."""
        self.charge(200 * len(pieces))
        nowhere = form = self.draft.undefined()
        for value, condition in reversed(pieces):
            form = self.draft.apply("select", condition.form, value.form, form)
        if form.terms == nowhere.terms:
            raise Refusal("this is not a finite real number")
        values = [value for value, _ in pieces]
        parts = [part for piece in pieces for part in piece]
        return self.settle(form, _number_of(form, values), parts, plain=False, count=_terms(parts))

    def finish(self, value: Value) -> LinearForm:
        """The form, once nothing in it is outside the limits of the grammar."""
        self.check_exponents(self.draft.reachable(value.form.terms))
        return value.form

    def _is_affine(self, form: LinearForm) -> bool:
        """Whether this is a sum of multiples of variables of unknown sign, and perhaps a number."""
        return all(node in self.signless for node in form.terms)

    def _is_undecided(self, values: Sequence[Value]) -> bool:
        """Whether SymPy can order no two of these: all are affine, and no two differ by a number."""
        forms = [value.form for value in values]
        if not all(map(self._is_affine, forms)):
            return False
        self.charge(200 + 40 * (len(forms) - 1) * sum(len(form.terms) for form in forms))
        return len({frozenset((node, str(c)) for node, c in form.terms.items()) for form in forms}) == len(forms)

    def _count(self, name: str, form: LinearForm) -> int:
        nodes = self._factors(form)
        return len(self.draft.args[nodes[0]]) if len(nodes) == 1 and self.draft.op[nodes[0]] == name else 1

    def _charge_comparison(self, *values: Value) -> None:
        if max(value.height for value in values) > _MAX_HEIGHT:
            raise Refusal("what is compared is nested too deeply", "abs, min, max and conditions want less")
        if sum(value.roots for value in values) > _MAX_ROOTS:
            raise Refusal("what is compared holds too many roots of constants", "write decimals")
        size = sum(value.size for value in values)
        self.charge(400 * size + 0.4 * size**2)
        if self.signed:  # then SymPy looks for the roots of polynomials
            self.charge(800 * sum(self._degree(value.form) ** 2 for value in values))
        self.check_askable(*values)
        _check_close([value for value in values if value.number is not None])

    def _degree(self, form: LinearForm) -> int:
        draft = self.draft
        exponents = (draft.parameter[k][0] for k in draft.reachable(form.terms) if draft.op[k] in ("ipow", "rpow"))
        return max(map(abs, exponents), default=1)


def _terms(values: Sequence[Value]) -> float:
    return sum(value.terms for value in values)


def _check_close(constants: Sequence[Value]) -> None:
    """Deciding whether two different formulas give the same number can take SymPy forever."""
    for a, b in combinations(constants, 2):
        assert a.number is not None
        assert b.number is not None
        if _equal(a.form, b.form) or (a.form.is_constant and b.form.is_constant):
            continue
        if abs(a.number - b.number) <= _AS_GOOD_AS_EQUAL * (abs(a.number) + abs(b.number)):
            raise Refusal("these constants are too close to be compared", "write them as numbers")


def _number_of(form: LinearForm, values: Sequence[Value]) -> float | None:
    """The estimate of a choice among values, where one of them was chosen."""
    return next((value.number for value in values if _equal(value.form, form)), None)


def _equal(a: LinearForm, b: LinearForm) -> bool:
    return a.constant == b.constant and a.terms == b.terms
