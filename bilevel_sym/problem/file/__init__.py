"""Problem files: TOML -> plain fields and back. Formulas stay text; nothing here knows what they mean.

Numbers are exact: 0.1 in a file is 1/10. A file that cannot be read gives one clear error, and so do fields that would
not read back. Arrays stand in the file (``[data]``), or in files beside it: ``problem_files`` says what to write where,
all at once (``system.writing.write_together``); ``problem_toml`` refuses what does not fit into one file.
"""

from bilevel_sym.problem.file.fields import KINDS, ProblemFile
from bilevel_sym.problem.file.reading import parse_problem, read_problem
from bilevel_sym.problem.file.writing import problem_files, problem_toml

__all__ = ["KINDS", "ProblemFile", "parse_problem", "problem_files", "problem_toml", "read_problem"]
