"""The draft counts of the toy server: in its metrics."""

from specdec.servers.counting import Counters


class ToyCounters(Counters):
    """A page has the counts of an answer before the answer ends."""

    drafts = (("toy_guessed_total", "toy_right_total"),)
    uncounted = "the page of the toy server cannot be read"


COUNTERS = ToyCounters()
