"""Modules that Jobs import at their start."""

import subprocess
import sys

# The fetch Job is not one of them: it judges checkpoints by the spec.
JOBS = ("benchmark", "prune", "publish", "verify")


def test_no_job_loads_the_model_of_the_resource() -> None:
    imports = ", ".join(f"specdec.jobs.{job}" for job in JOBS)
    code = f"import sys, {imports}; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
