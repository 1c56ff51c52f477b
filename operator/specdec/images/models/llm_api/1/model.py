"""Finds the program of the LLM API's model in the server's image, and hands the model to Triton.

The program belongs to the release in the image, so the repository does not contain it. On the
Reference image it is a stand-in for CPUs.
"""

import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import image_packages
import triton_python_backend_utils as pb_utils

_MODEL = "llmapi/tensorrt_llm/1"
# Triton's images of TensorRT-LLM, NVIDIA's release image of TensorRT-LLM, the Reference image.
_FOLDERS = (
    Path("/app/all_models") / _MODEL,
    Path("/app/tensorrt_llm/triton_backend/all_models") / _MODEL,
    Path(pb_utils.__file__).resolve().parents[1] / "tensorrtllm" / "llm_api",
)


def _model() -> type:
    """The class that Triton's python backend runs.

    Raises:
        TritonModelException: the image has no such program.
    """
    # Before the program, because it and its ranks import TensorRT-LLM.
    if replaced := image_packages.use():
        print(replaced, flush=True)
    for folder in _FOLDERS:
        if (folder / "model.py").is_file():
            # The program imports modules beside it.
            sys.path.insert(0, str(folder))
            loader = SourceFileLoader("llm_api_model", str(folder / "model.py"))
            module = ModuleType(loader.name)
            module.__file__ = loader.path
            sys.modules[loader.name] = module
            loader.exec_module(module)
            _decode_stop_texts(module)
            model: type = module.TritonPythonModel
            return model
    places = ", ".join(map(str, _FOLDERS))
    raise pb_utils.TritonModelException(
        f"the image has no model of the LLM API in {places}: set spec.runtime.image to an image "
        "of TensorRT-LLM for Triton"
    )


def _decode_stop_texts(program: ModuleType) -> None:
    """Let the program give stop texts to its tokenizer as text.

    The programs of all releases up to August 2026 pass on the bytes of the tensor, which the
    tokenizer refuses, so that every request with a stop text would fail.
    """
    name = "get_sampling_params_from_request"
    for module in (program, sys.modules.get("helpers")):
        if read := getattr(module, name, None):
            setattr(module, name, _with_texts(read))


def _with_texts(read: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A reader of sampling parameters whose stop texts are text; empty ones are left out."""

    def texts(*arguments: Any, **options: Any) -> dict[str, Any]:
        values = read(*arguments, **options)
        given = values.get("stop")
        if given is not None:
            decoded = [s.decode("utf-8") if isinstance(s, bytes) else str(s) for s in given]
            values["stop"] = [stop for stop in decoded if stop] or None
        return values

    return texts


TritonPythonModel = _model()
