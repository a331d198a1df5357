package engine

import (
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
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
func maskWords(inst record.Instance, l definition, docs ...json.RawMessage) masking {
	return newMasking(append(docs, inst.Context), l.def)
}
