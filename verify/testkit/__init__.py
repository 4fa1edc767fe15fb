"""The test kit: is a user's hypergradient, Hessian, lower-level solution or run right, and if not, what is wrong?"""
