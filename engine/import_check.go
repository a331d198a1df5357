package engine

import (
	"encoding/json"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// checkImported checks every document of an instance as contexts are checked, and makes
// them compact.
func checkImported(in *ImportInstance) error {
	if n := len(in.Lines); n > MaxImportLines {
		return refuseImport("%s has %d lines; at most %d of one instance can be imported", in.Log, n, MaxImportLines)
	}
	if n := len(in.Checkpoints); n > MaxImportCheckpoints {
		return refuseImport("it has %d checkpoints; at most %d of one instance can be imported", n, MaxImportCheckpoints)
	}
	size := len(in.Extra)
	var bad error
	check := func(doc *json.RawMessage, nulls bool, file, what string) {
		size += len(*doc)
		checked, err := checkImportedDocument(*doc, nulls)
		if err != nil && bad == nil {
			bad = refuseImport("%s: its %s: %v", file, what, err)
		}
		*doc = checked
	}
	check(&in.Context, false, in.File, "context")
	for i := range in.Lines {
		line := &in.Lines[i]
		at := fmt.Sprintf("%s:%d", in.Log, line.Number)
		size += len(line.Extra)
		check(&line.Data, true, at, "data")
		check(&line.Context, false, at, "context")
	}
	for i := range in.Checkpoints {
		cp := &in.Checkpoints[i]
		size += len(cp.Extra) + len(cp.Description)
		check(&cp.Context, false, cp.File, "context")
		check(&cp.Metadata, true, cp.File, "metadata")
	}
	if size > MaxImportBytes {
		return refuseImport("its log and its checkpoints have %d bytes; at most %d of one instance can be imported", size, MaxImportBytes)
	}
	return bad
}

// checkImportedDocument drops nulls unless they are wanted: a context has none.
func checkImportedDocument(doc json.RawMessage, nulls bool) (json.RawMessage, error) {
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
			return nil, fmt.Errorf("the key %q is reserved: only gavel sets it", key)
		}
	}
	if nulls {
		return doc, nil
	}
	return workflow.Merge(nil, doc)
}
