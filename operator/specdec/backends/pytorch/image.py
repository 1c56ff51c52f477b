"""What specdec expects of an image that serves the LLM API, as data for the image check."""

from typing import Any

from specdec.api.matrix import support

_NAME = "PyTorch"
# The front end that is no model of Triton, as its console script.
_PROGRAMS = ("trtllm-serve",)
# What the model of the LLM API imports in its own process and in that of each rank.
_MODULES = (
    "tensorrt_llm",
    "tensorrt_llm.llmapi.llm",
    "tensorrt_llm.llmapi.llm_utils",
    "tensorrt_llm.executor.worker",
    "tensorrt_llm._torch.pyexecutor.py_executor",
)


def releases() -> tuple[str, ...]:
    """Releases that an image can be compared with; the last one is the default."""
    row = support(_NAME)
    return (*(v for v in row.versions if v != row.default_version), row.default_version)


def expectations(version: str) -> dict[str, Any]:
    """Version, and the programs and modules that have to start, as JSON.

    Nothing is built and the image's program serves, so there are no templates to compare.
    """
    row = support(_NAME)
    return {
        "version": version,
        "image": row.image(version),
        "served": list(row.versions),
        "examples": [],
        "templates": [],
        "models": {},
        "requestFields": {},
        "programs": list(_PROGRAMS),
        "modules": list(_MODULES),
    }
