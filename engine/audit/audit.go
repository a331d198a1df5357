// Package audit shows whether what was recorded is still what was recorded: it signs
// anchors over all histories, verifies a store against them, and removes what need not be
// kept any longer without hiding that it did.
//
// It stands over the engine, which never imports it, and changes nothing but by anchors and
// by the truncated events of Retain.
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
	// Name goes into every anchor.
	Name() string
	// Sign returns the text with a signature, as a note.
	Sign(text string) (note string, err error)
	// Verifier is the public half.
	Verifier() *record.Verifier
}

// Config is what an Auditor is made of.
type Config struct {
	// Engine and its Store; both are required.
	Engine *engine.Engine
	Store  store.Store
	// Signer signs anchors; nil when nobody anchors here.
	Signer Signer
}

// Auditor anchors, verifies and shortens what an engine recorded. It is safe for concurrent use.
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
