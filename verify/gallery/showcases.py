"""Small problems on which defects show; each with a box, so that points can be chosen."""

from __future__ import annotations

from functools import lru_cache

from bilevel_sym import BilevelProblem

__all__ = ["coupled", "isotropic", "saddle"]

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
