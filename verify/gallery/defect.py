"""@defect("implicit term forgotten"): one function a defect, from a problem to a candidate that has it.

Small problems on which defects show; each with a box, so that points can be chosen.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from bilevel_sym import BilevelProblem
from verify.testkit.diagnosis import Cause

BOX = {"x1": (-1, 1), "x2": (-1, 1), "y1": (-2, 2), "y2": (-2, 2)}


@lru_cache(maxsize=1)
def coupled() -> BilevelProblem:
    """d = n = 2, kappa from 4 to 10, g_xy not symmetric, third derivatives of g of every kind.

    >>> coupled().d, coupled().n
    (2, 2)
    """
    return BilevelProblem(
        "(y1 - 1)**2/2 + (y2 + x1)**2/4 + sin(y1)*y2/2 + x1*y1/2 + x1**2/4 + x2**2/5 + cos(x1 + 2*x2)/4",
        "5*y1**2/2 + y1*y2 + 2*y2**2/5 - (x1 - x2/2)*y1 - (3*x1/5 + x2)*y2"
        " + y1**4/12 + (1 + sin(x2))*y2**2/5 + x1**2*y1/3 + cos(x1 + y2)/10",
        "x1 x2",
        "y1 y2",
        box=BOX,
        name="coupled",
    )


@lru_cache(maxsize=1)
def isotropic() -> BilevelProblem:
    """g_yy = 2 I: conjugate gradients are done after one step, exactly.

    >>> isotropic().kernels.g_yy([0.0, 0.0], [0.0, 0.0])
    array([[2., 0.],
           [0., 2.]])
    """
    return BilevelProblem(
        "(y1 - 1)**2/2 + (y2 + 1)**2/4 + x1*y2/2 + x1**2/4 + x2**2/5",
        "y1**2 + y2**2 - (2*x1 - x2)*y1 - (x1/2 + sin(x2))*y2",
        "x1 x2",
        "y1 y2",
        box=BOX,
        name="isotropic",
    )


@lru_cache(maxsize=1)
def spread() -> BilevelProblem:
    """Six eigenvalues of g_yy, 1 + k/5, no two the same: conjugate gradients need six steps.

    >>> spread().kernels.g_yy([0.0, 0.0], [0.0] * 6).diagonal().tolist()
    [1.0, 1.2, 1.4, 1.6, 1.8, 2.0]
    """
    y = [f"y{k}" for k in range(1, 7)]
    return BilevelProblem(
        "y1*(x1 + 1) + 2*y2 - y3**2 + y4*y5 + (y6 - 1)**2 + x1**2/4 + x2**2/5",
        "y1**2/2 + 3*y2**2/5 + 7*y3**2/10 + 4*y4**2/5 + 9*y5**2/10 + y6**2"
        " - x1*(y1 + 2*y3 - y5) - x2*(y2 - y4 + y6) - sin(x2)*y3",
        "x1 x2",
        y,
        box={"x1": (-1, 1), "x2": (-1, 1)} | dict.fromkeys(y, (-3, 3)),
        name="spread",
    )


@lru_cache(maxsize=1)
def saddle() -> BilevelProblem:
    """Phi = (x1^2 - x2^2)/2 + x2^4/4: a saddle at 0, minima at x2 = 1 and x2 = -1.

    >>> saddle().kernels.phi([0.0, 1.0])
    array(-0.25)
    """
    return BilevelProblem(
        "y1**2/2 - y2**2/2 + x2**4/4",
        "(y1 - x1)**2 + (y2 - x2)**2/2",
        "x1 x2",
        "y1 y2",
        box=dict.fromkeys(BOX, (-2, 2)),
        name="saddle",
    )


Kind = Literal["hypergradient", "hessian", "lower solution", "trajectory"]
"""What a candidate returns: grad Phi, Hess Phi or y* at a point; or, of a trajectory, all that was recorded."""

Make = Callable[[BilevelProblem], Any]


@dataclass(frozen=True)
class Defect:
    """A minimal version of something that goes wrong in programs for bilevel problems; made by ``defect``.

    - ``name``: a few words.
    - ``kind``: what the candidate is to compute.
    - ``cause``: what was planted, in the words of ``verify.testkit.diagnosis``.
    - ``looks``: how it looks from outside.
    - ``make``: the program itself: read it.
    - ``on``: makes a problem on which it shows.
    - ``seen``: where programs of this class were seen.

    >>> from verify.gallery import defects
    >>> wrong = {item.name: item for item in defects()}["implicit term halved"]
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> wrong.cause, wrong.candidate(problem)([1.0])  # it is 2
    ('cross', array([1.5]))
    """

    name: str
    kind: Kind
    cause: Cause
    looks: str
    make: Make = field(repr=False)
    on: Callable[[], BilevelProblem] = field(repr=False, default=coupled)
    seen: str = ""

    def __post_init__(self) -> None:
        # what functools.wraps does, for a frozen object: the docstring is the function's
        for name in functools.WRAPPER_ASSIGNMENTS:
            self.__dict__[name] = getattr(self.make, name)
        self.__dict__["__wrapped__"] = self.make

    def candidate(self, problem: BilevelProblem) -> Any:
        """A new candidate for a problem; of kind "trajectory", the record of a run."""
        return self.make(problem)

    def showcase(self) -> BilevelProblem:
        """A problem on which it shows."""
        return self.on()

    @property
    def family(self) -> str:
        """The module of the gallery that it stands in: "terms", "inverses" and so on."""
        return self.make.__module__.rpartition(".")[2]

    @property
    def wrong_line(self) -> str:
        """The line that is wrong, with its mark.

        >>> from verify.gallery import defects
        >>> print(defects()[0].wrong_line)
        return k.f_x(x, y) - 0.5 * k.g_xy(x, y) @ v  # defect: 0.5
        """
        return next(line.strip() for line in self.source().splitlines() if "# defect" in line)

    def source(self) -> str:
        """The text of the program, without its decorator."""
        lines = inspect.getsource(self.make).splitlines()
        start = next(k for k, line in enumerate(lines) if line.startswith("def "))
        return "\n".join(lines[start:])


def defect(
    name: str,
    *,
    cause: Cause,
    looks: str,
    kind: Kind = "hypergradient",
    seen: str = "",
    showcase: Callable[[], BilevelProblem] = coupled,
) -> Callable[[Make], Defect]:
    """Make a function from a problem to a candidate a defect; ``verify.gallery`` collects them by their type.

    - ``showcase``: makes a problem on which it shows.
    - The others: as for ``Defect``.

    >>> @defect("zero", kind="hypergradient", cause="factor", looks="nothing moves")
    ... def zero(problem):
    ...     "Nothing at all."
    ...     return lambda x: 0 * x
    >>> zero.name, zero.__doc__
    ('zero', 'Nothing at all.')
    """
    return lambda make: Defect(name, kind, cause, looks, make, showcase, seen)
