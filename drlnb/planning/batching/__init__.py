"""How many samples does each collector take in a round (seed 002)?"""

from drlnb.planning.batching.planner import BatchingPlanner, Equal, batching_planner, env_shares

__all__ = ["BatchingPlanner", "Equal", "batching_planner", "env_shares"]
