//go:build tools

// Package kwok keeps kwok in go.mod.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
