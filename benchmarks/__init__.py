"""Speed of the kernels against JAX and CasADi: ``python -m benchmarks.kernels``.

Data flows one way: ``case`` (what a family is) → ``families`` (the problems) → ``peers``, ``ours`` (who computes them)
→ ``measure``, ``growth`` (one case in one process, started by ``launch``) → ``targets``, ``report`` (tables)
→ ``kernels`` (the command line). All competitors come with ``pip install -e ".[bench,fast]"``; the absent are left out.
"""
