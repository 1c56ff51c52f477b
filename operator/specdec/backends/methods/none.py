"""Method None: the target decodes alone."""

from specdec.backends.methods.definition import MethodDefinition

METHOD = MethodDefinition()
