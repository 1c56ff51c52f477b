"""The decision of one reconcile, from a snapshot of the cluster. It uses no clock or network."""
