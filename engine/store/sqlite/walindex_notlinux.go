//go:build !linux

package sqlite

// walIndex is the index of the write-ahead log, which is supported on Linux only.
type walIndex struct{}

func openWALIndex(string) *walIndex { return nil }

func (*walIndex) close() error { return nil }

func (*walIndex) read() (stamp, bool) { return stamp{}, false }
