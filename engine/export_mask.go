package engine

import (
	"bytes"
	"encoding/json"
	"regexp"
	"sync"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// ExportMask masks one instance in an export. It replaces the values that any version of its definition marks
// as sensitive with keyed digests, salted for the export. It removes these values everywhere else.
type ExportMask struct {
	digester Digester
	cfg      ExportMaskConfig
	masking  masking
}

// ExportMaskConfig configures an ExportMask.
type ExportMaskConfig struct {
	Owner, Workflow string // of the instance
	Salt            string // of the export
	// Definitions are all versions that the instance has ever had.
	Definitions []*workflow.Definition
	// Documents are all documents that the instance has ever held.
	Documents []json.RawMessage
}

// NewExportMask returns the mask of one instance.
func (e *Engine) NewExportMask(cfg ExportMaskConfig) *ExportMask {
	return &ExportMask{digester: e.cfg.Digester, cfg: cfg, masking: newMasking(cfg.Documents, cfg.Definitions...)}
}

// Document masks a document of the instance or of its record. Digests that already replace sensitive
// values are salted.
func (m *ExportMask) Document(doc json.RawMessage) (json.RawMessage, error) {
	made := map[string]bool{} // several versions may mark the same path as sensitive
	return m.masking.maskDocumentWith(doc, func(path string, value json.RawMessage) string {
		text, out := "", ""
		if json.Unmarshal(value, &text) == nil {
			if made[text] {
				return text
			}
			out = m.Digest(text)
		}
		if out == text {
			scope := scopeOf(purposeValue, m.cfg.Owner, m.cfg.Workflow)
			scope.Path = path
			out = m.digester.Salt(m.cfg.Salt, m.digester.DigestIn(scope, value))
		}
		made[out] = true
		return out
	})
}

// Digest returns a keyed digest of this store as the export shows it, and any other text unchanged.
func (m *ExportMask) Digest(text string) string {
	if salt, ok := record.IsDigest(text); ok && salt == "" {
		return m.digester.Salt(m.cfg.Salt, text)
	}
	return text
}

// Text removes sensitive values from a text.
func (m *ExportMask) Text(text string) string { return m.masking.scrubText(text) }

// Action removes sensitive values from an action that no version defines.
func (m *ExportMask) Action(action string) string {
	return m.masking.scrubAction(action)
}

// Decision returns a decision as the export shows it.
func (m *ExportMask) Decision(d record.Decision) Decision {
	out := decisionView(&d)
	if m.masking.scrub != nil {
		out = scrubDecision(out, m.masking.scrub)
	}
	out.Evidence = m.masking.maskEvidence(withoutContent(d.Evidence))
	for i := range out.Evidence {
		ev := &out.Evidence[i]
		ev.Digest, ev.SameDigest = m.Digest(ev.Digest), m.Digest(ev.SameDigest)
	}
	return out
}

// ForeignObject masks data that another program wrote next to the fields that gavel knows. Its structure
// is unknown and it may contain contexts, so every object in it is masked as a context.
func (m *ExportMask) ForeignObject(doc json.RawMessage) (json.RawMessage, error) {
	if m.masking.scrub == nil || len(doc) == 0 {
		return doc, nil
	}
	masked, err := m.maskNested(doc)
	if err != nil {
		return nil, err
	}
	return scrubStrings(masked, m.masking.scrub)
}

func (m *ExportMask) maskNested(value json.RawMessage) (json.RawMessage, error) {
	switch value[0] {
	case '{':
		masked, err := m.Document(value)
		if err != nil {
			return nil, err
		}
		members := map[string]json.RawMessage{}
		if err := json.Unmarshal(masked, &members); err != nil {
			return nil, err
		}
		for name, inner := range members {
			if members[name], err = m.maskNested(inner); err != nil {
				return nil, err
			}
		}
		return json.Marshal(members)
	case '[':
		var items []json.RawMessage
		if err := json.Unmarshal(value, &items); err != nil {
			return nil, err
		}
		for i := range items {
			var err error
			if items[i], err = m.maskNested(items[i]); err != nil {
				return nil, err
			}
		}
		return json.Marshal(items)
	}
	return value, nil
}

// plainHash matches a hash without a key, which discloses nothing.
var plainHash = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`) })

func isAnyDigest(text string) bool {
	_, keyed := record.IsDigest(text)
	return keyed || plainHash().MatchString(text)
}

// scrubStrings returns a document with sensitive values removed from all its strings and numbers. Digests
// are kept: anything in them that looks like a value is a coincidence.
func scrubStrings(doc json.RawMessage, scrub func(string) string) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(scrubValue(value, scrub))
}

func scrubValue(value any, scrub func(string) string) any {
	switch v := value.(type) {
	case string:
		if isAnyDigest(v) {
			return v
		}
		return scrub(v)
	case json.Number:
		if clean := scrub(v.String()); clean != v.String() {
			return clean
		}
	case []any:
		for i := range v {
			v[i] = scrubValue(v[i], scrub)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			out[scrub(key)] = scrubValue(inner, scrub)
		}
		return out
	}
	return value
}
