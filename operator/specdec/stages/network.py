"""The Service and the address clients use; it has no condition of its own."""

from specdec.desired import network as desired
from specdec.stages.stage import Context, Outcome


def network(context: Context) -> Outcome:
    """Want the Service as soon as there is something to serve."""
    return Outcome(
        (),
        context.facts,
        proceed=True,
        apply=(desired.service(context.model),),
        status={"url": desired.url(context.model)},
    )
