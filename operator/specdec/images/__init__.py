"""What runs beside a model or in an engine build.

`openai` and the modules that the operator reads are part of the package. The other folders hold
programs for containers without this package, so they import nothing of it.
"""
