"""How each kind of model server is started and spoken to: one package per kind.

Each package has the modules `serving`, `requests` and `counters`; `kind` describes them.
"""

from specdec.servers.kind import kind, kinds, of

__all__ = ["kind", "kinds", "of"]
