//go:build tools

// Package prometheus keeps promtool in go.mod.
package prometheus

import _ "github.com/prometheus/prometheus/cmd/promtool"
