//go:build !unix

package pgtest

import "errors"

type process struct{}

func findBinaries() string { return "" } // servers are started only where they can be given another user

func start(string) (*Server, error) { return nil, errors.ErrUnsupported }

// Folder implements the method of other systems.
func (*process) Folder() string { return "" }

// Stop implements the method of other systems.
func (*Server) Stop() {}
