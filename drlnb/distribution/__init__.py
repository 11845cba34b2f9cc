"""Distribute the parameters of any torch module to the processes of a Dask cluster."""
