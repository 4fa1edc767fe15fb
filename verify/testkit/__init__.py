"""The test kit: is anybody's hypergradient, Hessian, lower-level solution or run right, and if not, what is wrong?"""
