"""`python -m demo`: the whole product on this machine, from nothing to a streamed answer."""
