"""The whole product on a real node: images, Jobs, volumes, probes and tokens."""
