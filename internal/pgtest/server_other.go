//go:build !unix

package pgtest

import "errors"

type process struct{}

func findBinaries() string { return "" } // servers are started only on systems that can run them as another user

func start(string) (*Server, error) { return nil, errors.ErrUnsupported }

// Folder exists for compatibility with other systems.
func (*process) Folder() string { return "" }

// Stop exists for compatibility with other systems.
func (*Server) Stop() {}
