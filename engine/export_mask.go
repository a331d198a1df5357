package engine

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// scrubberOf removes from texts what versions of a definition call sensitive in every
// document that an instance ever had; nil when they call nothing so.
func scrubberOf(versions map[int]*workflow.Definition, docs []json.RawMessage) func(string) string {
	all := make([]*workflow.Definition, 0, len(versions))
	for _, v := range slices.Sorted(maps.Keys(versions)) {
		all = append(all, versions[v])
	}
	return maskingOf(docs, all...).scrub
}

// documentsOf are the documents of events. What decisions hold is plain where the version
// of then did not call it sensitive.
func documentsOf(events []record.Event) []json.RawMessage {
	var docs []json.RawMessage
	for _, ev := range events {
		if len(ev.Patch) > 0 {
			docs = append(docs, ev.Patch)
		}
		if ev.Decision != nil && len(ev.Decision.Data) > 0 {
			docs = append(docs, ev.Decision.Data)
		}
	}
	return docs
}

func (x *exporting) clean(text string) string {
	if x.scrub == nil {
		return text
	}
	return x.scrub(text)
}

// action is one as an export shows it.
func (x *exporting) action(action string) string {
	if x.scrub == nil || action == "" {
		return action
	}
	return scrubbedAction(action, x.scrub, slices.Collect(maps.Values(x.versions))...)
}

// overlay puts what an imported part held beside its fields back into it.
func (x *exporting) overlay(fields map[string]json.RawMessage, extra json.RawMessage) error {
	if x.scrub != nil && len(extra) > 0 {
		var err error
		if extra, err = x.maskDeep(extra); err != nil {
			return internalError("read what was imported", err)
		}
	}
	more, err := fieldsOf(extra)
	if err != nil {
		return internalError("read what was imported", err)
	}
	for key, value := range more {
		if x.scrub != nil {
			if value, err = scrubStrings(value, x.scrub); err != nil {
				return internalError("read what was imported", err)
			}
		}
		fields[x.clean(key)] = value
	}
	return nil
}

// maskDeep masks every object in a value as if it were a context: nothing says what the
// values are that another program kept, and contexts are likely among them.
func (x *exporting) maskDeep(value json.RawMessage) (json.RawMessage, error) {
	switch value[0] {
	case '{':
		masked, err := x.mask(value)
		if err != nil {
			return nil, err
		}
		members, err := fieldsOf(masked)
		if err != nil {
			return nil, err
		}
		for name, inner := range members {
			if members[name], err = x.maskDeep(inner); err != nil {
				return nil, err
			}
		}
		return encodeObject(members), nil
	case '[':
		var items []json.RawMessage
		if err := json.Unmarshal(value, &items); err != nil {
			return nil, err
		}
		for i := range items {
			var err error
			if items[i], err = x.maskDeep(items[i]); err != nil {
				return nil, err
			}
		}
		return json.Marshal(items)
	}
	return value, nil
}

// mask replaces what any version calls sensitive. Where an import brought values, those
// that are digests stay: their plain values are not here.
func (x *exporting) mask(doc json.RawMessage) (json.RawMessage, error) {
	return x.maskAll(doc, func(string) bool { return x.brought })
}

// maskRecorded does so in data of a record, in which digests of this store stand for
// sensitive values already. They are salted, too.
func (x *exporting) maskRecorded(doc json.RawMessage) (json.RawMessage, error) {
	return x.maskAll(doc, func(salt string) bool { return x.brought && salt != "" })
}

func (x *exporting) maskAll(doc json.RawMessage, keep func(salt string) bool) (json.RawMessage, error) {
	m := x.e.maskExport(x.inst.Owner, x.inst.Workflow, x.salt)
	m.keep, m.versions, m.scrub = keep, x.versions, x.scrub
	return m.mask(doc)
}

// salted is a keyed digest of this store as the export shows it.
func (x *exporting) salted(text string) string {
	if salt, ok := record.IsDigest(text); ok && salt == "" {
		return x.e.cfg.Digester.Salt(x.salt, text)
	}
	return text
}

// exportMask makes the digests that stand for sensitive values in an export.
type exportMask struct {
	digester Digester
	scope    record.Scope
	salt     string // "" makes those of exports by older versions, which had none
	keep     func(salt string) bool
	made     map[string]bool // not digested again
	versions map[int]*workflow.Definition
	scrub    func(string) string // nil for nothing to remove
}

func (e *Engine) maskExport(owner, workflow, salt string) exportMask {
	return exportMask{
		digester: e.cfg.Digester, scope: scopeOf(purposeValue, owner, workflow), salt: salt,
		keep: func(string) bool { return true }, made: map[string]bool{},
	}
}

// mask replaces what any version calls sensitive, and removes it wherever else it is.
func (m exportMask) mask(doc json.RawMessage) (json.RawMessage, error) {
	var err error
	for _, v := range slices.Sorted(maps.Keys(m.versions)) {
		if doc, err = m.versions[v].Mask(doc, m.digest); err != nil {
			return nil, internalError("mask a document", err)
		}
	}
	if len(doc) == 0 || m.scrub == nil || m.scrub(string(doc)) == string(doc) {
		return doc, nil
	}
	if doc, err = scrubStrings(doc, m.scrub); err != nil {
		return nil, internalError("mask a document", err)
	}
	return doc, nil
}

func (m exportMask) digest(path string, value json.RawMessage) string {
	m.scope.Path = path
	text := ""
	if json.Unmarshal(value, &text) == nil {
		if salt, ok := record.IsDigest(text); ok {
			switch {
			case m.made[text] || m.keep(salt):
				return text
			case salt == "" && m.salt != "": // it is in a record of this store
				return m.remember(m.digester.Salt(m.salt, text))
			}
		}
	}
	if m.salt == "" {
		return m.remember(m.digester.Digest(value))
	}
	return m.remember(m.digester.Salt(m.salt, m.digester.DigestIn(m.scope, value)))
}

func (m exportMask) remember(text string) string {
	m.made[text] = true
	return text
}

// aHash is a text that tells nothing.
var aHash = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`)

func aDigest(text string) bool {
	_, keyed := record.IsDigest(text)
	return keyed || aHash.MatchString(text)
}

// scrubStrings is a document with sensitive values removed from all its texts and numbers.
// Digests stay: what looks like a value in them is chance.
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
		if aDigest(v) {
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

func quoteJSON(text string) json.RawMessage {
	out, err := json.Marshal(text)
	if err != nil {
		return json.RawMessage(`""`) // a string always marshals
	}
	return out
}

func timeText(t time.Time) json.RawMessage { return quoteJSON(t.UTC().Format(time.RFC3339Nano)) }
