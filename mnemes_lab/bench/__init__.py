"""The bench: workloads and measurements against a peer in the same run."""
