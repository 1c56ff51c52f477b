module specdec.dev/tests/cluster/local

go 1.24.0
