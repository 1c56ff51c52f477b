"""specdec: speculative decoding services on Kubernetes, from checkpoint to proof."""

__version__ = "0.1.0"
