"""The theorems' parameters: from constants, eps and delta to a configured solver, one frozen class a theorem.

>>> from bilevel_sym import Constants, schedules
>>> c = Constants(mu=1, ell=1, rho=1, nu=1, M=1)
>>> schedules.perturbed_aid(c, eps=0.1, delta=0.1, d=2, gap=1e-9).eta
0.125
>>> schedules.ineon(c, schedules.Goal(eps=0.1, delta=0.1, d=2, gap=1e-9, episodes=1)).eta
0.125
"""

from bilevel_sym.theories.huang_saddle.schedules.aid import (
    PerturbedAIDSchedule,
    PerturbedGDmaxSchedule,
    perturbed_aid,
    perturbed_gdmax,
)
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal
from bilevel_sym.theories.huang_saddle.schedules.neon import INeonSchedule, ineon
from bilevel_sym.theories.huang_saddle.schedules.schedule import Schedule, ScheduleWarning
from bilevel_sym.theories.huang_saddle.schedules.stochastic import StocBiOSchedule, stocbio

__all__ = [
    "Goal",
    "INeonSchedule",
    "PerturbedAIDSchedule",
    "PerturbedGDmaxSchedule",
    "Schedule",
    "ScheduleWarning",
    "StocBiOSchedule",
    "ineon",
    "perturbed_aid",
    "perturbed_gdmax",
    "stocbio",
]
