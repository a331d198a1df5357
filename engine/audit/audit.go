// Package audit proves whether recorded data is unchanged. It signs anchors over all histories,
// verifies a store against them, and removes data whose retention has ended without hiding the
// removal.
//
// It uses the engine, which never imports it. It changes the store only by adding anchors and by the recorded
// removals of Retain.
package audit

import (
	"errors"
	"sync/atomic"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Signer signs anchors and removals; *record.Signer implements it. Its key is never in the store.
type Signer interface {
	// Name is part of every anchor.
	Name() string
	// Sign returns the text with a signature, as a note.
	Sign(text string) (note string, err error)
	// Verifier returns the public half of the key.
	Verifier() *record.Verifier
}

// Config configures an Auditor.
type Config struct {
	// Engine and its Store are both required.
	Engine *engine.Engine
	Store  store.Store
	// Signer signs anchors; nil disables anchoring.
	Signer Signer
}

// Auditor anchors, verifies and shortens the records of an engine. It is safe for concurrent use.
type Auditor struct {
	engine *engine.Engine
	store  store.Store
	signer Signer
	mark   atomic.Pointer[anchorMark] // nil until something was anchored
}

// New returns an Auditor.
func New(cfg Config) (*Auditor, error) {
	if cfg.Engine == nil || cfg.Store == nil {
		return nil, errors.New("audit: config needs an Engine and its Store")
	}
	return &Auditor{engine: cfg.Engine, store: cfg.Store, signer: cfg.Signer}, nil
}
