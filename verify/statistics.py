"""What "with probability at least 1 - delta" needs: exact binomial bounds, a sequential test, many claims at once.

A confidence is the decimal number as written: 0.99 means 99/100. Bounds are rounded outward and each end is proved in
ball arithmetic, so that their coverage is never below the confidence.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from flint import arb, fmpq

from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.errors import InvalidArgument
from verify.verdict import Bracket, CheckResult, Verdict

__all__ = ["SequentialTest", "clopper_pearson", "corrected", "holm", "judged_probability", "p_value", "runs_needed"]

Outcome = Literal["supported", "refuted", "undecided"]
Side = Literal["two", "lower", "upper"]
TAIL_BITS = 128
MAX_WIDENINGS = 64  # doublings of the last place before a bound is given up: far more than any error of scipy's
MAX_RUNS = 10**15  # more than can be made


def clopper_pearson(successes: int, runs: int, confidence: float = 0.99, side: Side = "two") -> Bracket:
    """The exact confidence bounds on a probability, from how often something came up in independent runs.

    lower solves P(X >= successes) = alpha and upper P(X <= successes) = alpha for X ~ Bin(runs, p), where alpha is 1 -
    confidence, halved for both sides.

    - ``successes``: how often it came up.
    - ``runs``: of how many.
    - ``confidence``: of the bounds.
    - ``side``: "two"; or "lower" or "upper", where the other end is 0 or 1.

    >>> print(clopper_pearson(0, 2000, 0.99, "upper"))
    [0, 0.00229994]
    >>> print(clopper_pearson(3, 10, 0.95))
    [0.0667395, 0.652453]
    """
    _check_counts(successes, runs)
    if side not in ("two", "lower", "upper"):
        raise InvalidArgument(f"side={side!r:.40}", hint="'two', 'lower' or 'upper'")
    alpha = _alpha(confidence) / (2 if side == "two" else 1)
    lower = 0.0 if side == "upper" or successes == 0 else _lower_end(successes, runs, alpha)
    # a success the other way round is a failure: one formula serves both ends
    upper = 1.0 if side == "lower" or successes == runs else _upper_end(successes, runs, alpha)
    return Bracket(lower, upper)


def p_value(failures: int, runs: int, delta: float) -> float:
    """P(X <= failures) for X ~ Bin(runs, delta), from above: how far the runs speak against "it fails more often".

    Small means that the failure probability is at most delta; this is what ``holm`` takes.

    >>> p_value(0, 44, 0.1) < 0.01 < p_value(0, 43, 0.1)
    True
    """
    _check_counts(failures, runs)
    _check_delta(delta)
    if failures == runs:
        return 1.0
    with precision(TAIL_BITS):
        tail = _at_most(failures, runs, arb(_fmpq(_decimal(delta))))
        return min(1.0, math.nextafter(float(tail.upper()), math.inf))


def runs_needed(delta: float, confidence: float = 0.99) -> int:
    """How many runs without a failure show that the failure probability is at most delta: (1 - delta)^n <= alpha.

    >>> [runs_needed(delta) for delta in (0.1, 0.01, 0.001)]
    [44, 459, 4603]
    """
    _check_delta(delta)
    alpha, kept = _alpha(confidence), 1 - _decimal(delta)
    with precision(TAIL_BITS):
        bound, base = arb(_fmpq(alpha)), arb(_fmpq(kept))
        quotient = math.nextafter(float((bound.log() / base.log()).lower()), -math.inf)
        if not quotient <= MAX_RUNS:  # nan too: 1 - delta is not told apart from 1
            raise InvalidArgument(f"delta = {delta} needs more than {MAX_RUNS:.0e} runs", hint="a larger delta")
        least = max(1, math.ceil(quotient))
        # balls do not see a tie, which only short powers can have
        while not (kept**least <= alpha if least < 100 else bool(base**least <= bound)):
            least += 1
    return least


@dataclass(frozen=True)
class SequentialTest:
    """Is a failure probability at most delta? To be asked after each run, and stopped whenever one likes.

    The e-value is the likelihood of the runs under a Beta(1/2, (1/delta - 1)/2) mixture over that under delta. Under
    p = delta it is a martingale that starts at 1, so by Ville's inequality it ever reaches 1/alpha with probability at
    most alpha; the set of p that it does not exclude in this way is an interval, a confidence sequence for p.

    ``outcome`` is "supported" once that interval lies below delta, "refuted" once it lies above, and then stays so.
    Whatever the true p is, a wrong outcome ever comes with probability at most 1 - confidence, at any stopping time. If
    p is delta itself, the test stays undecided with probability at least the confidence, however long it runs.

    >>> test = SequentialTest(0.1)
    >>> test.update([False] * 60).outcome, test.update([True] * 5).outcome, test.update([False]).outcome
    ('supported', 'refuted', 'undecided')
    """

    delta: float
    confidence: float = 0.99
    runs: int = 0
    failures: int = 0
    decided_at: int | None = None
    decision: Outcome = "undecided"

    def __post_init__(self) -> None:
        _check_counts(self.failures, self.runs)
        _check_delta(self.delta)
        _alpha(self.confidence)

    def update(self, outcomes: Iterable[bool]) -> SequentialTest:
        """The test after more runs, True for each that failed."""
        runs, failures, decided_at, decision = self.runs, self.failures, self.decided_at, self.decision
        needed = -math.log(float(_alpha(self.confidence)))
        for failed in outcomes:
            runs, failures = runs + 1, failures + bool(failed)
            if decided_at is None and _log_e_value(failures, runs, self.delta) - _slack(runs) >= needed:
                decided_at, decision = runs, "supported" if failures < self.delta * runs else "refuted"
        return dataclasses.replace(self, runs=runs, failures=failures, decided_at=decided_at, decision=decision)

    @property
    def outcome(self) -> Outcome:
        """ "supported", "refuted" or "undecided".

        >>> SequentialTest(0.5).outcome
        'undecided'
        """
        return self.decision

    @property
    def e_value(self) -> float:
        """The evidence of all the runs so far against p = delta, in either direction; 1 is none.

        >>> SequentialTest(0.5).e_value
        1.0
        """
        return math.exp(min(_log_e_value(self.failures, self.runs, self.delta), 700.0))

    @property
    def interval(self) -> Bracket:
        """The confidence sequence now: what p may be, at this confidence, whenever one stops.

        >>> interval = SequentialTest(0.1).update([False] * 60).interval
        >>> interval.lower, interval.upper < 0.1
        (0.0, True)
        """
        needed = -math.log(float(_alpha(self.confidence))) + _slack(self.runs)

        def excluded(p: float) -> bool:
            return _log_e_value(self.failures, self.runs, self.delta, p) >= needed

        middle = self.failures / self.runs if self.runs else 0.5
        return Bracket(_edge(0.0, middle, excluded), _edge(1.0, middle, excluded))

    def __str__(self) -> str:
        return f"{self.outcome}: {self.failures} failures in {self.runs} runs against delta = {self.delta:g}"


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """p-values corrected for their number by Holm's step-down rule, in the order given.

    Rejecting those of at most alpha makes any wrong rejection at all have probability at most alpha, whatever the
    dependence between the claims.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    for p in p_values:
        if not 0 <= p <= 1:
            raise InvalidArgument(f"a p-value lies between 0 and 1, but {p!r:.40} was given")
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running = [0.0] * len(order), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = running
    return tuple(adjusted)


def corrected(confidence: float, claims: int) -> float:
    """The confidence that each of ``claims`` results needs, so that all of them are right with ``confidence``.

    >>> corrected(0.99, 10)
    0.999
    """
    if isinstance(claims, bool) or claims < 1:
        raise InvalidArgument(f"claims={claims!r:.40}", hint="how many there are, at least 1")
    # rounded up to a float whose shortest decimal is what counts
    exact = 1 - _alpha(confidence) / claims
    found = float(exact)
    return found if _decimal(found) >= exact else math.nextafter(found, 1.0)


def judged_probability(
    label: str,
    failures: int,
    runs: int,
    delta: float,
    confidence: float = 0.99,
    *,
    message: str,
    seed: int | None = None,
    part: str = "",
    undecided: int = 0,
) -> CheckResult:
    """The verdict on "it fails with probability at most delta", from independent runs.

    HOLDS where the upper Clopper-Pearson bound of the failure probability is at most delta, VIOLATED where the lower
    one is above it. Only one of the two can be wrong, so the one-sided bounds keep the confidence. Where neither is so,
    the message says how many runs would decide at the same rate of failures.

    - ``failures``: how many runs failed.
    - ``runs``: of how many.
    - ``delta``: the probability that is stated.
    - ``undecided``: runs that count as failures where it is to hold, and as none where it is to be violated.
    - ``label``, ``confidence``, ``message``, ``seed``, ``part``: as for ``CheckResult``.

    >>> [str(judged_probability("lem:err-grad", k, 44, 0.1, message="").verdict) for k in (0, 2, 44)]
    ['HOLDS', 'INCONCLUSIVE', 'VIOLATED']
    >>> judged_probability("lem:err-grad", 0, 40, 0.1, message="too few").message
    '0 failures in 40 runs; 44 runs would decide; too few'
    >>> [str(judged_probability("thm:aid", k, 44, 0.1, message="", undecided=44 - k).verdict) for k in (0, 20)]
    ['INCONCLUSIVE', 'VIOLATED']
    """
    if not 0 <= delta <= 1:
        raise InvalidArgument(f"delta={delta!r:.40}", hint="a probability")
    upper = clopper_pearson(failures + undecided, runs, confidence, "upper").upper if runs else 1.0
    lower = clopper_pearson(failures, runs, confidence, "lower").lower if runs else 0.0
    counted = f"{failures} failures in {runs} runs" + (f", of which {undecided} decide nothing" if undecided else "")
    verdict = Verdict.VIOLATED if lower > delta else Verdict.HOLDS if upper <= delta < 1 else Verdict.INCONCLUSIVE
    if verdict is Verdict.INCONCLUSIVE and not undecided:
        counted = f"{counted}; {_still_needed(failures, runs, delta, confidence)}"
    return CheckResult(
        label=label,
        verdict=verdict,
        message="; ".join(filter(None, (counted, message))),
        measured=lower if verdict is Verdict.VIOLATED else upper,
        bound=delta,
        evidence="statistical",
        n_points=runs,
        seed=seed,
        part=part,
        confidence=confidence,
    )


def _still_needed(failures: int, runs: int, delta: float, confidence: float) -> str:
    if delta >= 1:
        return "a probability is never above 1, so nothing was tested"
    if delta == 0 or (runs and failures == _decimal(delta) * runs):
        return "no number of runs at this rate would decide"
    if failures == 0:
        return f"{runs_needed(delta, confidence)} runs would decide"
    wanted = runs
    while wanted < MAX_RUNS:  # doubling is near enough for advice
        wanted *= 2
        count = round(failures * (wanted / runs))
        if (
            clopper_pearson(count, wanted, confidence, "upper").upper <= delta
            or clopper_pearson(count, wanted, confidence, "lower").lower > delta
        ):
            return f"about {wanted} runs would decide at this rate"
    return "no number of runs at this rate would decide"


def _lower_end(successes: int, runs: int, alpha: Fraction) -> float:
    """A p below the exact end, proved: at it, so many successes or more have probability at most alpha."""
    from scipy.special import betaincinv

    guess = float(betaincinv(successes, runs - successes + 1, float(alpha)))
    return _proved(guess, -1, lambda p: 1 - _at_most(successes - 1, runs, p), alpha)


def _upper_end(successes: int, runs: int, alpha: Fraction) -> float:
    from scipy.special import betainccinv  # the complement, which keeps its digits where the end is tiny

    guess = float(betainccinv(successes + 1, runs - successes, float(alpha)))
    return _proved(guess, 1, lambda p: _at_most(successes, runs, p), alpha)


def _proved(guess: float, sign: int, tail: Callable[[arb], arb], alpha: Fraction) -> float:
    """The guess moved outward until its tail probability is proved to be at most alpha."""
    limit = 1.0 if sign > 0 else 0.0
    with precision(TAIL_BITS):
        bound = arb(_fmpq(alpha))
        for doubling in range(MAX_WIDENINGS):
            step = math.ldexp(max(guess, 2.0**-1000), doubling - 53)
            p = min(max(guess + sign * step, 0.0), 1.0)
            if p == limit or bool(tail(arb(p)) <= bound):
                return p
    return limit


def _at_most(count: int, runs: int, p: arb) -> arb:
    """P(X <= count) for X ~ Bin(runs, p), 0 <= count < runs."""
    if count < 0:
        return arb(0)
    return (1 - p) ** runs if count == 0 else arb((1 - p).beta_lower(runs - count, count + 1, regularized=True))


def _log_e_value(failures: int, runs: int, delta: float, p: float | None = None) -> float:
    """log of the mixture's likelihood over that of p (delta where none is given)."""
    p = delta if p is None else p
    a, b = 0.5, (1 / delta - 1) / 2
    kept = runs - failures
    if (p <= 0 and failures) or (p >= 1 and kept):
        return math.inf
    mixture = _log_beta(a + failures, b + kept) - _log_beta(a, b)
    return mixture - (failures * math.log(p) if failures else 0.0) - (kept * math.log1p(-p) if kept else 0.0)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _slack(runs: int) -> float:
    """More than rounding can add to the logarithm of an e-value."""
    return 1e-12 * (runs + 10)


def _edge(outside: float, inside: float, excluded: Callable[[float], bool]) -> float:
    """Where "excluded" ends between a point outside and one inside, rounded to the outside."""
    if not excluded(outside):
        return outside
    for _ in range(1100):
        middle = (outside + inside) / 2
        if middle in (outside, inside):
            break
        outside, inside = (middle, inside) if excluded(middle) else (outside, middle)
    return outside


def _decimal(value: float) -> Fraction:
    return Fraction(repr(float(value)))


def _alpha(confidence: float) -> Fraction:
    if isinstance(confidence, bool) or not 0 < confidence < 1:
        raise InvalidArgument(f"confidence={confidence!r:.40}", hint="between 0 and 1, such as 0.99")
    return 1 - _decimal(confidence)


def _check_counts(successes: int, runs: int) -> None:
    if isinstance(runs, bool) or runs != int(runs) or successes != int(successes) or not 0 <= successes <= runs:
        raise InvalidArgument(f"{successes!r:.40} of {runs!r:.40} runs", hint="whole numbers, 0 <= successes <= runs")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InvalidArgument(f"delta={delta!r:.40}", hint="a probability strictly between 0 and 1")


def _fmpq(value: Fraction) -> fmpq:
    return fmpq(value.numerator, value.denominator)
