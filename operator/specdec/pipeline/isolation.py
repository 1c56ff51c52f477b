"""The NetworkPolicies of a resource's Jobs, applied before the first Job."""

from specdec.desired import isolation as desired
from specdec.pipeline.stage import Context, Outcome


def isolation(context: Context) -> Outcome:
    """Apply the policies where the resource asks for them; the chain goes on in any case."""
    policies = desired.objects(context.model, context.images.fetch_networks)
    return Outcome((), context.facts, proceed=True, apply=policies)
