"""The image check of a build: before any conversion, in the image that builds and serves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import image_check
import image_files
import image_packages
from failure import BuildError
from tensorrt_plan import EnginePlan
from tensorrt_steps import MissingScriptError, steps

_ROOT = Path("/")


# The kubelet passes on 4096 bytes of a result.
_MOST_CHARACTERS = 600


def checked(plan: EnginePlan, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the image with what the plan's release expects, and describe it.

    Programs that this process starts then find the packages that the image has too old.

    Returns:
        `image` of the result: version, number of templates and flags, names of request fields;
        empty where the plan disables the check, or the templates do not show those names.

    Raises:
        BuildError: the image differs; the message names the first differences and the fix.
    """
    if replaced := image_packages.use():
        print(replaced, flush=True)
    if plan.image_check == "Disabled":
        return {}
    commands, missing = _commands(plan)
    programs = [image_check.program(command) for command in commands]
    programs += expected["programs"]
    image = image_files.gather(
        _ROOT, expected["templates"], expected["models"], programs, expected["modules"]
    )
    report = image_check.check(expected, image, commands, plan.mode, missing)
    for difference in report.differences:
        print(f"image check: {difference}", flush=True)
    warning = image_check.sentence(report, expected)
    if warning and plan.image_check == "Enforce":
        raise BuildError("ImageMismatch", warning)
    if report.fields.keys() != expected["requestFields"].keys():
        return {}
    shown = report.shown()
    del shown["differences"]
    return {"image": shown | ({"warning": warning[:_MOST_CHARACTERS]} if warning else {})}


def _commands(plan: EnginePlan) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The commands of the build, and a clause where a script is missing.

    There are no commands if the checkpoint's configuration is missing or damaged: a complete
    engine does not need it, and otherwise the build reports it.
    """
    try:
        config = json.loads((plan.checkpoint / "config.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # the build itself reports them, if it needs the file
        return [], ()
    if not isinstance(config, dict):
        return [], ()
    work = plan.output.parent
    try:
        planned = steps(plan, config, work, Path.is_file)
    except MissingScriptError as error:
        return [], (error.clause,)
    return [step.command(work / step.name) for step in planned], ()
