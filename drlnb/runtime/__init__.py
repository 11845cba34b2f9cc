"""The floor that ACTS: Dask plugins (broker, node agent), child processes, host store, checkpoints."""
