"""Migrations by the backend that they lead to, for the command `specdec migrate`.

The package of a backend has a module `migration` if resources of other backends can become its
own.
"""

from importlib import import_module
from importlib.util import find_spec

from specdec.api.matrix import Backend
from specdec.backends.migration import Body, Migration

_PACKAGE = __name__.rpartition(".")[0]


def _module(backend: str) -> str:
    return f"{_PACKAGE}.{backend.lower()}.migration"


# The backends to which resources migrate.
BACKENDS = tuple(backend.value for backend in Backend if find_spec(_module(backend)))


def migrate(to: str, body: Body) -> Migration:
    """The equivalent of a valid resource in one of `BACKENDS`."""
    migrated: Migration = import_module(_module(to)).migrate(body)
    return migrated
