"""Checks arguments with vLLM's own classes; runs in the Python of an installed vLLM.

Standard input has the cases. A case is a JSON object with `arguments` (of `AsyncEngineArgs`, by
name) or `command` (of the OpenAI server), and `gpus`, the number of simulated H100 GPUs, or 0 for
the CPU platform. The last line of standard output has a list of results: the resolved values, or
`error`.

PATCHES OF THIS PROCESS, where `gpus` is above 0: vLLM's class for CUDA platforms is the current
platform. Only what it would ask a driver has a fixed answer: number, name, memory and compute
capability of the GPUs. The modules of compiled kernels are empty ones, because the CPU wheel lacks
them. The answer to each of vLLM's questions whether a kernel supports the GPU is yes.
"""

import contextlib
import dataclasses
import enum
import io
import json
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_GIB = 1 << 30
_KERNELS = (
    "vllm._C",
    "vllm._C_stable_libtorch",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
)
_PLAIN = (bool, int, float, str, type(None))
# The parts of vLLM's configuration that decide what is served, with their values that are plain.
_PARTS = (
    "cache_config",
    "lora_config",
    "model_config",
    "parallel_config",
    "quant_config",
    "scheduler_config",
    "speculative_config",
    "structured_outputs_config",
)


def simulate_gpus(count: int) -> None:
    """Make vLLM use its platform for CUDA, with `count` H100 of 80 GB."""
    sys.modules.update({name: types.ModuleType(name) for name in _KERNELS})
    from vllm import platforms
    from vllm.platforms import cuda
    from vllm.platforms.interface import DeviceCapability

    def answer(value: object) -> Any:
        return classmethod(lambda *_, **__: value)

    answers = {
        "check_if_supports_dtype": answer(None),
        "device_count": answer(count),
        "get_all_device_numa_nodes": answer(None),
        "get_device_capability": answer(DeviceCapability(9, 0)),
        "get_device_name": answer("NVIDIA H100 80GB HBM3"),
        "get_device_total_memory": answer(80 * _GIB),
        "get_device_uuid": answer("GPU-0"),
        "import_kernels": answer(None),
        "is_fully_connected": answer(True),
        "is_integrated_gpu": answer(False),
        "num_compute_units": answer(132),
    }
    simulated = type("SimulatedCudaPlatform", (cuda.NonNvmlCudaPlatform,), answers)
    platforms._current_platform = simulated()
    from vllm import _custom_ops

    # Whether a kernel supports the GPU; an H100 has all kernels that the questions are about.
    for name in [name for name in dir(_custom_ops) if "_supports_" in name]:
        setattr(_custom_ops, name, lambda *_, **__: True)


def values(config: object) -> dict[str, Any]:
    """Return the resolved values of a `VllmConfig` by part, without objects."""
    parts = {name: getattr(config, name, None) for name in _PARTS}
    return {name: _plain(part) for name, part in parts.items() if part is not None}


def _plain(part: object, depth: int = 0) -> Any:
    if isinstance(part, enum.Enum):
        return part.name
    if isinstance(part, _PLAIN):
        return part
    if isinstance(part, list | tuple):
        return [_plain(item, depth) for item in part]
    if isinstance(part, Mapping):
        return {str(key): _plain(value, depth) for key, value in part.items()}
    if dataclasses.is_dataclass(part) and depth < 1:
        names = [field.name for field in dataclasses.fields(part)]
        actual = {name: getattr(part, name, None) for name in names}
        return {name: _plain(value, depth + 1) for name, value in actual.items()}
    return f"{type(part).__module__}.{type(part).__qualname__}"


def from_arguments(arguments: Mapping[str, Any]) -> object:
    """Return vLLM's configuration for the arguments by name."""
    from vllm import AsyncEngineArgs

    return AsyncEngineArgs(**arguments).create_engine_config()


def from_command(command: list[str]) -> tuple[object, dict[str, Any]]:
    """Return vLLM's configuration for a command line of its OpenAI server, and the options."""
    from vllm import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    try:
        from vllm.entrypoints.openai import cli_args
    except ImportError:  # 0.32 has it elsewhere
        from vllm.entrypoints.launchers import cli_args
    options = cli_args.make_arg_parser(FlexibleArgumentParser()).parse_args(command)
    cli_args.validate_parsed_serve_args(options)
    config = AsyncEngineArgs.from_cli_args(options).create_engine_config()
    return config, {name: _plain(value) for name, value in vars(options).items()}


def check(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values or the error of a case."""
    output = io.StringIO()
    try:
        if "command" in case:
            with contextlib.redirect_stderr(output):
                config, options = from_command(list(case["command"]))
            return {"values": values(config), "options": options}
        return {"values": values(from_arguments(case["arguments"]))}
    except SystemExit:
        return {"error": output.getvalue().strip().rpartition("error: ")[2]}
    except Exception as error:  # noqa: BLE001 - whatever vLLM raises is its refusal
        return {"error": f"{type(error).__name__}: {error}"}


def run(cases: Iterable[Mapping[str, Any]], gpus: int) -> list[dict[str, Any]]:
    """Return the results of all cases."""
    if gpus:
        simulate_gpus(gpus)
    return [check(case) for case in cases]


def main(write: Callable[[str], object] = print) -> None:
    """Read the cases, and write the results in the last line."""
    body = json.load(sys.stdin)
    results = run(body["cases"], body["gpus"])
    write(json.dumps(results))


if __name__ == "__main__":
    main()
