"""Run the operator's decisions without a cluster, for `specdec plan` and `specdec render`.

`plan` runs the pipeline on `simulated_cluster` until nothing is left to do. The other modules read
the input and print, compare or write the result.
"""
