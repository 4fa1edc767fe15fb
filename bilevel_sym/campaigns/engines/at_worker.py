"""What a worker of Dask is asked: to compute batches of tasks, with the context of their plan, which it keeps.

Dask drops copies of what nobody waits for at the moment, and would send them again; so a worker that has been given the
context keeps it until the engine closes, and one that has not says so.

Equal keys mean equal results, so a worker that would compute something else, because it has other versions or another
module of the user, refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from bilevel_sym.campaigns.batch import run_batch
from bilevel_sym.campaigns.content import versions
from bilevel_sym.campaigns.context import Context
from bilevel_sym.campaigns.functions import content_of
from bilevel_sym.campaigns.kinds import Row
from bilevel_sym.campaigns.task import Task
from bilevel_sym.errors import InvalidArgument

__all__ = ["Missing", "Refused", "compute", "expected", "forget", "unpacked"]

PLANS = 2  # whose contexts a worker keeps
Contents = Mapping[str, str | None]


@dataclass(frozen=True)
class Refused:
    """Why a worker does not compute what it was given.

    - ``reason``: in one sentence.
    - ``hint``: what to try.
    """

    reason: str
    hint: str


@dataclass(frozen=True)
class Missing:
    """A worker has no context yet.

    - ``address``: where it is to be sent.
    """

    address: str


def expected(context: Context) -> Callable[[Sequence[Task]], dict[str, Contents]]:
    """A function of tasks: the versions and the functions of users that their keys speak of.

    >>> sorted(expected(Context(()))([]))
    ['functions', 'versions']
    """
    here = versions()

    def of(tasks: Sequence[Task]) -> dict[str, Contents]:
        texts = {text for task in tasks for text in _functions(task)}
        return {"versions": here, "functions": {text: _content(context, text) for text in sorted(texts)}}

    return of


def unpacked(packed: bytes) -> Any:
    """What was packed."""
    from distributed.protocol.serialize import deserialize_bytes

    return deserialize_bytes(packed)


def compute(
    name: str, context: Context | None, wanted: Mapping[str, Contents], packed: bytes
) -> list[Row] | Missing | Refused:
    """Rows of the first tasks of a batch; one batch at a time in a process, as the precision of numbers is set for all.

    - ``name``: that of the engine.
    - ``context``: that of the plan; None where the worker may have it.
    - ``wanted``: what the keys of the tasks speak of.
    - ``packed``: the tasks.
    """
    with _one_at_a_time():
        context = _context(name, context)
        if context is None:
            from distributed import get_worker

            return Missing(get_worker().address)
        return _refusal(context, wanted) or run_batch(context, unpacked(packed))


def forget(name: str) -> None:
    """The engine of this name has closed."""
    _contexts().pop(name, None)


def _context(name: str, given: Context | None) -> Context | None:
    kept = _contexts()
    found = kept.get(name, given)
    if found is not None:
        kept[name] = found
        while len(kept) > PLANS:
            del kept[next(iter(kept))]
    return found


@lru_cache(maxsize=1)
def _contexts() -> dict[str, Context]:
    return {}


@lru_cache(maxsize=1)
def _one_at_a_time() -> Lock:
    return Lock()


def _refusal(context: Context, wanted: Mapping[str, Contents]) -> Refused | None:
    here = context.remember("versions", versions)
    for name, version in wanted["versions"].items():
        if here.get(name) != version:
            return Refused(
                f"a worker has {name} {here.get(name) or '(none)'}, and this process {version or '(none)'}",
                "the same versions everywhere: the last bits of results depend on them",
            )
    for text, content in wanted["functions"].items():
        try:
            found = _content(context, text)
        except InvalidArgument as error:
            return Refused(f"a worker cannot import {text[:80]}: {error.message}", "install its module there")
        if found != content:
            return Refused(f"a worker has another {text[:80]} than this process", "the same module everywhere")
    return None


def _content(context: Context, text: str) -> str:
    found: str = context.remember(("content", text), lambda: content_of(text, context.folders))
    return found


def _functions(task: Task) -> list[str]:
    given = dict(task.cell.parameters).get("function")
    return [text for text in (task.cell.kind, given) if isinstance(text, str) and ":" in text]
