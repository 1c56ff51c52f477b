"""Method None: the target decodes alone."""

from specdec.backends.vllm.methods.definition import VllmMethod

METHOD = VllmMethod()
