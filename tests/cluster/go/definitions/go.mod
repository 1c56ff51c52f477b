module specdec.dev/tests/cluster/definitions

go 1.24.0

// Their manifests alone are used: definitions of kinds that a cluster may have.
require (
	github.com/kedacore/keda/v2 v2.17.2
	sigs.k8s.io/gateway-api v1.3.0
)
