"""Print the steps of engine builds as JSON; `build_commands` runs this file as a program.

It imports modules of a build Job, which are no package: `images/build` must be on its path.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import tensorrt_flags
import tensorrt_plan
import tensorrt_steps
from failure import BuildError


def commands(data: Mapping[str, Any], config: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The name and the command of each step.

    Args:
        data: the plan of a build.
        config: the checkpoint's `config.json`; without it only the last step is known.

    Raises:
        BuildError: the build would refuse the plan or the checkpoint.
    """
    plan = tensorrt_plan.read(data)
    work = plan.output.parent / f".{plan.key}.work"
    if config is None:
        source = tensorrt_flags.engine(plan, work / "checkpoint")
        vector = ("trtllm-build", *tensorrt_flags.vector(source), f"--output_dir={work}/build")
        return [{"step": "build", "command": vector}]
    # The image's release decides where a script is. Without an image, the first place counts,
    # which is the newest one.
    steps = tensorrt_steps.steps(plan, config, work, lambda _: True)
    return [{"step": step.name, "command": step.command(work / step.name)} for step in steps]


def _result(item: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"steps": commands(item["plan"], item["config"])}
    except BuildError as error:
        return {"reason": error.reason, "message": str(error)}


if __name__ == "__main__":
    json.dump([_result(item) for item in json.load(sys.stdin)], sys.stdout)
