"""``bilevel-sym errata``: the paper's errors, each checked while it is shown."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bilevel_sym.cli.command import Command, add_format
from bilevel_sym.cli.interrupts import INTERRUPTED
from bilevel_sym.cli.records import erratum_record
from bilevel_sym.cli.screen import Screen, tell_interrupted

if TYPE_CHECKING:
    from verify.erratum import Erratum

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    meaning = "text (default), markdown (the page .github/ERRATA.md) or json (bilevel-sym/errata/1)"
    add_format(parser, ("text", "markdown", "json"), meaning)


def _run(options: argparse.Namespace, screen: Screen) -> int:
    with screen.meter("checking the errata") as meter:
        from bilevel_sym.system.verifier import verifier

        theory = verifier("theory").theory_of()
        if options.format == "json":
            return _as_json(screen, theory.errata)
        stand: list[bool] = []
        total = len(theory.errata)

        def seen(result: Any) -> None:
            stand.append(result.verdict == "HOLDS")
            meter.at(len(stand), f", {len(stand)} of {total}")

        plain = options.format == "markdown"
        screen.show_all(theory.errata_page(options.format, width=min(100, screen.width), seen=seen), plain=plain)
    return 0 if all(stand) else 1


def _as_json(screen: Screen, errata: Iterable[Erratum]) -> int:
    entries: list[dict[str, Any]] = []
    interrupted = False
    try:
        entries.extend(map(erratum_record, errata))
    except KeyboardInterrupt:
        interrupted = True
    record = {
        "schema": "bilevel-sym/errata/1",
        "ok": all(entry["verdict"] == "HOLDS" for entry in entries),
        "interrupted": interrupted,
        "errata": entries,
    }
    screen.show_json(record)
    if interrupted:
        tell_interrupted(f"{len(entries)} errata were checked")
        return INTERRUPTED
    return 0 if record["ok"] else 1


COMMAND = Command(
    name="errata",
    summary="the paper's errors: as printed, corrected, and a witness that is computed anew",
    examples=(
        ("bilevel-sym errata", "all of them, to read"),
        ("bilevel-sym errata --format markdown > ERRATA.md", "as a page, with what was found right"),
        ("bilevel-sym errata --format json", "for programs"),
    ),
    add_arguments=_add_arguments,
    run=_run,
    codes=("0  every erratum stands: its witness refutes the print, and not the correction", "1  one does not"),
)
