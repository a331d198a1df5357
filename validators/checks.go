package validators

import (
	"encoding/json"

	"github.com/gavel-mcp/gavel/validators/script"
)

// Checks is the deterministic part of one transition (or of one state's
// entry): what must be there, what shape it must have, and which scripts must
// agree. It is configuration; Compiler turns it into a Set.
type Checks struct {
	// RequiredFields are JSON pointers ("/customer/id") or dotted names
	// ("customer.id"); a plain name is a top-level key. Present and not null.
	RequiredFields []string `json:"requiredFields,omitempty"`
	// Schema is a JSON Schema, 2020-12 unless $schema says otherwise. Empty: none.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Validators are functions that must all agree.
	Validators []script.Script `json:"validators,omitempty"`
	// Routes are the conditions of a route list, in order. Empty for a plain target.
	Routes []script.Script `json:"routes,omitempty"`
}

// Owner is who wrote the checks. What a stranger wrote never runs in this
// process unguarded.
type Owner = script.Owner
