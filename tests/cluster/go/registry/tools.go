//go:build tools

// Package registry keeps crane, whose `registry serve` is a registry of images, in go.mod.
package registry

import _ "github.com/google/go-containerregistry/cmd/crane"
