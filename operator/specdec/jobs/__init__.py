"""The programs of the operator's Jobs: fetch, publish, verify and benchmark.

The operator starts them in pods with its own image, as `python -m specdec.jobs.NAME`.
"""
