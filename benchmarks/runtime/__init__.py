"""Measure what processes, messages and leases cost on Dask."""
