"""The commands of engine builds, as the build Job would run them.

The modules of a build Job run inside a server's image, and they are not a package. So a separate
process runs them here, once for all engines of a plan.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from specdec.jobs.result import JobError
from specdec.tools.dry_run import configuration
from specdec.tools.dry_run.plan import Json, ResourcePlan


def of(plan: ResourcePlan, given: Mapping[str, Path]) -> dict[str, list[Json]]:
    """The steps of each build, by the role of its engine: each has `step` and `command`.

    Without the `config.json` of its checkpoint a build has only its last step. An engine that is
    prebuilt, or that is built in one program, is left out.

    Args:
        plan: of a resource.
        given: the local checkpoints by role.

    Raises:
        InputError: a configuration is not valid.
        JobError: a build would refuse its plan or its checkpoint.
    """
    # Only builds with the scripts of an image's examples have several steps.
    builds = {entry["role"]: build for entry, build in plan.engines() if "examples" in build}
    if not builds:
        return {}
    requests = [
        {"plan": build, "config": configuration.read(given[role]) if role in given else None}
        for role, build in builds.items()
    ]
    results = _run(requests)
    for result in results:
        if "reason" in result:
            raise JobError(result["reason"], result["message"])
    return {role: result["steps"] for role, result in zip(builds, results, strict=True)}


def _run(requests: list[Json]) -> list[Json]:
    package = resources.files("specdec")
    modules = package.joinpath("images", "build")
    done = subprocess.run(
        [sys.executable, str(package.joinpath("tools", "dry_run", "build_steps.py"))],
        input=json.dumps(requests),
        env={**os.environ, "PYTHONPATH": str(modules), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results
