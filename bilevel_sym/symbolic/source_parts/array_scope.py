"""What a function of an array module is written with: arguments, data, sizes read off the arrays, formulas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count

from bilevel_sym.arrays.notation.nodes import Name, Node
from bilevel_sym.arrays.notation.python import Python, children
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.implicit.array_model import ArrayModel
from bilevel_sym.symbolic.source_parts.array_nodes import Lines, node_of
from bilevel_sym.symbolic.source_parts.printer import identifiers

__all__ = ["ModuleScope", "tuples"]

LOCAL = ("L_xx", "L_xy", "L_yy", "f_xx", "f_xy", "f_yy")  # what functions of a module call what they compute


class ModuleScope:
    """The arrays of one module and how they are called.

    - ``model``: f and g.
    - ``language``: of the module.
    - ``dimensions``: sizes that are known.
    - ``kept``: further arrays, for solves that are kept by name.

    ``definitions`` grows as functions are written: what they need besides.

    >>> x, y = Leaf("x", ("n",), "x"), Leaf("lambda", ("n",), "y")
    >>> scope = ModuleScope(ArrayModel(Tensor(()), Tensor(()), [x], [y]), "numpy", {}, ())
    >>> print(scope.function("g_y", (x, y), [Tensor.leaf(y)]))
    def g_y(x, lambda_):
        return lambda_
    """

    def __init__(
        self, model: ArrayModel, language: str, dimensions: Mapping[str, int | None], kept: Sequence[Leaf]
    ) -> None:
        self.x, self.y, self.language = model.x, model.y, language
        self._dimensions, self._kept = dimensions, kept
        held = (model.f.leaves | model.g.leaves) - {*model.x, *model.y}
        self.data = tuple(sorted(held, key=lambda leaf: leaf.name))
        self.definitions: dict[str, str] = {}

    # ---- names --------------------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The identifiers of arrays; v and dy_dx are parameters where they occur, and hide the functions so called."""
        kept = dict(identifiers([(leaf.name, "v") for leaf in self._kept]))
        kept |= {leaf.name: leaf.name for leaf in self._kept if leaf.name in ("v", "dy_dx")}
        own = [(leaf.name, leaf.role) for leaf in (*self.x, *self.y, *self.data)]
        return {**identifiers(own, kept.values()), **kept}

    @cached_property
    def letters(self) -> Mapping[str, str]:
        """The identifiers of dimensions."""
        dims = dict.fromkeys(dim for leaf in (*self.data, *self.x, *self.y) for dim in leaf.dims)
        return identifiers([(dim, "size") for dim in dims], [*self.names.values(), *LOCAL])

    def fresh(self, name: str) -> str:
        """A name that no array has."""
        taken = {*self.names, *self.names.values()}
        return next(text for text in (name + "_" * k for k in count()) if text not in taken)

    def name(self, leaf: Leaf) -> str:
        """The identifier of an array."""
        return self.names.get(leaf.name, leaf.name)

    def listed(self, leaves: Iterable[Leaf]) -> str:
        """Arrays as arguments."""
        return ", ".join(map(self.name, leaves))

    def arguments(self, *groups: str | Iterable[Leaf]) -> str:
        """Arguments: texts and arrays, then the data."""
        texts = [group if isinstance(group, str) else self.listed(group) for group in groups]
        return ", ".join([*texts, *(["data"] if self.data else [])])

    @property
    def xy(self) -> str:
        """The arguments of f and g."""
        return self.arguments(self.x, self.y)

    def shape(self, leaf: Leaf) -> str:
        """The shape of an array, as people write it."""
        sizes = [self.letters[dim] for dim in leaf.dims]
        return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"

    def entries(self, leaf: Leaf) -> str:
        """How many entries an array has."""
        return " * ".join(self.letters[dim] for dim in leaf.dims) or "1"

    # ---- functions ------------------------------------------------------------------------------------------------

    def printer(self, known: Mapping[Node, str] | None = None) -> Python:
        """A printer that calls everything as the module does."""
        return Python(self.language, self.names, self.letters, known)

    def formulas(
        self, arguments: Sequence[Leaf], outputs: Sequence[Tensor], steps: Sequence[tuple[Leaf, Tensor]] = ()
    ) -> tuple[list[str], list[str]]:
        """The lines of a body before its result, and a text for each output.

        arguments: the arrays that are at hand besides the data
        outputs: what is wanted
        steps: what is computed before, by name
        """
        lines = Lines(self.printer, (f"t{k}" for k in count(1)))
        nodes = [node_of(value) for value in (*(value for _, value in steps), *outputs)]
        lines.share(nodes)
        for (leaf, _), node in zip(steps, nodes, strict=False):
            lines.assign(self.name(leaf), node)
        last = nodes[len(steps) :]
        texts = [self._as_array(text, node) for text, node in zip(lines.texts(last), last, strict=True)]
        self.definitions |= lines.printer.definitions
        used = {name for node in nodes for name in _names_in(node)}
        return [*self.at_hand(used, lines.printer.sizes, arguments), *lines.written], texts

    def function(
        self,
        name: str,
        arguments: Sequence[Leaf],
        outputs: Sequence[Tensor],
        *,
        steps: Sequence[tuple[Leaf, Tensor]] = (),
        rows: int = 1,
        doc: str = "",
    ) -> str:
        """A function that returns tensors: one, a tuple, or a tuple of ``rows`` tuples.

        name: of the function
        arguments: the arrays that it takes, before the data
        outputs: what it returns
        steps: what is computed before, by name
        rows: how many tuples the outputs are put into
        doc: its docstring
        """
        lines, texts = self.formulas(arguments, outputs, steps)
        return self.written(name, self.arguments(arguments), [*lines, f"return {tuples(texts, rows)}"], doc)

    @staticmethod
    def written(name: str, arguments: str, body: Sequence[str], doc: str = "") -> str:
        """A function from its lines."""
        return "\n    ".join([f"def {name}({arguments}):", *([f'"""{doc}"""'] if doc else []), *body])

    def _as_array(self, text: str, node: Node) -> str:
        """PyTorch returns tensors, of numbers too."""
        return f"tensor({text})" if self.language == "torch" and not node.rank and not _names_in(node) else text

    # ---- data and sizes ---------------------------------------------------------------------------------------------

    def at_hand(self, used: Iterable[str], sizes: Iterable[str], arguments: Sequence[Leaf]) -> list[str]:
        """Lines that unpack the data in ``used``, and give the sizes; those first that arrays at hand have."""
        wanted, names = set(sizes), set(used)
        places = self._places(wanted, [leaf for leaf in self.data if leaf.name in names], arguments)
        held = [self.name(leaf) for leaf in self.data if leaf.name in names or leaf in places]
        lines = [f"{', '.join(held)} = {', '.join(f'data.{name}' for name in held)}"] if held else []
        lines += [self._size_line(leaf, own) for leaf, own in places.items()]
        rest = wanted.difference(*places.values())
        return [*lines, *(f"{self.letters[dim]} = {self._dimensions[dim]}" for dim in sorted(rest))]

    def _places(self, sizes: set[str], unpacked: Sequence[Leaf], arguments: Sequence[Leaf]) -> dict[Leaf, set[str]]:
        """Which sizes are read off which array."""
        left, found = set(sizes), dict[Leaf, set[str]]()
        for leaf in (*sorted(unpacked, key=lambda leaf: -len(leaf.dims)), *arguments, *self.data):
            if own := left & set(leaf.dims):
                found[leaf] = own
                left -= own
        for dim in sorted(left):
            if self._dimensions.get(dim) is None:
                raise InvalidProblem(
                    f"the size of the dimension {dim} is not known, and neither x nor the data have it",
                    hint="give a number for it, or data whose shape has it",
                )
        return found

    def _size_line(self, leaf: Leaf, wanted: set[str]) -> str:
        name, axes = self.name(leaf), {dim: leaf.dims.index(dim) for dim in leaf.dims if dim in wanted}
        if len(leaf.dims) == 1:
            return f"{self.letters[leaf.dims[0]]} = len({name})"
        if len(axes) == len(leaf.dims):
            return f"{', '.join(self.letters[dim] for dim in leaf.dims)} = {name}.shape"
        return "; ".join(f"{self.letters[dim]} = {name}.shape[{axis}]" for dim, axis in axes.items())


def _names_in(node: Node) -> set[str]:
    return {node.name} if isinstance(node, Name) else set().union(*map(_names_in, children(node)))


def tuples(texts: Sequence[str], rows: int = 1) -> str:
    """One text, a tuple of them, or a tuple of so many tuples.

    >>> tuples(["a"]), tuples(["a", "b"]), tuples(["a", "b", "c", "d"], 2)
    ('a', 'a, b', '(a, b), (c, d)')
    """
    if rows == 1 or len(texts) == 1:
        return ", ".join(texts)
    size = len(texts) // rows
    groups = (texts[k : k + size] for k in range(0, len(texts), size))
    return ", ".join(f"({', '.join(group)}{',' * (size == 1)})" for group in groups)
