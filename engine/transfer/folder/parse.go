package folder

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/transfer"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ParseLog reads a log, one JSON object per line; name is for errors. An incomplete line at
// the end, which a crash leaves, is skipped and makes it torn. Any other line that cannot be
// read is an error. Empty lines are skipped.
func ParseLog(name string, content []byte) (lines []transfer.Line, torn bool, err error) {
	number := 0
	for raw := range bytes.Lines(content) {
		number++
		whole := bytes.HasSuffix(raw, []byte("\n"))
		raw = bytes.TrimSuffix(raw, []byte("\n"))
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		line, err := ParseLine(raw)
		if err == nil && len(lines) == MaxLines {
			err = fmt.Errorf("the log has more than %d lines; at most that many of one instance can be imported", MaxLines)
		}
		switch {
		case err != nil && !whole && !json.Valid(raw):
			return lines, true, nil
		case err != nil:
			return nil, false, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		line.Number = number
		lines = append(lines, line)
	}
	return lines, false, nil
}

// aboutGavel is the member "gavel" of an export.
type aboutGavel struct {
	Kind           record.Kind
	Status         record.Status
	Seq            int64
	DefinitionHash string
	Origin         json.RawMessage // of the event that the line of an imported one was of
}

// readAbout reads a claim: what is not as it must be is not there.
func readAbout(raw json.RawMessage) (about aboutGavel) {
	_ = json.Unmarshal(raw, &about)
	return about
}

// ParseLine reads one line of a log. Members that it does not know are in Extra.
func ParseLine(raw []byte) (transfer.Line, error) {
	f, err := parseFields(raw, MaxLine)
	if err != nil {
		return transfer.Line{}, err
	}
	line := transfer.Line{
		Hash:   hashOf(raw),
		Time:   f.readTime("timestamp", "time", "at", "date", "createdAt"),
		Action: f.readText("action", "event", "transition"),
		From:   f.readText("from", "fromState", "previousState"),
		To:     f.readText("to", "toState", "newState", "nextState", "state", "currentState"),
		Data:   f.readObject(true, "data", "input", "payload"), Context: f.readObject(false, "context"),
	}
	about := readAbout(f.members["gavel"])
	line.Seq = about.Seq
	for _, kind := range []record.Kind{about.Kind, readAbout(about.Origin).Kind} {
		if kind.IsKnown() {
			line.Kind = kind
		}
	}
	if about.Status == record.Cancelled {
		line.Status = record.Cancelled
	}
	isCheckpoint := line.Kind == "" && (line.Action == "checkpoint" || line.Action == "checkpointed")
	if isCheckpoint {
		line.Kind = record.Checkpointed
	}
	if isCheckpoint || line.Action == "rollback" || line.Action == "restore" || line.Action == "rolled_back" {
		if name := f.firstName("checkpointId", "checkpoint"); name != "" {
			id := f.members[name]
			line.CheckpointID = f.readText(name)
			f.members[name] = id
		}
	}
	line.Extra = f.members
	return line, f.err
}

// parseInstance reads a wf-*.json, in the documented shape or the older one.
func parseInstance(content []byte, in transfer.Instance) (transfer.Instance, error) {
	f, err := parseFields(content, MaxFile)
	if err != nil {
		return in, err
	}
	in.Hash = hashOf(content)
	in.ID = f.readText("id", "workflowId")
	in.Workflow = f.readText("type", "definitionName", "workflow", "workflowType")
	in.State = f.readText("state", "currentState")
	in.Context = f.readObject(false, "context")
	in.CreatedAt = f.readTime("createdAt")
	in.UpdatedAt = f.readTime("updatedAt")
	about := readAbout(f.members["gavel"])
	in.DefinitionHash, in.Cancelled = about.DefinitionHash, about.Status == record.Cancelled
	delete(f.members, "gavel") // an export writes it again
	in.Extra = f.members
	switch {
	case f.err != nil:
	case in.Workflow == "":
		f.err = errors.New(`it does not name its workflow ("type", or "definitionName")`)
	case in.State == "":
		f.err = errNoState
	}
	return in, f.err
}

var errNoState = errors.New(`it does not name its state ("state", or "currentState")`)

// parseCheckpoint reads a checkpoint and returns the id of its instance, if it has it.
func parseCheckpoint(content []byte) (transfer.Checkpoint, string, error) {
	f, err := parseFields(content, MaxFile)
	if err != nil {
		return transfer.Checkpoint{}, "", err
	}
	cp := transfer.Checkpoint{
		Hash: hashOf(content),
		ID:   f.readText("checkpointId", "id"), State: f.readText("state", "currentState"), Description: f.readText("description"),
		Context: f.readObject(false, "context"), Time: f.readTime("timestamp", "createdAt", "time", "at"),
		Seq: readAbout(f.members["gavel"]).Seq,
	}
	if bytes.HasPrefix(f.members["metadata"], []byte("{")) {
		cp.Metadata = f.readObject(true, "metadata")
	}
	owner := f.readText("workflowId", "instanceId", "instance")
	cp.Extra = f.members
	if f.err == nil && cp.State == "" {
		f.err = errNoState
	}
	return cp, owner, f.err
}

// fields are the members of an object that were not read yet, and the first error.
type fields struct {
	members map[string]json.RawMessage
	err     error
}

func parseFields(raw []byte, limit int) (*fields, error) {
	if len(raw) > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	f := &fields{members: map[string]json.RawMessage{}}
	err := document.CheckJSON(raw, document.Limits{Bytes: limit})
	if issue, ok := errors.AsType[*document.Issue](err); ok {
		return nil, fmt.Errorf("it is not acceptable JSON: %s", issue.Message)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, errors.New("it is not a JSON object")
	}
	var compact bytes.Buffer
	if err := errors.Join(err, json.Compact(&compact, raw), json.Unmarshal(compact.Bytes(), &f.members)); err != nil {
		return nil, fmt.Errorf("it is not acceptable JSON: %w", err)
	}
	return f, nil
}

// firstName is the first of the names that has a value. Nulls are removed: they are no values.
func (f *fields) firstName(names ...string) string {
	found := ""
	for _, name := range names {
		value, ok := f.members[name]
		switch {
		case !ok:
		case string(value) == "null":
			delete(f.members, name)
		case found == "":
			found = name
		}
	}
	return found
}

func (f *fields) addError(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

func (f *fields) readText(names ...string) (text string) {
	name := f.firstName(names...)
	switch {
	case name == "":
	case json.Unmarshal(f.members[name], &text) != nil:
		f.addError("%q is not a string", name)
	default:
		delete(f.members, name)
	}
	return text
}

// readObject reads a document that is checked as contexts are. It drops nulls unless they
// are wanted: a context has none.
func (f *fields) readObject(nulls bool, names ...string) json.RawMessage {
	name := f.firstName(names...)
	if name == "" {
		return nil
	}
	doc := f.members[name]
	if doc[0] != '{' {
		f.addError("%q is not an object", name)
		return nil
	}
	delete(f.members, name)
	doc, err := workflow.CheckDocument(doc)
	var keys map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(doc, &keys)
	}
	if err == nil && !nulls {
		doc, err = workflow.Merge(nil, doc)
	}
	if err != nil {
		f.addError("its %s: %w", name, err)
	}
	for _, key := range workflow.ReservedKeys {
		if _, taken := keys[key]; taken {
			f.addError("its %s: the key %q is reserved: only gavel sets it", name, key)
		}
	}
	return doc
}

// readTime is a time in RFC 3339, or in milliseconds since 1970. Any other value is not read.
func (f *fields) readTime(names ...string) time.Time {
	name := f.firstName(names...)
	var text string
	var millis int64
	var at time.Time
	switch value := f.members[name]; {
	case name == "":
	case json.Unmarshal(value, &text) == nil:
		if parsed, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(text)); err == nil {
			at = parsed
		}
	case json.Unmarshal(value, &millis) == nil && millis > 0:
		at = time.UnixMilli(millis)
	}
	if at.Year() < 1970 || at.Year() > 2200 {
		return time.Time{}
	}
	delete(f.members, name)
	return at.UTC()
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
