"""The steps from a checkpoint to an engine as argument vectors; nothing here runs or writes.

Every value is one argument `--flag=value`: nothing a user wrote can become a flag or reach a
shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorrt_flags as flags
from failure import BuildError
from tensorrt_plan import EnginePlan

# Model family, the folder of its converter, by the architecture of a checkpoint.
_FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MixtralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen",
}
_LLAMA = frozenset({"LlamaForCausalLM"})
# Base models that the converters of heads read.
_BASES = {
    "eagle": _LLAMA,
    "medusa": _LLAMA,
    "explicit_draft_tokens": _LLAMA | {"Qwen2ForCausalLM"},
}
# The flags that name a directory of heads.
_HEADS = ("eagle_model_dir", "medusa_model_dir", "drafter_model_dir")


@dataclass(frozen=True)
class Step:
    """One program to run.

    Attributes:
        name: the phase, and the name of the step's folder.
        argv: the argument vector without `--output_dir`, which `command` adds last.
        expects: files that a finished step leaves in its folder.
        weight: its duration relative to that of other steps.
        adds_heads: whether it converts draft heads, whose rotary embedding is then compared.
    """

    name: str
    argv: tuple[str, ...]
    expects: tuple[str, ...]
    weight: int
    adds_heads: bool = False

    def command(self, output: Path) -> tuple[str, ...]:
        """The whole vector of a run that writes into a folder."""
        return (*self.argv, f"--output_dir={output}")


class MissingScriptError(BuildError):
    """The image lacks a script in all folders.

    Attributes:
        clause: what is missing, without the fix.
    """

    def __init__(self, clause: str, version: str) -> None:
        super().__init__(
            "ImageMismatch",
            f"the image is no TensorRT-LLM image: {clause}; set spec.runtime.image to one "
            f"of version {version}",
        )
        self.clause = clause


def steps(
    plan: EnginePlan, config: Mapping[str, Any], work: Path, present: Callable[[Path], bool]
) -> list[Step]:
    """Plan a build.

    Args:
        plan: what to build.
        config: the checkpoint's `config.json`.
        work: where the steps' folders lie: `work / step.name` is what a later step reads.
        present: whether a file exists in the image, to find a script where the release keeps it.

    Raises:
        BuildError: the architecture or the image has no converter for this plan.
    """
    architecture = _architecture(config)
    if architecture not in _FAMILIES:
        raise BuildError(
            "UnsupportedArchitecture",
            f"architecture {architecture} of the {plan.role} has no converter here; use one of "
            f"{', '.join(_FAMILIES)}, or a prebuilt engine",
        )
    bases = _BASES.get(plan.mode)
    if bases is not None and architecture not in bases:
        raise BuildError(
            "UnsupportedArchitecture",
            f"architecture {architecture} cannot carry heads of mode {plan.mode}; use one of "
            f"{', '.join(sorted(bases))}",
        )
    checkpoint = list(_checkpoint(plan, config, _FAMILIES[architecture], work, present))
    argv = ("trtllm-build", *flags.vector(flags.engine(plan, work / checkpoint[-1].name)))
    files = ("config.json", *(f"rank{rank}.engine" for rank in range(plan.world)))
    return [*checkpoint, Step("build", argv, files, 60)]


def _checkpoint(
    plan: EnginePlan,
    config: Mapping[str, Any],
    family: str,
    work: Path,
    present: Callable[[Path], bool],
) -> Iterator[Step]:
    """The steps to a TensorRT-LLM checkpoint.

    Heads are converted together with the base model, or in a second step.
    """

    def script(*places: str) -> str:
        return _script(plan, places, present)

    if plan.mode in ("eagle", "medusa") and plan.quantization.method == "None":
        method = script(f"{plan.mode}/convert_checkpoint.py")
        yield _step(
            plan, "convert", method, flags.split(plan), flags.eagle_or_medusa(plan, config)
        )
        return
    if plan.mode == "explicit_draft_tokens" and not _later(plan):
        yield from _old_redrafter(plan, config, script("redrafter/convert_checkpoint.py"))
        return
    if plan.quantization.method != "None":
        yield _step(
            plan,
            "quantize",
            script("quantization/quantize.py"),
            flags.split(plan),
            flags.quantize(plan),
        )
    else:
        base = script(
            f"models/core/{family}/convert_checkpoint.py", f"{family}/convert_checkpoint.py"
        )
        yield _step(plan, "convert", base, flags.split(plan), flags.convert(plan, family))
    if plan.mode == "explicit_draft_tokens":
        source = work / ("convert" if plan.quantization.method == "None" else "quantize")
        path = script("redrafter/convert_checkpoint.py")
        base_flag = {"base_model_checkpoint_dir": source}
        yield _step(plan, "heads", path, base_flag, flags.redrafter(plan, config))


def _step(plan: EnginePlan, name: str, script: str, *parts: Mapping[str, object]) -> Step:
    merged = {key: value for part in parts for key, value in part.items()}
    expects = ("config.json", *(f"rank{rank}.safetensors" for rank in range(plan.world)))
    weight = {"convert": 20, "quantize": 40, "heads": 5}[name]
    # With ReDrafter from 1.0 on, the heads are a step of their own after the base model.
    adds_heads = any(flag in merged for flag in _HEADS)
    return Step(name, ("python3", script, *flags.vector(merged)), expects, weight, adds_heads)


def _old_redrafter(plan: EnginePlan, config: Mapping[str, Any], script: str) -> Iterator[Step]:
    """Before 1.0 one converter read base model and drafter, Llamas in plain precision only."""
    if plan.quantization.method != "None" or plan.quantization.kv_cache != "Auto":
        raise BuildError(
            "PlanInvalid",
            f"quantization: the ReDrafter converter of {plan.version} has none; leave it out, or "
            "use a runtime.version from 1.0",
        )
    if _FAMILIES[_architecture(config)] != "llama":
        raise BuildError(
            "UnsupportedArchitecture",
            f"architecture {_architecture(config)} carries a ReDrafter from 1.0 on; use a Llama, "
            "or a newer runtime.version",
        )
    yield _step(
        plan, "convert", script, {"model_dir": plan.checkpoint}, flags.redrafter(plan, config)
    )


def _script(plan: EnginePlan, places: tuple[str, ...], present: Callable[[Path], bool]) -> str:
    """The script at the first place where the image has it: 0.19 moved the model families."""
    candidates = [folder / place for folder in plan.examples for place in places]
    for candidate in candidates:
        if present(candidate):
            return str(candidate)
    raise MissingScriptError(f"it has no {' or '.join(map(str, candidates))}", plan.version)


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else "none"


def _later(plan: EnginePlan) -> bool:
    """Whether the release is 1.0 or later."""
    return not plan.version.startswith("0.")
