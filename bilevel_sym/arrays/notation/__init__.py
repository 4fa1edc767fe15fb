"""Matrix notation: the tree, and how it is written in text, in LaTeX and in SymPy."""
