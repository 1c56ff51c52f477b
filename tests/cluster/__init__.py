"""A real Kubernetes on this machine, for tests and the demo; see README.md beside this file."""

from cluster.errors import ClusterError
from cluster.handle import Cluster, ControlPlane, Node, attach, users
from cluster.state import Options, State, User

__all__ = [
    "Cluster",
    "ClusterError",
    "ControlPlane",
    "Node",
    "Options",
    "State",
    "User",
    "attach",
    "users",
]
