//go:build tools

// Package lws keeps the LeaderWorkerSet manager in go.mod.
package lws

import _ "sigs.k8s.io/lws/cmd"
