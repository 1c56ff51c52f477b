"""The policies of a resource's Jobs: they stand before the first Job starts."""

from specdec.desired import isolation as desired
from specdec.pipeline.stage import Context, Outcome


def isolation(context: Context) -> Outcome:
    """Want the policies of Jobs where the resource asks for policies; the chain goes on."""
    policies = desired.objects(context.model, context.images.fetch_networks)
    return Outcome((), context.facts, proceed=True, apply=policies)
