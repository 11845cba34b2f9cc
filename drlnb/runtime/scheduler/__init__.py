"""Serve the cluster from the Dask scheduler: the pool, runs, nodes and anchors."""
