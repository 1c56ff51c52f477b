"""One pure function per stage: observed state in, objects wanted and conditions out."""
