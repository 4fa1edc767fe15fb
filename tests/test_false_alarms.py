"""Claims that are true stay unrefuted where rounding is all that there is to see.

Found among a thousand generated problems (`bilevel-sym reproduce tightness --large`): what float64 leaves of a zero, of
terms that cancel and of ill-conditioned systems was taken for a violation, and a run that fails for a whole one.
"""

from __future__ import annotations

import pytest

from bilevel_sym import BilevelProblem, verify

PROBLEMS: dict[str, tuple[str, str]] = {
    "a stationary point at the end of the box": (
        "def:local-min",
        """
kind = "bilevel"
x = ["x1"]
y = ["y1", "y2", "y3"]
f = "2*x1 + y1*y2 - 2*y1 + y2/2 - y3/2"
g = "-7*x1*y1/2 + 5*x1*y2/2 + 3*x1*y3/2 + 17*y1**2/6 - 2*y1*y2/3 - 2*y1*y3/3 + 13*y2**2/12 + 7*y2*y3/6 + 13*y3**2/12"

[box]
x1 = [-0.5, 0.5]
y1 = [-1.25, 1.25]
y2 = [-1.5, 1.5]
y3 = [-1, 1]
""",
    ),
    "terms that cancel in g_y": (
        "eq:gdrate",
        """
kind = "bilevel"
x = ["x1"]
y = ["y1", "y2"]
f = "2*x1 + 2*y1 + 8*y2**3 + 3*y2"
g = "-9*x1*y1 - 3*x1*y2 + 5*y1**2/2 - y1*y2 + 100*y1 + 5*y2**2/2 - 100*y2 + 10000*sin(x1/100 - y1/100 + y2/100)"

[box]
x1 = [-0.5, 0.5]
y1 = [-2, 2]
y2 = [-1.5, 1.5]
""",
    ),
    "values of Phi that rounding of y* moves": (
        "eq:hatphi",
        """
kind = "bilevel"
x = ["x1"]
y = ["y1", "y2", "y3", "y4", "y5", "y6", "y7", "y8", "y9", "y10", "y11"]
f = "x1**2/2 + x1/2 - y1/2 - y10/2 + 3*y11 + 3*y2 - 2*y3 + 2*y4 + y5/2 + y6 + 3*y7 + y8/2 - y9 - cos(x1)"
g = "3*x1*y1/2 + 240017*x1*y10/16 - 239993*x1*y11/16 - 35*x1*y2/2 + 20*x1*y3 - 125*x1*y4/2 + 300*x1*y5 - 1000*x1*y7 + 2500*x1*y8 - 119995*x1*y9/8 + 3*y1**2/4 + 120017*y10**2/48 - 119993*y10*y11/24 - 59995*y10*y9/12 + 120017*y11**2/48 + 59995*y11*y9/12 + 35*y2**2/4 + 5*y3**2 + 125*y4**2/2 + 75*y5**2 + 175*y6**2/2 + 500*y7**2 + 625*y8**2 + 30005*y9**2/12"

[box]
x1 = [-2, 2]
y1 = [-3, 3]
y2 = [-3, 3]
y3 = [-5, 5]
y4 = [-2, 2]
y5 = [-5, 5]
y6 = [-1, 1]
y7 = [-3, 3]
y8 = [-5, 5]
y9 = [-2, 2]
y10 = [-5, 5]
y11 = [-2, 2]
""",
    ),
    "conjugate gradients that lose their orthogonality": (
        "eq:aid-step2",
        """
kind = "bilevel"
x = ["x1", "x2", "x3"]
y = ["y1", "y2", "y3", "y4", "y5", "y6", "y7"]
f = "x1*x3 + x1 + x3/2 + 2*y1 + y2 - y3 + y4 + y5 - y6 - y7/2"
g = "2*x1*y1 + 5*x1*y2/4 - 3*x1*y3/4 - 35*x1*y4/2 - 5*x1*y5 - 75*x1*y7 + 2*x2*y1 - 5*x2*y2/8 + 3*x2*y3/2 - 35*x2*y4 - 5*x2*y5 - 25*x2*y6/4 - 75*x2*y7 + 2*x3*y1 - 5*x3*y2/2 + 3*x3*y3/2 + 35*x3*y4 + 20*x3*y5 + 25*x3*y6 - 150*x3*y7 + y1**2/2 + 5*y2**2/8 + 3*y3**2/4 + 35*y4**2/4 + 5*y5**2 + 25*y6**2/4 + 75*y7**2"

[box]
x1 = [-1, 1]
x2 = [-0.5, 0.5]
x3 = [-1, 1]
y1 = [-6, 6]
y2 = [-4.25, 4.25]
y3 = [-3, 3]
y4 = [-5, 5]
y5 = [-3.75, 3.75]
y6 = [-3.25, 3.25]
y7 = [-2.75, 2.75]
""",
    ),
    "a search that rounding may end": (
        "alg:iNEON",
        """
kind = "bilevel"
x = ["x1", "x2", "x3"]
y = ["y1", "y2", "y3"]
f = "x1*x3 - x2*x3/20 + x2/50 - 20*x3 - y1 - y2/50 + y3/10000 - sin(x2/100)"
g = "3*x1*y1/5 - 3*x1*y3/50000 - 3*x2*y1/50 - 3*x2*y2/10000 - 3*x2*y3/1000000 - 3*x3*y2/5 - 3*x3*y3/1000 + 3*y1**2 + 3*y2**2/10000 + 3*y3**2/100000000"

[box]
x1 = [-10, 10]
x2 = [-100, 100]
x3 = [-0.05, 0.05]
y1 = [-3, 3]
y2 = [-200, 200]
y3 = [-27500, 27500]
""",
    ),
    "a search at large y": (
        "alg:iNEON",
        """
kind = "bilevel"
x = ["x1", "x2", "x3"]
y = ["y1"]
f = "x1*x3/2 + 3*x1 - x2*y1/2 + x2/2 + 2*x3 + y1"
g = "2*x1*y1 - 2*x2*y1 + 2*x3*y1 + y1**2/2 - 3999997*y1/4 - 3*sin(2*x1 - 2*x2 + 2*x3 + y1 - 1000000)/4"

[box]
x1 = [-0.5, 0.5]
x2 = [-2, 2]
x3 = [-2, 2]
y1 = [-1000010, 1000010]
""",
    ),
    "a run that fails on the way": (
        "alg:perturbedalg",
        """
kind = "bilevel"
x = ["x1"]
y = ["y1"]
f = "x1/10 + 300000000*y1**2 - 5000*y1 - (x1/10 + 10000*y1)**3"
g = "x1**2*(x1/10 + 10000*y1)**2/50 + 10000*x1*y1 + 500000000*y1**2 - 5000*y1 + softplus(x1/10 + 10000*y1)"

[box]
x1 = [-10, 10]
y1 = [-0.0002, 0.0002]
""",
    ),
    "a Phi without curvature": (
        "unlabelled:remark-large-L-phi",
        """
kind = "bilevel"
x = ["x1"]
y = ["y1", "y2", "y3"]
f = "-x1/2 - 2*y1 + y2 + 3*y3"
g = "x1*y1/4 + 5*x1*y2/4 + 5*x1*y3/4 + 5*y1**2/12 + y1*y2/6 + y1*y3/6 - 17*y1/12 + 5*y2**2/12 - y2*y3/6 + 13*y2/24 + 5*y3**2/12 + 5*y3/12 - sin(2*x1 + y2 + 1)/8 - sin(9*x1/2 - y1 + y2 + y3 + 4)/12"

[box]
x1 = [-1, 1]
y1 = [-3.5, 3.5]
y2 = [-4, 4]
y3 = [-4, 4]
""",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_rounding_refutes_nothing(name: str) -> None:
    label, text = PROBLEMS[name]
    results = verify.run(BilevelProblem.from_toml(text), claims=[label], effort="quick", rng=0).results
    assert results
    assert all(result.verdict is not verify.Verdict.VIOLATED for result in results), [r.message for r in results]
