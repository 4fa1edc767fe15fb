"""Small array problems at one point in compiled code (extra ``fast``): calls of NumPy would cost more than the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bilevel_sym.implicit import one_point as compiled
from bilevel_sym.implicit.array_program import ArrayProgram
from bilevel_sym.implicit.compiled_plan import WITH_V, Translation, Unable
from bilevel_sym.implicit.engine import EXPANSION
from bilevel_sym.implicit.lower_level import FULL_STEPS_BELOW, PLAIN_STEPS, QUADRATIC, ROUND_OFF
from bilevel_sym.typing import Floats

__all__ = ["CompiledArrays"]

STEP = ("g_y", "g_yy")
GRADIENT = ("f", "f_x", "f_y", "g_yy", "g_xy_v")
MAX_WORK = 1_000_000  # multiplications of one system; beyond, BLAS is worth its calls
MAX_WORK_OF_HESSIAN = 6 * MAX_WORK


class CompiledArrays:
    """y*, grad Phi and Hess Phi of an array problem at one point.

    - ``program``: takes names of blocks to their program.
    - ``d``, ``n``: how many variables each level has.
    - ``quadratic``: whether g_yy does not depend on y.
    """

    def __init__(self, program: Callable[[tuple[str, ...]], ArrayProgram], d: int, n: int, *, quadratic: bool) -> None:
        self._d, self._n, self._quadratic = d, n, quadratic
        self._value = _Prepared(program(("g",)), MAX_WORK, d, n)
        self._newton = _Prepared(program(STEP), MAX_WORK, d, n, (n,))
        self._gradient = _Prepared(program(GRADIENT), MAX_WORK, d, n)
        self._expansion = _Prepared(program(EXPANSION), MAX_WORK_OF_HESSIAN, d, n, (d * n, n * d, d * n, d * d))
        self._limits = np.array([ROUND_OFF, FULL_STEPS_BELOW, QUADRATIC])

    @classmethod
    def of(
        cls, program: Callable[[tuple[str, ...]], ArrayProgram], d: int, n: int, *, quadratic: bool
    ) -> CompiledArrays | None:
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

    def lower_level(self, x: Floats, y0: Floats) -> tuple[Floats, int] | None:
        """y*(x) by full Newton steps from y0, and how many; None where one does not help, and care is needed."""
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
        return (found, int(steps)) if np.isfinite(g) else None

    def gradient(self, row: Floats) -> tuple[Floats, Floats] | None:
        """Phi and grad Phi at (x, y); None where g_yy is not positive definite."""
        out = self._gradient.run(compiled.gradient, row, 1 + self._d)
        return None if out is None else (out[0], out[1:])

    def expansion(self, row: Floats) -> tuple[Floats, Floats, Floats] | None:
        """Phi, grad Phi and Hess Phi at (x, y); None where g_yy is not positive definite."""
        d = self._d
        out = self._expansion.run(compiled.expand, row, 1 + d + d * d)
        return None if out is None else (out[0], out[1 : 1 + d], out[1 + d :].reshape(d, d))


class _Prepared:
    """A translated program, and memories that nobody uses: one for each thread at work."""

    def __init__(self, program: ArrayProgram, most: float, d: int, n: int, rooms: Sequence[int] = ()) -> None:
        translation = Translation(program, most, own=("g_yy",))
        self.inputs, self.blocks = translation.inputs, translation.blocks
        self.rooms = [translation.room(entries) for entries in rooms]
        translation.spend(n**3 // 6 + n * sum(rooms))
        self.code, self.numbers, self._memory = translation.code, translation.numbers, translation.memory
        before_v = [place for name, place in self.blocks.items() if name not in WITH_V]
        with_v = [place for name, place in self.blocks.items() if name in WITH_V]
        self._ends = np.array([*before_v, self.inputs[1], *with_v, *self.rooms, d, n])
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

    def run(self, function: Callable[..., bool], row: Floats, size: int) -> Floats | None:
        """What a compiled function finds at (x, y): so many numbers."""
        out, memory = np.empty(size), self.take(row)
        done = function(*self.code, self.numbers, memory, self._ends, out)
        self.give_back(memory)
        return out if done else None
