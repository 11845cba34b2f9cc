"""Serve one Dask worker: its collectors, slots and host stores."""
