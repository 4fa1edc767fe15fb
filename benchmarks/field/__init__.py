"""What the test kit says of other libraries' hypergradients: ``python -m benchmarks.field``.

Data flows one way: ``problems`` (what is asked) and ``jax_entries``, ``torch_entries``, ``plain_entries`` (who is
asked, how) → ``entry`` (an entry on a problem makes a row) → ``table`` (JSON and Markdown) → ``__main__``. A library
that is not installed is left out, and named.
"""
