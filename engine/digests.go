package engine

import (
	"encoding/json"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The purposes of digests. Each has keys of its own for every owner and workflow, values
// for every path as well.
const (
	purposeValue    = "gavel/value/v1"
	purposeContext  = "gavel/context/v1"
	purposeReview   = "gavel/review/v2"
	purposeEvidence = "gavel/evidence/v1"
)

func scopeOf(purpose, owner, workflow string) record.Scope {
	return record.Scope{Purpose: purpose, Owner: owner, Workflow: workflow}
}

// ContextScope is the scope of the digest by which a decision names its context.
func ContextScope(owner, workflow string) record.Scope {
	return scopeOf(purposeContext, owner, workflow)
}

func (e *Engine) digestContext(inst record.Instance, context json.RawMessage) string {
	return e.cfg.Digester.DigestIn(ContextScope(inst.Owner, inst.Workflow), context)
}

// digestEvidence is for evidence that holds sensitive values. Evidence that is fetched
// again for a review gets digests of the form that the review was opened with.
func (e *Engine) digestEvidence(inst record.Instance, before []judge.Evidence) func([]byte) string {
	scope := scopeOf(purposeEvidence, inst.Owner, inst.Workflow)
	for _, ev := range before {
		if record.IsUnscoped(ev.Digest) {
			return e.cfg.Digester.Digest
		}
	}
	return func(content []byte) string { return e.cfg.Digester.DigestIn(scope, content) }
}

// maskForRecord replaces sensitive values by keyed digests: what a record keeps
// of data that may never be part of the context.
func (e *Engine) maskForRecord(owner string, d *workflow.Definition, doc document.JSON) json.RawMessage {
	scope := scopeOf(purposeValue, owner, d.Name)
	return d.MaskJSON(doc, func(path string, value json.RawMessage) string {
		scope.Path = path
		return e.cfg.Digester.DigestIn(scope, value)
	}).Raw()
}
