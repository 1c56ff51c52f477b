"""The facts of checkpoints, from their names in the status."""

from collections.abc import Mapping
from typing import Any

from specdec.api.checkpoint_facts import CheckpointFacts


def stated(facts: Mapping[str, Any]) -> CheckpointFacts:
    return CheckpointFacts.model_validate(dict(facts))


def by_role(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, CheckpointFacts]:
    return {role: stated(own) for role, own in facts.items()}
