"""Run as child processes: collectors, executors, replay rings, the zygote."""
