//go:build !unix && !windows

package worker

import (
	"errors"

	"github.com/gavel-mcp/gavel/validators/script"
)

func failUnsupported(script.Setup) error { return errors.New("not on this platform") }

var hardening = []protection{{protectMemory, failUnsupported}, {protectLandlock, failUnsupported}, {protectSeccomp, failUnsupported}}

func prepareProcess() {}
