"""Labels and annotations that a resource puts on its children, by their kind."""

from pydantic import Field

from specdec.api.value import Value


class Tags(Value):
    """Labels and annotations, as Kubernetes has them."""

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class ChildMetadata(Value):
    """Labels and annotations for queues, cost reports, service meshes and certificate issuers.

    Each field is a kind of child: `servers` are Deployments or LeaderWorkerSets, and `routes` an
    HTTPRoute or an Ingress.
    """

    jobs: Tags = Tags()
    job_pods: Tags = Tags()
    servers: Tags = Tags()
    server_pods: Tags = Tags()
    services: Tags = Tags()
    routes: Tags = Tags()
