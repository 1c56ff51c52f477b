"""`spec.pods` and environment variables: what pods of a resource have besides their programs."""

from typing import Literal

from specdec.api.value import Value


class Pods(Value):
    """What all pods of a resource share.

    `user` is Fixed for the user and group 10001, and Assigned where the cluster gives each
    namespace its own, as OpenShift does. No pod gets a token of its service account. Some clouds
    recognize a service account by its name or annotations, and give credentials to its pods.
    """

    service_account_name: str | None = None
    user: Literal["Fixed", "Assigned"] = "Fixed"


class Key(Value):
    """A key of a Secret or ConfigMap in the resource's own namespace."""

    name: str
    key: str


class ValueFrom(Value):
    """Where a variable's value is; exactly one is set."""

    secret_key_ref: Key | None = None
    config_map_key_ref: Key | None = None


class Variable(Value):
    """An environment variable: a value, or where it is."""

    name: str
    value: str | None = None
    value_from: ValueFrom | None = None
