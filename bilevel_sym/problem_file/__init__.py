"""Problem files: TOML -> plain fields and back. Formulas stay text; nothing here knows what they mean.

Numbers are exact: 0.1 in a file is 1/10. A file that cannot be read gives one clear error. A file that cannot be
written leaves the old one as it was.
"""

from bilevel_sym.problem_file.fields import KINDS, ProblemFile
from bilevel_sym.problem_file.reading import read_problem
from bilevel_sym.problem_file.writing import write_problem

__all__ = ["KINDS", "ProblemFile", "read_problem", "write_problem"]
