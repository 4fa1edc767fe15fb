"""Small array problems at one point in compiled code (extra ``fast``): calls of NumPy would cost more than the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np

from bilevel_sym.implicit import one_point as compiled
from bilevel_sym.implicit import one_point_products as by_products
from bilevel_sym.implicit.array_program import ArrayProgram
from bilevel_sym.implicit.compiled_plan import WITH_V, Translation, Unable
from bilevel_sym.implicit.conjugate_gradients import Lower
from bilevel_sym.implicit.engine import EXPANSION
from bilevel_sym.implicit.lower_level import FULL_STEPS_BELOW, PLAIN_STEPS, QUADRATIC, ROUND_OFF
from bilevel_sym.typing import Floats, Indices

STEP = ("g_y", "g_yy")
GRADIENT = ("f", "f_x", "f_y", "g_yy", "g_xy_v")
MAX_WORK = 1_000_000  # multiplications of one system; beyond, BLAS is worth its calls
MAX_WORK_OF_HESSIAN = 6 * MAX_WORK
MAX_WORK_BY_PRODUCTS = 20 * MAX_WORK  # a product takes a fraction of it, and makes matrices thin for BLAS
ONCE = ("f", "f_x", "f_y")
PRODUCTS = ("g", "g_y", *ONCE, "g_yy_v", "g_xy_v")
ALONG = (*ONCE, "g_xy", "g_yy_v", "s_x", "s_y")
Programs: TypeAlias = Callable[[tuple[str, ...]], ArrayProgram]


class CompiledArrays:
    """y*, grad Phi and Hess Phi of an array problem at one point.

    - ``program``: takes names of blocks to their program.
    - ``d``, ``n``: how many variables each level has.
    - ``quadratic``: whether g_yy does not depend on y.
    """

    def __init__(self, program: Programs, d: int, n: int, *, quadratic: bool) -> None:
        self._d, self._n, self._quadratic = d, n, quadratic
        self._value = _Prepared(program(("g",)), MAX_WORK, d, n)
        self._newton = _Prepared(program(STEP), MAX_WORK, d, n, (n,))
        self._gradient = _Prepared(program(GRADIENT), MAX_WORK, d, n)
        self._expansion = _Prepared(program(EXPANSION), MAX_WORK_OF_HESSIAN, d, n, (d * n, n * d, d * n, d * d))
        self._limits = np.array([ROUND_OFF, FULL_STEPS_BELOW, QUADRATIC])

    @classmethod
    def of(cls, program: Programs, d: int, n: int, *, quadratic: bool) -> CompiledArrays | None:
        """The same, or None where the problem is large, or has a step without an instruction.

        program: takes names of blocks to their program
        d: upper-level variables
        n: lower-level variables
        quadratic: whether g_yy does not depend on y
        """
        try:
            return cls(program, d, n, quadratic=quadratic)
        except Unable:
            return None

    def lower_level(self, x: Floats, y0: Floats) -> Lower | None:
        """y*(x) by full Newton steps from y0; None where one does not help, and care is needed."""
        own, value = self._newton, self._value
        memory, y = own.take(x, y0), own.inputs[0] + self._d
        ends = np.array([y, *own.blocks.values(), *own.rooms, self._n])
        steps = compiled.newton(own.code[0], own.numbers, memory, ends, self._limits, PLAIN_STEPS, self._quadratic)
        found = memory[y : y + self._n].copy()
        own.give_back(memory)
        if not steps:
            return None
        # outside the domain of g its derivatives may still look fine: log(y) has one at -1
        memory = value.take(x, found)
        g = compiled.value(value.code[0], value.numbers, memory, value.blocks["g"])
        value.give_back(memory)
        return Lower(found, int(steps), self._n * int(steps), True) if np.isfinite(g) else None

    def gradient(self, row: Floats) -> tuple[Floats, Floats] | None:
        """Phi and grad Phi at (x, y); None where g_yy is not positive definite."""
        out = self._gradient.run(compiled.gradient, row, 1 + self._d)
        return None if out is None else (out[0], out[1:])

    def expansion(self, row: Floats) -> tuple[Floats, Floats, Floats] | None:
        """Phi, grad Phi and Hess Phi at (x, y); None where g_yy is not positive definite."""
        d = self._d
        out = self._expansion.run(compiled.expand, row, 1 + d + d * d)
        return None if out is None else (out[0], out[1 : 1 + d], out[1 + d :].reshape(d, d))


class CompiledProducts:
    """The same by products with g_yy, which is not formed: conjugate gradients, one system after the other.

    - ``program``: takes names of blocks to their program.
    - ``d``, ``n``: how many variables each level has.
    - ``most``: products that the lower level, or one system, may take; what takes more is left to NumPy.
    """

    def __init__(self, program: Programs, d: int, n: int, most: int) -> None:
        self._program, self._d, self._n, self._most = program, d, n, most
        self._first = _Solving(program(PRODUCTS), 2, n, (n, n))

    @classmethod
    def of(cls, program: Programs, d: int, n: int, most: int) -> CompiledProducts | None:
        """The same, or None where the problem is large, or has a step without an instruction.

        program: takes names of blocks to their program
        d: upper-level variables
        n: lower-level variables
        most: products that the lower level, or one system, may take
        """
        try:
            return cls(program, d, n, most)
        except Unable:
            return None

    @cached_property
    def _along(self) -> _Solving | None:
        """For Hess Phi; prepared when that is asked for."""
        try:
            return _Solving(self._program(ALONG), 3, self._n, (self._n, self._d * self._n))
        except Unable:
            return None

    def lower_level(self, x: Floats, y0: Floats) -> Lower | None:
        """y*(x) by Newton's method from y0; None where products do not lead there soon."""
        own = self._first
        memory, y = own.take(x, y0), own.inputs[0] + self._d
        ends, counts = own.places(y, "g", "g_y", *own.rooms), np.array([self._most, 0])
        code = own.codes(("g", "g_y", "g_yy_v"))
        done = by_products.newton(*code[:2], own.numbers, memory, ends, own.solving, counts)
        found = memory[y : y + self._n].copy()
        own.give_back(memory)
        return Lower(found, int(counts[0]), int(counts[1]), True) if done else None

    def gradient(self, row: Floats) -> tuple[Floats, Floats] | None:
        """Phi and grad Phi at (x, y); None where products do not find v soon."""
        own = self._first
        code = own.codes((*ONCE, "g_yy_v", "g_xy_v"))[0], own.codes(("g_yy_v",))[1], own.codes(("g_xy_v",))[1]
        ends = own.places(*ONCE, "g_xy_v", own.rooms[0], self._d)
        out, memory = np.empty(1 + self._d), own.take(row)
        done = by_products.gradient(*code, own.numbers, memory, ends, own.solving, self._most, out)
        own.give_back(memory)
        return (out[0], out[1:]) if done else None

    def expansion(self, row: Floats) -> tuple[Floats, Floats, Floats] | None:
        """Phi, grad Phi and Hess Phi at (x, y); None where products do not solve a system soon."""
        own, d = self._along, self._d
        if own is None:
            return None
        all_of, product = own.codes(ALONG), own.codes(("g_yy_v",))[1]
        ends = own.places(*ONCE, "g_xy", own.inputs[2], "s_x", "s_y", *own.rooms, d)
        out, memory = np.empty(1 + d + d * d), own.take(row)
        code = all_of[0], product, *all_of[1:]
        done = by_products.expand(*code, own.numbers, memory, ends, own.solving, self._most, out)
        own.give_back(memory)
        return (out[0], out[1 : 1 + d], out[1 + d :].reshape(d, d)) if done else None


class _Translated:
    """A translated program, and memories that nobody uses: one for each thread at work."""

    def __init__(self, translation: Translation, rooms: Sequence[int]) -> None:
        self.inputs, self.blocks = translation.inputs, translation.blocks
        self.rooms = [translation.room(entries) for entries in rooms]
        self.numbers, self._memory = translation.numbers, translation.memory
        self._free = list[Floats]()

    def take(self, *inputs: Floats) -> Floats:
        """A memory with these inputs in their places."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = self._memory()
        start = self.inputs[0]
        for part in inputs:
            memory[start : start + len(part)] = part
            start += len(part)
        return memory

    def give_back(self, memory: Floats) -> None:
        """Whoever comes next may use it."""
        self._free.append(memory)


class _Prepared(_Translated):
    """A program whose g_yy is factored."""

    def __init__(self, program: ArrayProgram, most: float, d: int, n: int, rooms: Sequence[int] = ()) -> None:
        translation = Translation(program, most, own=("g_yy",))
        super().__init__(translation, rooms)
        translation.spend(n**3 // 6 + n * sum(rooms))
        self.code = translation.code()
        before_v = [place for name, place in self.blocks.items() if name not in WITH_V]
        with_v = [place for name, place in self.blocks.items() if name in WITH_V]
        self._ends = np.array([*before_v, self.inputs[1], *with_v, *self.rooms, d, n])

    def run(self, function: Callable[..., bool], row: Floats, size: int) -> Floats | None:
        """What a compiled function finds at (x, y): so many numbers."""
        out, memory = np.empty(size), self.take(row)
        done = function(*self.code, self.numbers, memory, self._ends, out)
        self.give_back(memory)
        return out if done else None


class _Solving(_Translated):
    """A program whose systems with g_yy are solved by products."""

    def __init__(self, program: ArrayProgram, stages: int, n: int, rooms: Sequence[int]) -> None:
        translation = Translation(program, MAX_WORK_BY_PRODUCTS, stages=stages)
        super().__init__(translation, (*rooms, n, n, n))
        *self.rooms, z, residual, best = self.rooms
        self.solving = np.array([self.inputs[1], self.blocks["g_yy_v"], z, residual, best, n])
        self.codes = lru_cache(None)(translation.code)

    def places(self, *ends: str | int) -> Indices:
        """Where blocks stand, among other numbers."""
        return np.array([self.blocks[end] if isinstance(end, str) else end for end in ends])
