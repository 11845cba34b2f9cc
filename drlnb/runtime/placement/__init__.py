"""Run gangs of functions on the workers of any Dask cluster."""
