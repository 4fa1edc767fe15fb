"""A task as Python to paste: what failed in a campaign fails in the same way alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bilevel_sym.problem.problem import BilevelProblem

if TYPE_CHECKING:
    from bilevel_sym.campaigns.plan import Campaign
    from bilevel_sym.campaigns.task import Task

__all__ = ["code_of"]


def code_of(plan: Campaign, task: Task) -> str:
    """Python that computes one task of a plan, and raises what fails there.

    >>> from bilevel_sym.campaigns import Campaign
    >>> plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=["descent"], seeds=2, steps=10)
    >>> print(code_of(plan, next(plan.tasks())))
    from bilevel_sym import *
    from bilevel_sym.campaigns import Campaign
    Campaign(task='solve', problems=['zoo:scalar'], algorithms=['descent'], seeds=[0], steps=10).reproduce()
    """
    cell = task.cell
    problem, remark = _problem(plan, cell.problem)
    arguments = [f"task={plan.task!r}", *([f"problems=[{problem}]"] if problem else [])]
    if cell.algorithm is not None:
        arguments.append(f"algorithms=[{plan.algorithms[cell.algorithm]!r}]")
    if task.seed is not None:
        arguments.append(f"seeds=[{task.seed}]")
    arguments += [f"{name}={value!r}" for name, value in cell.parameters]
    imports = "from bilevel_sym import *\nfrom bilevel_sym.campaigns import Campaign\n"
    return f"{remark}{imports}Campaign({', '.join(arguments)}).reproduce()"


def _problem(plan: Campaign, number: int) -> tuple[str, str]:
    """What makes the problem, and a remark where no text does."""
    source = plan.sources[number]
    if source.given is None:
        return "", ""
    if isinstance(source.given, str):
        return repr(source.name), ""
    if not isinstance(source.given, BilevelProblem):
        return "problem", f"{source.given.code()}\n"
    printed = repr(source.given)
    if not printed.startswith("<"):
        return printed, ""
    path = plan.folder / source.name
    if path.is_file():
        return repr(str(path)), ""
    return "problem", f"# problem is your own object {source.name!r}: {printed}\n"
