package workflow

import (
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Facts are what the fold of an instance's events knows in addition to state and
// context. A rollback restores the facts of its revision, so undone visits do not
// count.
type Facts struct {
	// Visited are the states entered, each once, in order of the first visit.
	Visited []string `json:"visited,omitempty"`
	// Frozen are the JSON pointers that applied transitions froze, each once.
	Frozen []string `json:"frozen,omitempty"`
	// Performed maps an action to the principals that performed it (applied moves only).
	Performed map[string][]string `json:"performed,omitempty"`
	// Reviews are those that wait for a person, at most one per action. A rollback
	// restores none.
	Reviews []OpenReview `json:"reviews,omitempty"`
}

// OpenReview is what the fold knows of a review that waits.
type OpenReview struct {
	ID     string `json:"id"`
	Action string `json:"action"`
	// Digest binds it to what was asked.
	Digest string `json:"digest"`
	// Seq is that of the event which opened it.
	Seq int64 `json:"seq"`
}

// CaseInput is what Definition.Case needs in addition to the definition.
type CaseInput struct {
	Operation judge.Operation
	Precheck  bool
	Version   int
	// Owner wrote this version of the definition.
	Owner validators.Owner
	// Instance is the id, "" for a start.
	Instance string
	// State is the present one; ignored for a start.
	State string
	// Ended is "" while the instance runs, else "final" or "cancelled".
	Ended  string
	Action string
	// Data is the action's (for a start: the start context), Context the
	// accumulated one. JSON objects that document.CheckJSON accepted; nil is {}.
	Data, Context json.RawMessage
	// Read is Data, where that was read already.
	Read document.JSON
	// CallersContext says that the context is the caller's claim, not one that an
	// instance accumulated: no evidence is fetched with it.
	CallersContext  bool
	Principal, Role string
	Facts           Facts
	// Overlays are judge-config revisions in force, applied in order over
	// judgeConfig: a later one wins (tightenings of agents come last and only raise).
	Overlays        []Overlay
	JudgeConfigHash string
	ReviewPath      bool
	Now             time.Time
	Seed            int64
}

// Overlay is one judge-config revision in force.
type Overlay struct {
	Settings JudgeSettings
	// TightenOnly keeps the stricter of the present value and the overlay's:
	// enabled true, strictMode true, the higher minConfidence.
	TightenOnly bool
}
