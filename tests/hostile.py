"""Hostile and malformed inputs, and a way to watch what reading them does.

Run as a program, it reads them all under an audit hook and prints a report as JSON; ``test_parsing.py`` and
``test_problem_file.py`` judge the report. A hook cannot be taken off again, hence the process of its own.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import sympy as sp

from bilevel_sym.errors import BilevelError
from bilevel_sym.problem.file import read_problem
from bilevel_sym.problem.parsing import parse_expression

SYMBOLS = {name: sp.Symbol(name) for name in ("x", "y", "z", "x1", "y1", "gamma")}

# Planted in many inputs: whoever executes the text leaves a file behind.
CANARY = (Path(tempfile.gettempdir()) / "bilevel_sym_canary").as_posix()
TOUCH = f"open('{CANARY}','w')"


def nest(step: str, times: int, start: str = "x") -> str:
    """``step`` with @ replaced by what came before, again and again."""
    before, after = step.split("@")
    return before * times + start + after * times


def grow(step: str, times: int, start: str = "x") -> str:
    """Like nest, where @ may stand more than once: the text doubles."""
    for _ in range(times):
        start = step.replace("@", start)
    return start


EXPRESSIONS: Mapping[str, str] = {
    # --- code ---
    "import": "__import__('os').system('true')",
    "import with double quotes": '__import__("os")',
    "eval": f'eval("{TOUCH}")',
    "exec": f'exec("{TOUCH}")',
    "open": TOUCH,
    "compile": "compile('1', '', 'eval')",
    "breakpoint": "breakpoint()",
    "exit": "exit()",
    "input": "input()",
    "print": "print(x)",
    "globals": "globals()",
    "getattr": "getattr(x, 'subs')",
    "lambda": "lambda: 1",
    "lambda call": "(lambda: 1)()",
    "Lambda": "Lambda(x, x)",
    "walrus": "(y := x)",
    "walrus without parentheses": "y := x",
    "assignment": "y = x",
    "semicolon": "x; y",
    "two lines": "x\ny",
    "import statement": "import os",
    "from statement": "from os import system",
    "statement after newline": "x\nimport os",
    "attribute": "x.subs",
    "attribute of a number": "(1).real",
    "dunder attribute": "x.__class__.__mro__",
    "class of a string": "''.__class__",
    "call of an attribute": "x.subs(x, 1)",
    "subscript": "x[0]",
    "slice": "x[0:1]",
    "subscript of a call": "sin(x)[0]",
    "string": "'x'",
    "double quoted string": '"x"',
    "triple quoted string": "'''x'''",
    "unclosed string": "'x",
    "f-string": "f'{x}'",
    "f-string with code": "f'{__import__(\"os\")}'",
    "bytes": "b'x'",
    "raw string": "r'x'",
    "string formatting": "'%s' % x",
    "list": "[x, y]",
    "list comprehension": "[x for x in y]",
    "generator": "max(x for x in y)",
    "dict": "{x: y}",
    "set": "{x, y}",
    "tuple": "(x, y)",
    "empty tuple": "()",
    "star": "max(*x)",
    "double star": "sin(**x)",
    "keyword argument": "sin(x=1)",
    "evaluate=False": "Piecewise((x, True), evaluate=False)",
    "await": "await x",
    "yield": "yield x",
    "decorator": "@x",
    "matrix product": "x @ y",
    "comment": "x # y",
    "backslash": "x + \\\n y",
    "backtick": "`x`",
    "dollar": "$x",
    "question": "x ? y",
    "ellipsis": "...",
    "None": "None",
    "NotImplemented": "NotImplemented",
    "dunder name": "__name__",
    "dunder builtins": "__builtins__",
    # --- logic and comparison outside conditions ---
    "and": "x and y",
    "or": "x or y",
    "not": "not x",
    "in": "x in y",
    "is": "x is y",
    "conditional": "x if y else z",
    "comparison": "x < y",
    "equality": "x == y",
    "inequality": "x != y",
    "old inequality": "x <> y",
    "true": "True",
    "false": "False",
    "true in a sum": "x + True",
    "chained condition": "Piecewise((x, 0 < x < 1), (y, True))",
    "equality in a condition": "Piecewise((x, x == 1), (y, True))",
    "and in a condition": "Piecewise((x, x < 1 and y < 1), (y, True))",
    "ampersand in a condition": "Piecewise((x, (x < 1) & (y < 1)), (y, True))",
    "False in a condition": "Piecewise((x, False), (y, True))",
    "expression as a condition": "Piecewise((x, x), (y, True))",
    "no condition": "Piecewise(x, y)",
    "empty Piecewise": "Piecewise()",
    "piece of one": "Piecewise((x,), (y, True))",
    "piece of three": "Piecewise((x, True, y))",
    "never true": "Piecewise((x, 1 < 0))",
    "Piecewise in a condition": grow("Piecewise((1, @ < 0), (2, True))", 6, "x + y"),
    "a condition full of cases": "Piecewise((1, "
    + " + ".join(f"Piecewise((x, y < {k}), (y, True))" for k in range(12))
    + " < 0), (2, True))",
    "bit and": "x & y",
    "bit or": "x | y",
    "bit not": "~x",
    "caret": "x^2",
    "shift left": "x << 2",
    "shift right": "x >> 2",
    "floor division": "x // 2",
    "modulo": "x % 2",
    "factorial": "x!",
    "double factorial": "x!!",
    "triple star": "x***y",
    # --- malformed ---
    "empty": "",
    "blank": " \t\n ",
    "operator alone": "+",
    "ends early": "x +",
    "starts with a product": "* x",
    "two operators": "x * / y",
    "two values": "x y",
    "implied product": "2x",
    "implied product with parentheses": "2(x + 1)",
    "product of parentheses": "(x)(y)",
    "unclosed": "(x",
    "unopened": "x)",
    "crossed": "(x]",
    "unclosed call": "sin(x",
    "no argument": "sin()",
    "two arguments": "sin(x, y)",
    "log with a base": "log(x, 2)",
    "trailing comma": "max(x, y,)",
    "one argument of max": "max(x)",
    "function without a call": "sin + 1",
    "function to a power": "sin**2(x)",
    "call of a variable": "x(y)",
    "call of a number": "2(x)",
    "call of a constant": "pi(x)",
    "unknown name": "gama",
    "unknown function": "arcsin(x)",
    "gamma function": "gamma(x)",
    "SymPy function": "Integral(x, x)",
    "factorial function": "factorial(10**7)",
    "underscore name": "_x",
    "number and name": "1e",
    "two points": "1.2.3",
    "point alone": ".",
    "underscores in a number": "1_000",
    "hexadecimal": "0xff",
    "octal": "0o7",
    "binary": "0b1",
    "complex literal": "1j",
    "leading zeros": "007",
    "imaginary unit": "I",
    "infinity": "oo",
    "zoo": "zoo",
    "nan": "nan",
    "inf": "inf",
    # --- characters ---
    "NUL": "x\0",
    "NUL inside": "x +\0 y",
    "Cyrillic x": "\u0445 + 1",
    "full-width x": "\uff58 + 1",
    "full-width digit": "\uff11 + x",
    "full-width parenthesis": "sin\uff08x\uff09",
    "Arabic digit": "\u0663*x",
    "superscript two": "x\u00b2",
    "Greek letter": "\u03b3*x",
    "minus sign": "x \u2212 1",
    "multiplication sign": "x \u00d7 y",
    "no-break space": "x\u00a0+ 1",
    "zero-width space": "x\u200b + 1",
    "right-to-left override": "x + \u202e1",
    "byte order mark": "\ufeffx",
    "combining accent": "x\u0301",
    "surrogate": "x + \ud800",
    "emoji": "\U0001f600",
    "form feed": "x +\f y",
    "vertical tab": "x +\v y",
    "escape": "\x1b[31mx",
    "DEL": "x\x7f",
    "line separator": "x\u2028y",
    # --- numbers that explode ---
    "tower of nines": "9**9**9",
    "longer tower of nines": "9**9**9**9",
    "negative tower": "9**-9**9",
    "tower with a root": "sqrt(9**9**9)",
    "tower of exp": "exp(exp(exp(exp(9))))",
    "min of a tower": "min(exp(exp(exp(9))), 1)",
    "sine of a tower": "sin(9**9**9)",
    "huge exponent literal": "1e1000000000",
    "tiny exponent literal": "1e-1000000000",
    "exponent beyond float": "1e400",
    "literal of 100 000 digits": "7" * 100_000,
    "decimals of 100 000 digits": "0." + "7" * 100_000,
    "huge exponent": "x**1000000000",
    "huge fractional exponent": "x**(1/1000000007)",
    "power of a power": "((x + y)**64)**64",
    "power of a power of a power": "((((x*2)**30)**30)**30)**30",
    "product of huge powers": "x**999*x**999",
    "huge product": "*".join(["10**299"] * 100),
    "huge quotient": "/".join(["10**299"] * 100),
    "huge denominators": "+".join(f"1/{10**40 + k}" for k in range(3000)),
    "huge denominators of x": "+".join(f"x/{10**40 + k}" for k in range(3000)),
    "exp of a logarithm": "exp(10**9*log(3))",
    "exp of minus a logarithm": "exp(-10**9*log(3))",
    "exp of a logarithm and x": "exp(x + 10**9*log(3))",
    "exp of a hidden logarithm": "exp(x*(10**9*log(2) + 1))",
    "exp of the logarithm of a product": "exp(10**9*log(2*x))",
    "exponents that cancel": "(2**(10**9*x))**(1/x)",
    "exponents that cancel in exp": "exp(10**9*y*log(2*x))**(1/y)",
    "base of a logarithm": "x**(10**9*log(2*y)/log(x))",
    "roots of huge numbers": "+".join(f"sqrt({10**290 + k})*x" for k in range(600)),
    "cosh of a large number": "cosh(1000)",
    "division by zero": "1/0",
    "division by a hidden zero": "x/(y - y)",
    "division by a constant zero": "1/(sin(1)**2 + cos(1)**2 - 1)",
    "zero to a negative power": "0**-1",
    "zero to a variable power": "0**x",
    "root of a negative number": "sqrt(-2)",
    "cube root of a negative number": "(-8)**(1/3)",
    "variable power of a negative number": "(-2)**x",
    "logarithm of zero": "log(0)",
    "logarithm of a negative number": "log(-1)",
    "pole": "tan(pi/2)",
    "roots that cancel": "abs(sqrt(2) + sqrt(3) - sqrt(5 + 2*sqrt(6)))",
    "many roots compared": "abs(x*(" + "+".join(f"sqrt({p})" for p in (2, 3, 5, 7, 11, 13)) + "))",
    # --- size and depth ---
    "1000 parentheses": nest("(@)", 1000),
    "100 000 parentheses": nest("(@)", 99_000),
    "100 000 open parentheses": "(" * 100_000,
    "1000 brackets": "[" * 1000,
    "1000 calls": nest("sin(@)", 1000),
    "1000 negations": nest("-(@)", 1000),
    "tower of variables": "x" + "**x" * 1000,
    "tower of variables, left": nest("(@)**x", 1000),
    "200 000 terms": "+".join(["x"] * 200_000),
    "200 000 different terms": "+".join(f"x**{k % 900}" for k in range(200_000)),
    "50 000 factors": "*".join(["x"] * 50_000),
    "5000 different factors": "*".join(f"(x + {k})" for k in range(5000)),
    "5000 divisors": "/".join(f"(x + {k})" for k in range(5000)),
    "a name of 100 000 letters": "x" * 100_000,
    "100 000 unclosed quotes": "'" * 100_000,
    "100 000 spaces and a sign": " " * 100_000 + "+",
    "huge min": f"min({','.join(['x', 'y'] * 5000)})",
    "min of 50 squares": f"min({','.join(f'(x - {k})**2' for k in range(50))})",
    "nested min": nest("min(@, y**2 + 1)", 90),
    "nested max of min": nest("max(z, min(y, @) + x)", 45),
    "nested abs": nest("abs(@ - 1)", 90),
    "doubling abs": grow("abs(@ - @*y)", 11),
    "nested hinge": nest("max(0, @ - 1)", 90),
    "huge Piecewise": f"Piecewise({','.join(f'({k}*x, y < {k})' for k in range(3000))})",
    "huge Piecewise of equals": f"Piecewise({','.join(f'(x, y < {k}*z)' for k in range(3000))})",
    "nested Piecewise, too deep": nest("Piecewise((@, x < 1), (y, True))", 300),
    "continued fraction in abs": f"abs({nest('x + 1/(@)', 45)})",
    "long sum in max": f"max(0, {'+'.join(f'x**{k}*y' for k in range(900))})",
    "long sum of fractions in abs": f"abs({'+'.join(f'1/(x + {k})' for k in range(900))})",
    "cosh of a high power": "sqrt(x*cosh((x + y + z)**500))",
    "zero times tanh of a high power": "0*tanh((x + y + z)**500)",
    "nested cosh": nest("cosh(@*pi)", 40),
    "nested exp of logarithms": nest("exp(-(@)*log(x))", 60),
    "2000 comparisons": "+".join(f"abs(x**2 - {k}*y)" for k in range(2000)),
    "SymPy runs in a circle": (
        "Piecewise((x1 - x*-x, y**-1 + 89e-1*.8*z*x**3/x**-2*-x**(1/2) <= z**-2 - y*y/x1), (y**3*x, True))"
    ),
    # --- odd, and valid ---
    "90 parentheses": nest("(@)", 90),
    "10 000 terms": "+".join(["x"] * 10_000),
    "90 nested sines": nest("sin(@)", 90),
    "45 nested Piecewise": nest("Piecewise((@, x < 1), (y, True))", 45),
    "ten thousand signs": "-" * 10_000 + "x",
    "decimal of 250 digits": "0." + "3" * 250,
    "line breaks": "x +\r\n\ty",
    "everything": "Piecewise((softplus(x)*sigmoid(y), x < 1), (min(abs(x), pi, max(y, E**-z)), True))",
}

VALID_EXPRESSIONS = frozenset(
    {
        "zero times tanh of a high power",
        "90 parentheses",
        "10 000 terms",
        "90 nested sines",
        "45 nested Piecewise",
        "ten thousand signs",
        "decimal of 250 digits",
        "line breaks",
        "everything",
    }
)

_START = 'x = ["x"]\ny = ["y"]\n'
_GOOD = _START + 'f = "x*y"\ng = "y**2/2 - x*y"\n'
_STOCHASTIC = _GOOD + 'kind = "stochastic"\nxi = ["a"]\nzeta = ["b"]\n'


_CONTENTS: Mapping[str, str | bytes] = {
    # --- not TOML ---
    "empty file": "",
    "NUL byte": "\0",
    "not UTF-8": b'name = "\xff\xfe"\n' + _GOOD.encode(),
    "UTF-16": _GOOD.encode("utf-16"),
    "two byte order marks": "\ufeff\ufeff" + _GOOD,
    "binary": bytes(range(256)) * 100,
    "pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "YAML": "!!python/object/apply:os.system ['true']\n",
    "JSON": '{"x": ["x"], "y": ["y"]}',
    "Python": "import os\nos.system('true')\n",
    "unclosed string": 'x = "x',
    "unclosed array": "x = [",
    "value missing": "x =\n",
    "duplicate key": _GOOD + 'f = "y"\n',
    "duplicate table": _GOOD + "[box]\nx = [0, 1]\n[box]\ny = [0, 1]\n",
    # --- bombs ---
    "arrays 100 000 deep": "x = " + "[" * 100_000,
    "closed arrays 100 000 deep": "x = " + "[" * 100_000 + "]" * 100_000,
    "tables 100 000 deep": "x = " + "{a=" * 100_000,
    "dotted key of 100 000 parts": ".".join(["a"] * 100_000) + " = 1",
    "dotted quoted key": ".".join(['"a"'] * 100_000) + " = 1",
    "dotted key with escapes": ".".join(['"\\""'] * 100_000) + " = 1",
    "dotted table": "[" + ".".join(["a"] * 100_000) + "]",
    "dotted key in an inline table": "x = {" + ".".join(["a"] * 100_000) + " = 1}",
    "dotted key with spaces": " . ".join(["a"] * 50_000) + " = 1",
    "integer of 100 000 digits": _GOOD + "[parameters]\na = " + "7" * 100_000,
    "hexadecimal of 100 000 digits": _GOOD + "[parameters]\na = 0x" + "f" * 100_000,
    "float of 100 000 digits": _GOOD + "[parameters]\na = 0." + "7" * 100_000,
    "huge exponent": _GOOD + "[parameters]\na = 1e1000000000",
    "huge exponent as text": _GOOD + '[parameters]\na = "1e1000000000"',
    "huge fraction as text": _GOOD + f'[parameters]\na = "1/{"7" * 100_000}"',
    "too large": "#" * 6_000_000,
    "a million keys": "".join(f"k{i} = 1\n" for i in range(150_000)),
    "a million numbers": "x = [" + "1," * 900_000 + "]",
    "a million tables": "[[a]]\n" * 300_000,
    "a million escapes": 'x = "' + "\\\\" * 900_000 + '"',
    "a million quotes": "'" * 1_900_000,
    "a million escaped quotes": 'x = "' + '\\"' * 900_000,
    "a key of a million letters": "k" * 1_900_000 + " = 1",
    "a name of a million letters": f'x = "{"x" * 1_000_000}"\n' + _GOOD[len('x = ["x"]\n') :],
    "a formula of a million letters": _START + f'f = "{"x" * 1_000_000}"\ng = "y**2"\n',
    # --- wrong content ---
    "unknown key": _GOOD + 'h = "x"\n',
    "mistyped key": _GOOD + "nmae = 'toy'\n",
    "dunder key": _GOOD + '__class__ = "x"\n',
    "empty key": _GOOD + '"" = 1\n',
    "f missing": _START + 'g = "y**2"\n',
    "g missing": _START + 'f = "y**2"\n',
    "x missing": 'y = ["y"]\nf = "y"\ng = "y**2"\n',
    "x empty": 'x = []\ny = ["y"]\nf = "y"\ng = "y**2"\n',
    "x a number": 'x = 1\ny = ["y"]\nf = "y"\ng = "y**2"\n',
    "x a table": 'y = ["y"]\nf = "y"\ng = "y**2"\n[x]\na = 1\n',
    "x holds a number": 'x = [1]\ny = ["y"]\nf = "y"\ng = "y**2"\n',
    "x is code": 'x = ["__import__(1)"]\ny = ["y"]\nf = "y"\ng = "y**2"\n',
    "x is a keyword": 'x = ["lambda"]\ny = ["y"]\nf = "y"\ng = "y**2"\n',
    "x is a function": 'x = ["sin"]\ny = ["y"]\nf = "y"\ng = "y**2"\n',
    "x is Cyrillic": 'x = ["\u0445"]\ny = ["y"]\nf = "y"\ng = "y**2"\n',
    "x twice": 'x = ["x", "x"]\ny = ["y"]\nf = "y"\ng = "y**2"\n',
    "x and y overlap": 'x = ["y"]\ny = ["y"]\nf = "y"\ng = "y**2"\n',
    "f a number": _START + 'f = 1\ng = "y**2"\n',
    "f a list": _START + 'f = ["x"]\ng = "y**2"\n',
    "f a date": _START + 'f = 2020-01-01\ng = "y**2"\n',
    "kind unknown": _GOOD + 'kind = "trilevel"\n',
    "kind a list": _GOOD + 'kind = ["bilevel"]\n',
    "kind a table": _GOOD + "[kind]\na = 1\n",
    "name a number": _GOOD + "name = 3\n",
    "minimax with g": _GOOD + 'kind = "minimax"\n',
    "bilevel with words in its data": _GOOD + '[data]\nA = [["a"]]\n',
    "stochastic without xi": _GOOD + 'kind = "stochastic"\n',
    "stochastic without data": _STOCHASTIC,
    "stochastic without rows": _STOCHASTIC + "[data]\nxi = []\nzeta = [[1]]\n",
    "stochastic with a flat list": _STOCHASTIC + "[data]\nxi = [1, 2]\nzeta = [[1]]\n",
    "stochastic with ragged rows": _STOCHASTIC + "[data]\nxi = [[1], [1, 2]]\nzeta = [[1]]\n",
    "stochastic with nan": _STOCHASTIC + "[data]\nxi = [[nan]]\nzeta = [[1]]\n",
    "stochastic with other data": _STOCHASTIC + "[data]\nxi = [[1]]\nzeta = [[1]]\neta = [[1]]\n",
    "data a number": _STOCHASTIC + "data = 1\n",
    "parameters a list": _GOOD + "parameters = [1]\n",
    "parameter infinite": _GOOD + "[parameters]\na = inf\n",
    "parameter minus infinite": _GOOD + "[parameters]\na = -inf\n",
    "parameter nan": _GOOD + "[parameters]\na = nan\n",
    "parameter true": _GOOD + "[parameters]\na = true\n",
    "parameter a date": _GOOD + "[parameters]\na = 2020-01-01\n",
    "parameter a time": _GOOD + "[parameters]\na = 12:00:00\n",
    "parameter code": _GOOD + f'[parameters]\na = "{TOUCH}"\n',
    "parameter a formula": _GOOD + '[parameters]\na = "1+1"\n',
    "parameter divided by zero": _GOOD + '[parameters]\na = "1/0"\n',
    "parameter named like x": _GOOD + "[parameters]\nx = 1\n",
    "parameter named pi": _GOOD + "[parameters]\npi = 3\n",
    "parameter table": _GOOD + "[parameters.a]\nb = 1\n",
    "box of an unknown": _GOOD + "[box]\nq = [0, 1]\n",
    "box of three": _GOOD + "[box]\nx = [0, 1, 2]\n",
    "box reversed": _GOOD + "[box]\nx = [1, 0]\n",
    "box infinite": _GOOD + "[box]\nx = [0, inf]\n",
    "box of text": _GOOD + '[box]\nx = ["a", "b"]\n',
    "box a number": _GOOD + "box = 1\n",
    # --- odd, and valid ---
    "good": _GOOD,
    "good with Windows line ends": _GOOD.replace("\n", "\r\n"),
    "good with fractions": _GOOD + '[parameters]\na = "1/3"\nb = "symbolic"\n[box]\nx = [-0.1, "1/7"]\n',
}

FILES: Mapping[str, bytes] = {
    name: content.encode("utf-8") if isinstance(content, str) else content for name, content in _CONTENTS.items()
}

VALID_FILES = frozenset(
    {"a formula of a million letters", "good", "good with Windows line ends", "good with fractions"}
)


class Observation(NamedTuple):
    """What happened while one input was read."""

    outcome: str
    seconds: float
    events: list[str]


class Watch:
    """An audit hook that listens only while something is observed."""

    def __init__(self) -> None:
        self._events: list[str] | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._events is not None:
            self._events.append(f"{event}: {arguments!r:.100}" if event in ("open", "import") else event)

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        events: list[str] = []
        self._events = events
        try:
            yield events
        finally:
            self._events = None

    def observe(self, action: Callable[[], object]) -> Observation:
        """Run the action for at most ten seconds, and tell how it ended, when, and with which audit events."""
        start = time.process_time()
        outcome = "accepted"
        with self.listening() as events:
            try:
                action()
            except BilevelError as error:
                outcome = type(error).__name__
            except BaseException as error:  # noqa: BLE001 - whatever it was, it escaped
                outcome = f"escaped: {type(error).__name__}"
        return Observation(outcome, time.process_time() - start, events)


def report() -> dict[str, object]:
    """Every input once, and one planted action that must be heard."""
    b" ".decode("utf-8-sig")  # Python loads a codec when it is first used: not what the watch is for
    watch = Watch()
    expressions = {
        name: watch.observe(lambda text=text: parse_expression(text, SYMBOLS))  # type: ignore[misc]
        for name, text in EXPRESSIONS.items()
    }
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.toml"
        for name, content in FILES.items():
            path.write_bytes(content)
            files[name] = watch.observe(lambda: read_problem(path))
    return {
        "expressions": expressions,
        "files": files,
        "planted": watch.observe(lambda: eval("__import__('os').getpid()")),
        "canary": os.path.exists(CANARY),  # noqa: PTH110
        "megabytes": _peak() / 1024,
    }


def _peak() -> int:
    """The largest size of this process, in kilobytes; ru_maxrss would begin with that of the process that started it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])  # type: ignore[index]


def _give_up(*_: object) -> None:
    raise TimeoutError("an input took far too long")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(150)
    print(json.dumps(report()))
