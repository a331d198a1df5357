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

// scrubs makes scrub of every document that the instance ever had.
func (x *exporting) scrubs(events []record.Event) {
	docs := []json.RawMessage{x.inst.Context}
	for _, ev := range events {
		docs = append(docs, ev.Patch)
		if ev.Decision != nil {
			docs = append(docs, ev.Decision.Data) // plain where the version of then did not call it sensitive
		}
	}
	var all []func(string) string
	for _, v := range slices.Sorted(maps.Keys(x.versions)) {
		d := x.versions[v]
		if len(d.Sensitive) > 0 {
			all = append(all, d.Scrubber(docs...))
		}
	}
	if len(all) == 0 {
		return
	}
	x.scrub = func(text string) string {
		for _, scrub := range all {
			text = scrub(text)
		}
		return text
	}
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
			return internal("read what was imported", err)
		}
	}
	more, err := fieldsOf(extra)
	if err != nil {
		return internal("read what was imported", err)
	}
	for key, value := range more {
		if x.scrub != nil {
			if value, err = scrubbed(value, x.scrub); err != nil {
				return internal("read what was imported", err)
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
		return object(members), nil
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

// mask replaces what any version calls sensitive.
func (x *exporting) mask(doc json.RawMessage) (json.RawMessage, error) {
	made := map[string]bool{}
	for _, v := range slices.Sorted(maps.Keys(x.versions)) {
		d := x.versions[v]
		var err error
		if doc, err = x.e.maskForExport(d, doc, x.brought, made); err != nil {
			return nil, err
		}
	}
	return doc, nil
}

// keyedDigest is what stands in an export for a sensitive value.
var keyedDigest = regexp.MustCompile(`^"hmac-sha256:[0-9a-f]{64}"$`)

// maskForExport replaces sensitive values by keyed digests and remembers them in made,
// so that they are not digested again. With brought, every value that has the form of
// one stays: it came from an export, and its plain value is not here.
func (e *Engine) maskForExport(d *workflow.Definition, doc json.RawMessage, brought bool, made map[string]bool) (json.RawMessage, error) {
	masked, err := d.Mask(doc, func(_ string, value json.RawMessage) string {
		if keyedDigest.Match(value) {
			if text := string(value[1 : len(value)-1]); brought || made[text] {
				return text
			}
		}
		text := e.cfg.Digester.Digest(value)
		made[text] = true
		return text
	})
	if err != nil {
		return nil, internal("mask a document", err)
	}
	return masked, nil
}

// aDigest is a text that tells nothing.
var aDigest = regexp.MustCompile(`^(hmac-sha256:|sha256:)?[0-9a-f]{64}$`)

// scrubbed is a document with sensitive values removed from all its texts and numbers.
// Digests stay: what looks like a value in them is chance.
func scrubbed(doc json.RawMessage, scrub func(string) string) (json.RawMessage, error) {
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
		if aDigest.MatchString(v) {
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

func quoted(text string) json.RawMessage {
	out, err := json.Marshal(text)
	if err != nil {
		return json.RawMessage(`""`) // a string always marshals
	}
	return out
}

func timeText(t time.Time) json.RawMessage { return quoted(t.UTC().Format(time.RFC3339Nano)) }
