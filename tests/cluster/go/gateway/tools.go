//go:build tools

// Package gateway keeps the endpoint picker of the Gateway API Inference Extension in go.mod.
package gateway

import _ "sigs.k8s.io/gateway-api-inference-extension/cmd/epp"
