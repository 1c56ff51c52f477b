"""What the operator would do with a resource, found out without a cluster."""
