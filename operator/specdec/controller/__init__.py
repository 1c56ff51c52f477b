"""The operator process: it queues watch events, reconciles resources and writes their status.

`handlers` connects kopf to `runtime`, which feeds `queue`. The queue calls `reconcile`, which runs
`observe`, `pipeline.decide`, `apply` and `status_writer` in this order.
"""
