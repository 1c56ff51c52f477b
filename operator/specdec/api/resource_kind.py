"""The kind of the resource. Programs that need no more of the API do not load its model."""

GROUP = "specdec.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "SpeculativeModel"
PLURAL = "speculativemodels"
