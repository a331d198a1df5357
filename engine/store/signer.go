package store

import (
	"github.com/gavel-mcp/gavel/engine/record"
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
