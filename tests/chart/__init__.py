"""The Helm chart, rendered and installed."""
