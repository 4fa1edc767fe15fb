"""The parts of generated modules that are the same for every problem, in NumPy, JAX and PyTorch.

Names after a $ are put in: calls of functions of the module, with the arguments of the problem. No identifier of a user
has a $ in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bilevel_sym.arrays.notation.python_calls import CALLS
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.graph.operations.record import LANGUAGES

__all__ = [
    "ARRAY", "ARRAY_TYPE", "BLOCK", "END_TO_END", "NEWTON", "ONE_STEP", "SCALAR_NEWTON", "SOLVE", "TRACED",
    "check_language", "filled", "header", "joined",
]  # fmt: skip

_IMPORTS: Mapping[str, str] = MappingProxyType(
    {
        "numpy": "import numpy as np",
        "jax": 'import jax\nimport jax.numpy as jnp\n\njax.config.update("jax_enable_x64", True)',
        "torch": "import torch",
    }
)
_NEEDS: Mapping[str, str] = MappingProxyType(
    {
        "math.": "import math",
        "jax.scipy.linalg": "import jax.scipy.linalg",
        "jax.scipy.special": "import jax.scipy.special",
        "NamedTuple": "from typing import NamedTuple",
    }
)
ARRAY_TYPE: Mapping[str, str] = MappingProxyType({"numpy": "np.ndarray", "jax": "jax.Array", "torch": "torch.Tensor"})

SOLVE: Mapping[str, str] = MappingProxyType(
    {
        "numpy": '''def solve(matrix, right):
    """The inverse of the matrix along the last axes of the right side."""
    columns = np.reshape(right, (-1, len(matrix))).T
    return np.linalg.solve(matrix, columns).T.reshape(np.shape(right))''',
        "jax": '''def solve(matrix, right):
    """The inverse of a positive definite matrix along the last axes of the right side."""
    columns = jnp.reshape(right, (-1, len(matrix))).T
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), columns).T.reshape(jnp.shape(right))''',
        "torch": '''def solve(matrix, right):
    """The inverse of a positive definite matrix along the last axes of the right side."""
    columns = torch.reshape(right, (-1, len(matrix))).T
    return torch.cholesky_solve(columns, torch.linalg.cholesky(matrix)).T.reshape(right.shape)''',
    }
)

END_TO_END: Mapping[str, str] = MappingProxyType(
    {
        "numpy": '''def end_to_end(parts, lead=0):
    """Arrays laid end to end along one axis, behind so many leading ones."""
    return np.concatenate([np.reshape(part, np.shape(part)[:lead] + (-1,)) for part in parts], -1)''',
        "jax": '''def end_to_end(parts, lead=0):
    """Arrays laid end to end along one axis, behind so many leading ones."""
    return jnp.concatenate([jnp.reshape(part, jnp.shape(part)[:lead] + (-1,)) for part in parts], -1)''',
        "torch": '''def end_to_end(parts, lead=0):
    """Tensors laid end to end along one axis, behind so many leading ones."""
    return torch.cat([torch.reshape(part, tuple(part.shape[:lead]) + (-1,)) for part in map(tensor, parts)], -1)''',
    }
)

BLOCK: Mapping[str, str] = MappingProxyType(
    {"torch": "def block(rows):\n    return torch.cat([torch.cat(row, 1) for row in rows])"}
)

_IS_TRUE = '''def is_true(flag):
    """Whether a flag is set; under vmap it has no one value, and a loop goes on to its end."""
    try:
        return bool(flag)
    except RuntimeError:
        return False'''

NEWTON: Mapping[str, str] = MappingProxyType(
    {
        "numpy": '''def y_star($ARGUMENTS, start=None):
    """The minimiser of g over y, by Newton's method with backtracking, to round-off; start: where it begins."""
$SIZES    $Y = $ZERO if start is None else np.asarray(start)
    with np.errstate(all="ignore"):
        for _ in range(100):
            value, slope = $VALUE($Y), $SLOPE($Y)
            step = -$SOLVED(slope)
            if np.linalg.norm(step) <= 1e-8 * (1 + np.linalg.norm($Y)):
                $Y = $Y + step
                return $RESULT($Y - $SOLVED($SLOPE($Y)))
            length, descent, noise = 1.0, np.sum(slope * step), 1e-12 * abs(value)
            while length > 1e-12 and not $VALUE($Y + length * step) <= value + 1e-4 * length * descent + noise:
                length /= 2
            $Y = $Y + length * step
    raise ArithmeticError("no minimiser of g found at x; is it strongly convex in y?")''',
        "jax": '''def y_star($ARGUMENTS, start=None):
    """The minimiser of g over y, by Newton's method with backtracking, to round-off; nan where there is none."""
$SIZES
    def improved(state):
        $Y, _, count = state
        value, slope = $VALUE($Y), $SLOPE($Y)
        step = -$SOLVED(slope)
        descent, small = jnp.sum(slope * step), jnp.linalg.norm(step) <= 1e-8 * (1 + jnp.linalg.norm($Y))

        def too_long(length):
            lower = $VALUE($Y + length * step) <= value + 1e-4 * length * descent + 1e-12 * jnp.abs(value)
            return ~small & ~lower & (length > 1e-12)

        length = jax.lax.while_loop(too_long, lambda length: length / 2, jnp.ones(()))
        return $Y + jnp.where(length > 1e-12, length, 0) * step, small, count + 1

    def unfinished(state):
        _, small, count = state
        return ~small & (count < 100)

    start = $ZERO if start is None else start
    $Y, small, _ = jax.lax.while_loop(unfinished, improved, (start, jnp.array(False), 0))
    return $RESULT(jnp.where(small, $Y - $SOLVED($SLOPE($Y)), jnp.nan))''',
        "torch": _IS_TRUE + '''


def y_star($ARGUMENTS, start=None):
    """The minimiser of g over y, by Newton's method with backtracking, to round-off; nan where there is none."""
$SIZES    $Y = $ZERO if start is None else start
    value, length = $VALUE($Y), torch.ones((), dtype=torch.float64)
    for _ in range(60):
        slope = $SLOPE($Y)
        step = -$SOLVED(slope)
        small = torch.linalg.norm(step) <= 1e-8 * (1 + torch.linalg.norm($Y))
        lower = $VALUE($Y + length * step)
        noise = 1e-12 * torch.abs(value)  # what sums are rounded by decides nothing
        good = small | (lower <= value + 1e-4 * length * torch.sum(slope * step) + noise)
        $Y, value = torch.where(good, $Y + length * step, $Y), torch.where(good, lower, value)
        length = torch.where(good, 1.0, length / 2)
        if is_true(small):
            break
    return $RESULT(torch.where(small, $Y - $SOLVED($SLOPE($Y)), torch.nan))''',
    }
)  # fmt: skip


ONE_STEP = """def y_star($ARGUMENTS):
    \"\"\"g is quadratic in y: one step of Newton's method is exact.\"\"\"
$SIZES    $Y = $ZERO
    return $RESULT($Y - $SOLVED($SLOPE($Y)))"""

SCALAR_NEWTON = '''def y_star(x):
    """Newton's method with backtracking on the strongly convex g(x, .), to round-off; inside the box, if x is."""
    inside = np.all(($X_LOW <= np.asarray(x)) & (np.asarray(x) <= $X_HIGH))
    low, high = ($Y_LOW, $Y_HIGH) if inside else (-np.inf, np.inf)

    def allowed(y):
        return np.all((low <= y) & (y <= high)) and np.isfinite([g(x, y), *g_y(x, y), *g_yy(x, y).ravel()]).all()

    with np.errstate(all="ignore"):
        n = len($MIDDLE)
        starts = [$FIRSTnp.array($MIDDLE), np.zeros(n), np.ones(n), -np.ones(n)]
        y = next((start for start in starts if allowed(start)), None)
        for _ in range(200 if y is not None else 0):
            slope = g_y(x, y)
            step = -np.linalg.solve(g_yy(x, y), slope)
            if np.linalg.norm(step) <= 1e-8 * (1 + np.linalg.norm(y)):
                y = y + step
                return y - np.linalg.solve(g_yy(x, y), g_y(x, y))
            t, value = 1.0, g(x, y)
            most = value + 1e-12 * abs(value)  # what sums are rounded by decides nothing
            while t > 1e-12 and not (
                allowed(y + t * step) and g(x, y + t * step) <= most + 1e-4 * t * (slope @ step)
            ):
                t /= 2
            y = y + t * step
    raise ArithmeticError("no minimiser of g found at x; is it strongly convex in y, with its minimiser in the box?")'''

TRACED: Mapping[str, str] = MappingProxyType(
    {
        "jax": """    x = jnp.asarray(x, dtype=float)
    known = jnp.all((jnp.array($X_LOW) <= x) & (x <= jnp.array($X_HIGH)))
    low, high = (jnp.where(known, jnp.array(end), every) for end, every in (($Y_LOW, -jnp.inf), ($Y_HIGH, jnp.inf)))

    def inside(y):
        finite = jnp.isfinite(g(x, y)) & jnp.all(jnp.isfinite(g_y(x, y))) & jnp.all(jnp.isfinite(g_yy(x, y)))
        return jnp.where(finite & jnp.all((low <= y) & (y <= high)), g(x, y), jnp.inf)

    def first():
        y = jnp.full($N, jnp.nan)
        for start in [-jnp.ones($N), jnp.ones($N), jnp.zeros($N), jnp.array($MIDDLE)$FIRST]:
            y = jnp.where(inside(start) < jnp.inf, start, y)
        return y
""",
        "torch": """    x = torch.as_tensor(x, dtype=torch.float64)
    known = torch.all((array($X_LOW) <= x) & (x <= array($X_HIGH)))
    low, high = (torch.where(known, array(end), every) for end, every in (($Y_LOW, -torch.inf), ($Y_HIGH, torch.inf)))

    def inside(y):
        finite = torch.isfinite(g(x, y)) & torch.all(torch.isfinite(g_y(x, y))) & torch.all(torch.isfinite(g_yy(x, y)))
        return torch.where(finite & torch.all((low <= y) & (y <= high)), g(x, y), torch.inf)

    def first():
        y = array([torch.nan] * $N)
        for start in [array([-1] * $N), array([1] * $N), array([0] * $N), array($MIDDLE)$FIRST]:
            y = torch.where(inside(start) < torch.inf, start, y)
        return y

""",
    }
)

ARRAY: Mapping[str, str] = MappingProxyType(
    {
        "torch": """def array(rows):
    \"\"\"A tensor of numbers and of tensors without axes.\"\"\"
    return torch.stack([array(row) if isinstance(row, list) else tensor(row) for row in rows])"""
    }
)


def check_language(language: object) -> str:
    """The language, if it is one of those that source is written in.

    >>> check_language("jax")
    'jax'
    """
    if language not in LANGUAGES:
        raise InvalidArgument(f"no source for {language!r}", hint="source('numpy'), source('jax') or source('torch')")
    return str(language)


def filled(template: str, calls: Mapping[str, str]) -> str:
    """A template with its names put in; $NAME(argument) becomes a call in which {} is the argument.

    >>> filled("$SLOPE($Y + step)", {"SLOPE": "g_y(x, {})", "Y": "y"})
    'g_y(x, y + step)'
    """
    for name in (name for name, text in calls.items() if "{}" in text):
        while (start := template.find(f"${name}(")) >= 0:
            end = _closing(template, start + len(name) + 1)
            inner = template[start + len(name) + 2 : end]
            template = template[:start] + calls[name].replace("{}", inner) + template[end + 1 :]
    for name, text in calls.items():
        template = template.replace(f"${name}", text)
    return template


def _closing(text: str, start: int) -> int:
    depth = 0
    for k in range(start, len(text)):
        depth += (text[k] == "(") - (text[k] == ")")
        if not depth:
            return k
    raise ValueError("no closing parenthesis")


def header(language: str, title: str, body: str) -> str:
    """The docstring and the imports that a body needs.

    >>> print(header("numpy", "A title.", "math.pi"))
    \"\"\"A title.\"\"\"
    <BLANKLINE>
    import math
    <BLANKLINE>
    import numpy as np
    """
    needed = [line for word, line in _NEEDS.items() if word in body]
    own = [line for line in needed if not line.startswith("import jax")]
    more = "".join(f"{line}\n" for line in needed if line.startswith("import jax"))
    imports = _IMPORTS[language].replace("import jax.numpy as jnp\n", f"import jax.numpy as jnp\n{more}")
    return "\n\n".join([f'"""{title}"""', *(["\n".join(own)] if own else []), imports])


def joined(language: str, title: str, definitions: Mapping[str, str], functions: list[str]) -> str:
    """A module: imports, definitions, functions.

    language: of the module
    title: its docstring
    definitions: by the call that needs them
    functions: the rest, in order

    >>> print(joined("numpy", "A title.", {}, ["def f():\\n    return 0"]).splitlines()[-1])
        return 0
    """
    own = list(dict.fromkeys(definitions.values()))
    body = "\n\n\n".join([*own, *functions])
    tensor = CALLS["tensor"].definition(language)
    if "tensor(" in body.replace("_tensor(", "") and tensor and tensor not in own:
        body = f"{tensor}\n\n\n{body}"
    return f"{header(language, title, body)}\n\n\n{body}\n"
