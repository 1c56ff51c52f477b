"""What holds for all tests."""

from hypothesis import settings

# An example that is slow on a busy machine is no failure; measured limits are benchmarks.
settings.register_profile("specdec", deadline=None)
settings.load_profile("specdec")
