package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// tooMuch says what an instance has too much of to be held in memory; "" for nothing.
func tooMuch(in ImportInstance) string {
	if n := len(in.Lines); n > MaxImportLines {
		return fmt.Sprintf("%s has %d lines; at most %d of one instance can be imported", in.Log, n, MaxImportLines)
	}
	if n := len(in.Checkpoints); n > MaxImportCheckpoints {
		return fmt.Sprintf("it has %d checkpoints; at most %d of one instance can be imported", n, MaxImportCheckpoints)
	}
	bytes := len(in.Context) + len(in.Extra)
	for _, line := range in.Lines {
		bytes += len(line.Data) + len(line.Context) + len(line.Extra)
	}
	for _, cp := range in.Checkpoints {
		bytes += len(cp.Context) + len(cp.Metadata) + len(cp.Extra) + len(cp.Description)
	}
	if bytes > MaxImportBytes {
		return fmt.Sprintf("its log and its checkpoints hold %d bytes; at most %d of one instance can be imported", bytes, MaxImportBytes)
	}
	return ""
}

// checkDocuments holds every document of an instance to what contexts may be, and makes
// them compact. Nulls are dropped: a context has none.
func checkDocuments(in *ImportInstance) error {
	var err error
	if in.Context, err = importedDocument(in.Context, false); err != nil {
		return fmt.Errorf("%s: its context: %w", in.File, err)
	}
	for i := range in.Lines {
		line := &in.Lines[i]
		if line.Data, err = importedDocument(line.Data, true); err != nil {
			return fmt.Errorf("%s:%d: its data: %w", in.Log, line.Number, err)
		}
		if line.Context, err = importedDocument(line.Context, false); err != nil {
			return fmt.Errorf("%s:%d: its context: %w", in.Log, line.Number, err)
		}
	}
	for i := range in.Checkpoints {
		cp := &in.Checkpoints[i]
		if cp.Context, err = importedDocument(cp.Context, false); err != nil {
			return fmt.Errorf("%s: its context: %w", cp.File, err)
		}
		if cp.Metadata, err = importedDocument(cp.Metadata, true); err != nil {
			return fmt.Errorf("%s: its metadata: %w", cp.File, err)
		}
	}
	return nil
}

func importedDocument(doc json.RawMessage, nulls bool) (json.RawMessage, error) {
	if len(doc) == 0 {
		return nil, nil
	}
	doc, err := workflow.CheckDocument(doc)
	if err != nil {
		return nil, err
	}
	fields, err := fieldsOf(doc)
	if err != nil {
		return nil, err
	}
	for _, key := range workflow.ReservedKeys {
		if _, taken := fields[key]; taken {
			return nil, fmt.Errorf("the key %q is reserved: only the gate sets it", key)
		}
	}
	if nulls {
		return doc, nil
	}
	return workflow.Merge(nil, doc)
}

// fieldsOf are the top-level members of an object, as they are written.
func fieldsOf(doc json.RawMessage) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(doc) == 0 {
		return fields, nil
	}
	err := json.Unmarshal(doc, &fields)
	return fields, err
}

// extraPart is a part of what an imported event keeps beside its fields.
func extraPart(from *record.Import, part string) json.RawMessage {
	if from == nil {
		return nil
	}
	fields, err := fieldsOf(from.Extra)
	if err != nil {
		return nil
	}
	return fields[part]
}

// withExtra puts a part into what an imported event keeps; an empty one changes nothing.
func withExtra(into *record.Import, part string, value json.RawMessage) {
	if len(value) == 0 || string(value) == "{}" {
		return
	}
	fields, err := fieldsOf(into.Extra)
	if err != nil {
		return
	}
	fields[part] = value
	into.Extra = object(fields)
}

// object writes members in the order of their keys.
func object(fields map[string]json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fields); err != nil {
		return nil // only for members that are not JSON, and all were read
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func orEmptyObject(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return json.RawMessage("{}")
	}
	return doc
}

// same compares a context of an instance here with one of a folder, in which sensitive
// values may be digests that an export of this store made.
func (pl *plan) same(here, there json.RawMessage) (bool, error) {
	if sameDocument(here, there) {
		return true, nil
	}
	for _, salt := range saltsIn(there) {
		masked, err := pl.masked(salt, here)
		if err != nil {
			return false, err
		}
		if sameDocument(masked, there) {
			return true, nil
		}
	}
	return false, nil
}

// masked is a context here as an export with a salt shows it.
func (pl *plan) masked(salt string, context json.RawMessage) (json.RawMessage, error) {
	m := pl.im.e.maskExport(pl.here.inst.Owner, pl.l.def.Name, salt)
	m.versions, m.scrub = pl.here.versions, pl.here.scrub
	return m.mask(context)
}

// mostSalts bounds how many exports the digests in one folder may come from that are
// recognised: looking for each costs as much as the import.
const mostSalts = 4

// saltsIn are the salts of the digests in documents, "" for digests without one.
func saltsIn(docs ...json.RawMessage) []string {
	var out []string
	for _, doc := range docs {
		for _, m := range digestIn.FindAllSubmatch(doc, -1) {
			if salt, ok := record.IsDigest(string(m[1])); ok && !slices.Contains(out, salt) {
				if out = append(out, salt); len(out) == mostSalts {
					return out
				}
			}
		}
	}
	return out
}

var digestIn = regexp.MustCompile(`"(hmac-sha256[-:0-9a-fv]*)"`)

func sameDocument(a, b json.RawMessage) bool {
	return canonical(orEmptyObject(a)) == canonical(orEmptyObject(b))
}

// difference is the data that turns one context into another.
func difference(from, to json.RawMessage) (json.RawMessage, error) {
	old, err := fieldsOf(from)
	if err != nil {
		return nil, err
	}
	fields, err := fieldsOf(to)
	if err != nil {
		return nil, err
	}
	patch := map[string]json.RawMessage{}
	for key, value := range fields {
		if before, ok := old[key]; !ok || canonical(before) != canonical(value) {
			patch[key] = value
		}
	}
	for key := range old {
		if _, stays := fields[key]; !stays {
			patch[key] = json.RawMessage("null")
		}
	}
	return object(patch), nil
}

// mergedPatch is one patch and then another: unlike a context, it keeps nulls.
func mergedPatch(one, then json.RawMessage) (json.RawMessage, error) {
	fields, err := fieldsOf(one)
	if err != nil {
		return nil, err
	}
	later, err := fieldsOf(then)
	if err != nil {
		return nil, err
	}
	maps.Copy(fields, later)
	return object(fields), nil
}

// keysOf names the members of an object, for messages: their values may be sensitive.
func keysOf(doc json.RawMessage) string {
	fields, err := fieldsOf(doc)
	if err != nil {
		return ""
	}
	var keys []string
	for key := range fields {
		keys = append(keys, fmt.Sprintf("%.40q", key))
	}
	slices.Sort(keys)
	if len(keys) > 5 {
		keys = append(keys[:5], fmt.Sprintf("and %d more", len(keys)-5))
	}
	return strings.Join(keys, ", ")
}
