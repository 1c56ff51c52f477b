//go:build tools

// Package load keeps an independent load generator in go.mod.
package load

import _ "github.com/rakyll/hey"
