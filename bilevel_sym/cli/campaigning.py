"""``bilevel-sym campaign``: run a plan of many tasks, see how far it is, and read its table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from bilevel_sym.cli.command import Command, add_format, whole
from bilevel_sym.cli.screen import INTERRUPTED, Screen, tell_interrupted
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.plain_text import named

if TYPE_CHECKING:
    from bilevel_sym.campaigns import Campaign

__all__ = ["CAMPAIGN"]

FORMATS = ("csv", "parquet", "markdown")
RUN = "run PLAN --out FOLDER [--scheduler ADDRESS] [--workers N] [--dry-run]"
NOTES = """\
PLAN is a TOML file:
  [campaign]
  task = "solve"                    # or verify, check, constants, smoothness,
                                    # stationary_points, module:function
  problems = ["zoo:saddle"]         # also files beside it, and generated:100
  algorithms = ["perturbed-aid", "descent"]
  seeds = 40                        # 0 to 39
  eta = [0.01, 0.1]                 # any further key; a list is a grid
FOLDER keeps the rows. A run that was ended, by anything, goes on where it was
when the same command is given again; a changed plan computes what is new.
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, summary, example, add, run in (
        ("run", "compute what FOLDER does not hold yet", "plan.toml --out results", _run_arguments, _run),
        ("status", "how far the campaign in FOLDER is; it may be running", "results", _status_arguments, _status),
        ("table", "all rows that FOLDER holds, in the order of the plan", "results", _table_arguments, _table),
    ):
        added = actions.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False
        )
        added.example = f"bilevel-sym campaign {name} {example}"  # type: ignore[attr-defined]
        add(added)
        added.set_defaults(parser=added, action=run)


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("plan", metavar="PLAN", help="a TOML file with a table [campaign]")
    add("--out", metavar="FOLDER", required=True, help="where the rows are kept; is made if there is none")
    add("--scheduler", metavar="ADDRESS", help="of a Dask scheduler, such as tcp://10.0.0.1:8786")
    add("--workers", metavar="N", type=whole(0, 1000), help="processes here (default: one a core; 0: none but this)")
    add("--dry-run", action="store_true", help="compute a few tasks only; tell how many there are, and about how long")


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="of a campaign")


def _table_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="of a campaign")
    parser.add_argument("--where", metavar="EXPR", help="""such as 'status == "ok" and eta < 0.15'""")
    add_format(parser, FORMATS, "csv (default), parquet (into a file or a pipe), or markdown")


def _campaign(options: argparse.Namespace, screen: Screen) -> int:
    code: int = options.action(options, screen)
    return code


def _run(options: argparse.Namespace, screen: Screen) -> int:
    from bilevel_sym.campaigns import Campaign

    if options.scheduler is not None and options.workers is not None:
        raise InvalidArgument("--workers is for this machine, --scheduler for others", hint="one of the two")
    plan = Campaign.load(options.plan)
    _ = plan.sources  # a problem that is not there is told before a folder is made
    if options.dry_run:
        _show_forecast(plan, options, screen)
        return 0
    try:
        status = plan.run(
            options.out, scheduler=options.scheduler, progress=screen.progress, workers=options.workers
        )  # fmt: skip
    except KeyboardInterrupt:
        kept = str(Campaign.status(options.out)).splitlines()[0]
        tell_interrupted(f"{kept}\ntry: the same command again, which goes on from there")
        return INTERRUPTED
    screen.show(str(status))
    folder = named(options.out)
    if status.failed:
        screen.show(f"what failed: bilevel-sym campaign table {folder} --where 'status == \"failed\"'")
    screen.show(f"all rows: bilevel-sym campaign table {folder}")
    return 0


def _show_forecast(plan: Campaign, options: argparse.Namespace, screen: Screen) -> None:
    with screen.meter("trying a few tasks"):
        found = plan.foresee(options.out, workers=options.workers)
    screen.show(f"{found.total} tasks, of which {named(options.out)} holds {found.total - found.new}")
    if found.seconds is not None:
        where = "one core" if found.workers == 1 else f"{found.workers} cores of this machine"
        screen.show(f"about {_duration(found.seconds)} on {where}, by {found.tried} tasks that were tried")


def _duration(seconds: float) -> str:
    """A duration to two digits.

    >>> _duration(0.034), _duration(200), _duration(90_000)
    ('0.034 s', '3.3 minutes', '25 hours')
    """
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}" if seconds < 100 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds:.0f} s"


def _status(options: argparse.Namespace, screen: Screen) -> int:
    from bilevel_sym.campaigns import Campaign

    screen.show(str(Campaign.status(options.folder)))
    return 0


def _table(options: argparse.Namespace, screen: Screen) -> int:
    from bilevel_sym.campaigns import Campaign
    from bilevel_sym.campaigns.results.texts import csv_of, markdown_of, parquet_of

    if options.format == "parquet":
        screen.check_bytes("bilevel-sym campaign table FOLDER --format parquet > table.parquet")
    table = Campaign.table(options.folder, where=options.where)
    if options.format == "parquet":
        screen.show_bytes(parquet_of(table))
        return 0
    lines = markdown_of(table) if options.format == "markdown" else (line.rstrip("\r\n") for line in csv_of(table))
    screen.show_all(lines, plain=True)
    return 0


CAMPAIGN = Command(
    name="campaign",
    summary="many problems, algorithms, parameters and seeds, on all cores or a cluster, with nothing lost",
    examples=(
        ("bilevel-sym campaign run plan.toml --out results", "every task that results does not hold yet"),
        ("bilevel-sym campaign run plan.toml --out results --dry-run", "how many tasks, and about how long"),
        ("bilevel-sym campaign run plan.toml --out results --scheduler tcp://10.0.0.1:8786", "on a Dask cluster"),
        ("bilevel-sym campaign status results", "how many are done, and how many failed"),
        ("bilevel-sym campaign table results --where 'status == \"failed\"' --format markdown", "what failed, and why"),
        ("bilevel-sym campaign table results --format parquet > all.parquet", "one file for pandas, polars, DuckDB"),
    ),
    add_arguments=_arguments,
    run=_campaign,
    codes=("0  done: every row is written, whatever it says",),
    notes=NOTES,
)
