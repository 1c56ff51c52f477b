"""The samples as `specdec plan` renders them, and a command for a server's view of the volume."""

from functools import cache

from specdec.backends.facts import Images
from specdec.tools.dry_run.plan import ResourcePlan, make
from specdec.tools.dry_run.resource import read
from support.golden_cases import SAMPLES

IMAGES = Images(operator="example.com/specdec/operator:1", reference="example.com/specdec/ref:1")
# Runs a command with its own mounts, without permissions outside.
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


@cache
def planned(sample: str) -> ResourcePlan:
    """Return the plan of a sample, which must not be refused."""
    plan = make(read(str(SAMPLES[sample])), IMAGES)
    assert not plan.refusal
    return plan
