//go:build tools

// Package helm keeps helm in go.mod.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
