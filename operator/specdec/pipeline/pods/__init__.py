"""The serving pods: the workload that runs them, whether they serve, and why they do not."""
