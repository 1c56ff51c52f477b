"""The files of a Triton model repository and the command line of a server, as pure functions."""
