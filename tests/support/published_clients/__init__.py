"""SIMULATION of the published gRPC clients: what they send, and how they read the responses.

Each module follows one client of the TensorRT-LLM backend in its requests, its calls of
tritonclient and its indices into the outputs. A module crashes where its client would crash: it
must not accept a shape that the client cannot read.
"""
