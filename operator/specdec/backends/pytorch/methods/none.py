"""Method None: the target decodes alone."""

from specdec.backends.pytorch.methods.definition import LlmApiMethod

METHOD = LlmApiMethod()
