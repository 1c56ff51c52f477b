"""The Triton model repository and how a server is launched on it; pure text and arguments."""
