"""Pure builders of Kubernetes objects: modules for the children, and modules for their parts."""
