"""Who carries out batches of tasks: this process, others of this machine, or the workers of a Dask scheduler."""
