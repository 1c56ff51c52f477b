"""The names of the released images."""

from specdec import __version__

REGISTRY = "ghcr.io/specdec"
"""Registry and organisation."""
OPERATOR_IMAGE = f"{REGISTRY}/operator:{__version__}"


def reference_beside(operator: str) -> str:
    """The Reference server's image for an operator's: the same registry, organisation and tag.

    If the operator's image has a digest and no tag, the tag is this version.
    """
    folder, slash, name = operator.partition("@")[0].rpartition("/")
    tag = name.partition(":")[2] or __version__
    return f"{folder}{slash}reference:{tag}"
