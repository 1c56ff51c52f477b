"""Pure builders of Kubernetes objects, one module per kind of child."""
