package engine

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// masking removes the values that versions of a definition mark as sensitive: from documents at the marked
// paths, and from texts and the rest of documents wherever they reappear. All recorded text must pass
// through a masking before it is shown.
type masking struct {
	definitions []*workflow.Definition
	sensitive   []*workflow.Definition // one for each distinct list of sensitive paths
	scrub       func(string) string    // nil if no version marks anything as sensitive
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

// maskDocumentWith replaces sensitive values with the results of replace.
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

func (m masking) maskEvidence(all []judge.Evidence) []judge.Evidence {
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

// scrubAction removes sensitive values from an action, because callers may request any text as an action. An
// action that a definition names is not secret.
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

// maskWords returns the masking for texts about an instance, applied before they are recorded. Sensitive
// values occur only in the context and in open reviews.
func (i instance) maskWords(docs ...json.RawMessage) masking {
	return newMasking(append(docs, i.Context), i.def)
}

// Purposes of digests. Each purpose has separate keys for every owner and workflow, and for values also
// for every path.
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

// contextScope returns the scope of the digest by which a decision identifies its context.
func contextScope(owner, workflow string) record.Scope {
	return scopeOf(purposeContext, owner, workflow)
}

func digestContext(keyed Digester, inst record.Instance, context json.RawMessage) string {
	return keyed.DigestIn(contextScope(inst.Owner, inst.Workflow), context)
}

// digestEvidence returns the digest function for evidence that holds sensitive values.
func digestEvidence(keyed Digester, inst record.Instance) func([]byte) string {
	scope := scopeOf(purposeEvidence, inst.Owner, inst.Workflow)
	return func(content []byte) string { return keyed.DigestIn(scope, content) }
}

// maskForRecord replaces sensitive values with keyed digests, and removes their copies. It is used to record data that
// may never become part of the context, so that nobody can find the copies later.
func maskForRecord(keyed Digester, inst instance, doc document.JSON) json.RawMessage {
	scope := scopeOf(purposeValue, inst.Owner, inst.def.Name)
	masked := inst.def.MaskJSON(doc, func(path string, value json.RawMessage) string {
		scope.Path = path
		return keyed.DigestIn(scope, value)
	}).Raw()
	scrub := inst.maskWords(doc.Raw()).scrub
	if scrub == nil || scrub(string(masked)) == string(masked) {
		return masked
	}
	return scrubDocument(masked, scrub)
}

// MaskCopies removes from documents of an instance what is sensitive in the instance or in one of its events.
func (e *Engine) MaskCopies(ctx context.Context, ev record.Event, docs ...*json.RawMessage) error {
	mask, err := e.newView(Principal{}).maskingFor(ctx, ev)
	for _, doc := range docs {
		if err == nil && len(*doc) > 0 {
			*doc, err = mask.maskDocument(*doc)
		}
	}
	return err
}
