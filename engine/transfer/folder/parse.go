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
		Data:   f.readObject("data", "input", "payload"), Context: f.readObject("context"),
	}
	// The export of an imported line names its event and the event that the line was of.
	about := f.innerFields("gavel")
	for _, claim := range []*fields{about, about.innerFields("origin")} {
		if kind := record.Kind(claim.readText("kind")); kind.IsKnown() {
			line.Kind = kind
		}
	}
	if record.Status(about.readText("status")) == record.Cancelled {
		line.Status = record.Cancelled
	}
	switch line.Action {
	case "rollback", "restore", "rolled_back":
		name := f.firstName("checkpointId", "checkpoint")
		if id := f.members[name]; name != "" {
			line.CheckpointID = f.readText(name)
			f.members[name] = id
		}
	case "checkpoint", "checkpointed":
		if line.Kind == "" {
			line.Kind = record.Checkpointed
		}
	}
	line.Extra, err = f.encodeRest()
	return line, err
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
	in.Context = f.readObject("context")
	in.CreatedAt = f.readTime("createdAt")
	in.UpdatedAt = f.readTime("updatedAt")
	about := f.innerFields("gavel")
	in.DefinitionHash = about.readText("definitionHash")
	in.Cancelled = record.Status(about.readText("status")) == record.Cancelled
	delete(f.members, "gavel") // an export writes it again
	in.Extra, err = f.encodeRest()
	switch {
	case err != nil:
	case in.Workflow == "":
		err = errors.New(`it does not name its workflow ("type", or "definitionName")`)
	case in.State == "":
		err = errors.New(`it does not name its state ("state", or "currentState")`)
	}
	return in, err
}

// parseCheckpoint reads a checkpoint and returns the id of its instance, if it has it.
func parseCheckpoint(content []byte) (transfer.Checkpoint, string, error) {
	f, err := parseFields(content, MaxFile)
	if err != nil {
		return transfer.Checkpoint{}, "", err
	}
	cp := transfer.Checkpoint{
		Hash: hashOf(content),
		ID:   f.readText("checkpointId", "id"), State: f.readText("state", "currentState"), Description: f.readText("description"),
		Context: f.readObject("context"), Time: f.readTime("timestamp", "createdAt", "time", "at"),
	}
	if bytes.HasPrefix(f.members["metadata"], []byte("{")) {
		cp.Metadata = f.readObject("metadata")
	}
	owner := f.readText("workflowId", "instanceId", "instance")
	if cp.Extra, err = f.encodeRest(); err == nil && cp.State == "" {
		err = errors.New(`it does not name its state ("state", or "currentState")`)
	}
	return cp, owner, err
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

func (f *fields) addError(name, kind string) {
	if f.err == nil {
		f.err = fmt.Errorf("%q is not %s", name, kind)
	}
}

func (f *fields) readText(names ...string) (text string) {
	name := f.firstName(names...)
	switch {
	case name == "":
	case json.Unmarshal(f.members[name], &text) != nil:
		f.addError(name, "a string")
	default:
		delete(f.members, name)
	}
	return text
}

func (f *fields) readObject(names ...string) json.RawMessage {
	name := f.firstName(names...)
	value := f.members[name]
	switch {
	case name == "":
		return nil
	case value[0] != '{':
		f.addError(name, "an object")
		return nil
	}
	delete(f.members, name)
	return value
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

// innerFields has the members of a member, which stays; one that is no object has none.
func (f *fields) innerFields(name string) *fields {
	inner := &fields{members: map[string]json.RawMessage{}}
	if value := f.members[name]; bytes.HasPrefix(value, []byte("{")) {
		if err := json.Unmarshal(value, &inner.members); err != nil {
			return &fields{}
		}
	}
	return inner
}

// encodeRest is what was not read, in the order of the keys; nil for nothing. The error is the
// first one of the reading.
func (f *fields) encodeRest() (json.RawMessage, error) {
	if f.err != nil || len(f.members) == 0 {
		return nil, f.err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(f.members); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
