"""Finds the program of the LLM API's model in the server's image, and hands the model to Triton.

The program belongs to the release in the image, so the repository does not contain it. On the
Reference image it is a stand-in for CPUs.
"""

import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

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
            model: type = module.TritonPythonModel
            return model
    places = ", ".join(map(str, _FOLDERS))
    raise pb_utils.TritonModelException(
        f"the image has no model of the LLM API in {places}: set spec.runtime.image to an image "
        "of TensorRT-LLM for Triton"
    )


TritonPythonModel = _model()
