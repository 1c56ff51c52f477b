"""The NetworkPolicies of a resource's Jobs, applied before the first Job."""

from specdec.api.kinds import OPTIONAL_KINDS
from specdec.desired import isolation as desired
from specdec.pipeline.observed import Ref
from specdec.pipeline.stage import Context, Outcome

_KIND = "NetworkPolicy"


def isolation(context: Context) -> Outcome:
    """Apply the policies where the resource asks for them; the chain goes on in any case.

    Where it does not, delete those of an earlier spec: the chain may not reach `network`.
    """
    model, live = context.model, context.observed.optional_objects
    kept = desired.policy_names(model)
    superfluous = tuple(
        Ref(OPTIONAL_KINDS[_KIND].version, _KIND, name)
        for name in desired.possible_names(model)
        if name not in kept and (_KIND, name) in live
    )
    policies = desired.objects(model, context.images.fetch_networks)
    return Outcome((), context.facts, proceed=True, apply=policies, delete=superfluous)
