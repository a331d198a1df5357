//go:build !unix

package pgtest

import "errors"

type process struct{}

func findBinaries() string { return "" } // servers are started only on systems that can run them as another user

func start(string) (*Server, error) { return nil, errors.ErrUnsupported }

// Folder exists so that callers compile on every system.
func (*process) Folder() string { return "" }

// Stop exists so that callers compile on every system.
func (*Server) Stop() {}
