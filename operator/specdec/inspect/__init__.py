"""What a person asks of a running cluster (extra `client`): `specdec status`, `specdec top`."""
