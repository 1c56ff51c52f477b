"""The programs of Jobs: fetch, publish, verify, benchmark, prune and throughput.

They run in pods with the operator's image, as `python -m specdec.jobs.NAME`. The operator starts
all of them except `throughput`, which only `specdec certify` starts.
"""
