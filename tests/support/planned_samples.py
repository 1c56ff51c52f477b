"""The samples as `specdec plan` renders them, and how a server sees their volume."""

from __future__ import annotations

from functools import cache

from specdec.backends.facts import Images
from specdec.dry_run.plan import Plan, make
from specdec.dry_run.resource import read
from support.golden_cases import SAMPLES

IMAGES = Images(operator="example.com/specdec/operator:1", reference="example.com/specdec/ref:1")
# Mounts of its own, without rights outside.
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


@cache
def planned(sample: str) -> Plan:
    """The plan of a sample, which nothing refuses."""
    plan = make(read(str(SAMPLES[sample])), IMAGES)
    assert not plan.refusal
    return plan
