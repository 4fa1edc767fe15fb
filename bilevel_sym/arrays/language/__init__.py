"""Formulas with arrays as people write them: a syntax tree, the shapes that its use implies, and its tensor."""

from bilevel_sym.arrays.language.inference import Inference
from bilevel_sym.arrays.language.reading import Reading
from bilevel_sym.arrays.language.shapes import Axis, Dimensions, Shape

__all__ = ["Axis", "Dimensions", "Inference", "Reading", "Shape"]
