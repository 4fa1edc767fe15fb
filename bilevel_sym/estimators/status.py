"""How a trajectory ended. Running out of steps is a status, not an exception, and so is every failure on the way."""

from __future__ import annotations

import enum

__all__ = ["Status"]


class Status(enum.IntEnum):
    """How a trajectory ended; ``message`` says it to people.

    >>> Status.OUT_OF_STEPS.message
    'ran out of steps'
    >>> Status.LOCAL_MINIMUM.ok, Status.NOT_FINITE.ok
    (True, False)
    """

    RUNNING = 0
    NOT_FINITE = 1
    BREAKDOWN = 2
    LOWER_LEVEL_FAILURE = 3
    DIVERGED = 4
    OUT_OF_STEPS = 5
    LOCAL_MINIMUM = 6
    STOPPED = 7
    INTERRUPTED = 8
    NO_CURVATURE = 9
    KINK = 10
    INACCURATE = 11

    @property
    def message(self) -> str:
        """What happened, and where it helps, what to try."""
        return _MESSAGES[self]

    @property
    def ok(self) -> bool:
        """Whether the trajectory ended as it was meant to, not by a failure."""
        return self >= Status.OUT_OF_STEPS and self not in (Status.KINK, Status.INACCURATE)

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


_MESSAGES = {
    Status.RUNNING: "is running",
    Status.NOT_FINITE: "met a value that is not a number: f or g is not defined there, or tau or eta is too large",
    Status.BREAKDOWN: "ended where conjugate gradients broke down: g_yy is not positive definite there",
    Status.LOWER_LEVEL_FAILURE: "ended where the lower level could not be solved",
    Status.DIVERGED: "diverged: x, y or the estimate grew beyond all bounds; try a smaller eta, or tau below 2/ell",
    Status.OUT_OF_STEPS: "ran out of steps",
    Status.LOCAL_MINIMUM: "reached an eps-local minimum (checked)",
    Status.NO_CURVATURE: "ended where iNEON found no negative curvature, but the exact check fails",
    Status.KINK: "ended on a kink or a jump of f or g, where Phi has no gradient: the estimate is of one side",
    Status.INACCURATE: "ran out of steps where the estimate is below eps, but grad Phi is not: try more inner steps",
    Status.STOPPED: "stopped by the caller's rule",
    Status.INTERRUPTED: "interrupted; what there was is kept",
}
