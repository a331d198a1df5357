//go:build !unix && !windows

package worker

import (
	"errors"

	"github.com/gavel-mcp/gavel/validators/script"
)

func notHere(script.Setup) error { return errors.New("not on this platform") }

var hardening = []protection{{protectMemory, notHere}, {protectLandlock, notHere}, {protectSeccomp, notHere}}

func enter() {}
