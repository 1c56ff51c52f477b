"""The stages of a resource, each a pure function of the actual state and of earlier stages."""
