package engine

import (
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// masking removes what versions of a definition call sensitive: from documents where it
// must be, and from texts and the rest of documents wherever it turns up again. Everything
// that was written down and is shown goes through one.
type masking struct {
	definitions []*workflow.Definition
	sensitive   []*workflow.Definition // those that differ in what they call sensitive
	scrub       func(string) string    // nil when no version calls anything sensitive
}

func newMasking(docs []json.RawMessage, versions ...*workflow.Definition) masking {
	m := masking{definitions: versions}
	for _, d := range versions {
		if len(d.Sensitive) == 0 || slices.ContainsFunc(m.sensitive, func(v *workflow.Definition) bool { return slices.Equal(v.Sensitive, d.Sensitive) }) {
			continue
		}
		m.sensitive = append(m.sensitive, d)
		next := d.Scrubber(docs...)
		if before := m.scrub; before != nil {
			last := next
			next = func(text string) string { return last(before(text)) }
		}
		m.scrub = next
	}
	return m
}

func (m masking) maskDocument(doc json.RawMessage) (json.RawMessage, error) {
	return m.maskDocumentWith(doc, nil)
}

// maskDocumentWith puts what replace makes of them in the place of sensitive values.
func (m masking) maskDocumentWith(doc json.RawMessage, replace func(path string, value json.RawMessage) string) (json.RawMessage, error) {
	for _, d := range m.sensitive {
		var err error
		if doc, err = d.Mask(doc, replace); err != nil {
			return nil, InternalError("mask a document", err)
		}
	}
	if m.scrub == nil || m.scrub(string(doc)) == string(doc) {
		return doc, nil
	}
	return scrubDocument(doc, m.scrub), nil
}

func (m masking) scrubText(text string) string {
	if m.scrub == nil {
		return text
	}
	return m.scrub(text)
}

func (m masking) maskEvidence(all []Evidence) []Evidence {
	out := slices.Clone(all)
	for i := range out {
		ev := &out[i]
		ev.Detail = m.scrubText(ev.Detail)
		if m.scrub != nil {
			ev.Content, ev.Arguments = scrubDocument(ev.Content, m.scrub), scrubDocument(ev.Arguments, m.scrub)
		}
	}
	return out
}

// scrubAction is an action without sensitive values: anything can be asked for. One that a
// definition has is no secret.
func (m masking) scrubAction(action string) string {
	for _, d := range m.definitions {
		for _, s := range d.States {
			if _, ok := s.Transitions[action]; ok {
				return action
			}
		}
	}
	return m.scrubText(action)
}

// maskWords is for what somebody writes about an instance, before it is recorded: only the
// context, and a review that is open, hold sensitive values.
func (i instance) maskWords(docs ...json.RawMessage) masking {
	return newMasking(append(docs, i.Context), i.def)
}

// The purposes of digests. Each has keys of its own for every owner and workflow, values
// for every path as well.
const (
	purposeValue    = "gavel/value/v1"
	purposeContext  = "gavel/context/v1"
	purposeReview   = "gavel/review/v2"
	purposeEvidence = "gavel/evidence/v1"
	purposeCall     = "gavel/call/v1"
)

func scopeOf(purpose, owner, workflow string) record.Scope {
	return record.Scope{Purpose: purpose, Owner: owner, Workflow: workflow}
}

// contextScope is the scope of the digest by which a decision names its context.
func contextScope(owner, workflow string) record.Scope {
	return scopeOf(purposeContext, owner, workflow)
}

func digestContext(keyed Digester, inst record.Instance, context json.RawMessage) string {
	return keyed.DigestIn(contextScope(inst.Owner, inst.Workflow), context)
}

// digestEvidence is for evidence that holds sensitive values.
func digestEvidence(keyed Digester, inst record.Instance) func([]byte) string {
	scope := scopeOf(purposeEvidence, inst.Owner, inst.Workflow)
	return func(content []byte) string { return keyed.DigestIn(scope, content) }
}

// maskForRecord replaces sensitive values by keyed digests: what a record keeps
// of data that may never be part of the context.
func maskForRecord(keyed Digester, owner string, d *workflow.Definition, doc document.JSON) json.RawMessage {
	scope := scopeOf(purposeValue, owner, d.Name)
	return d.MaskJSON(doc, func(path string, value json.RawMessage) string {
		scope.Path = path
		return keyed.DigestIn(scope, value)
	}).Raw()
}
