package folder

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
		text, whole := bytes.CutSuffix(raw, []byte("\n"))
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		line, err := ParseLine(text)
		if err == nil && len(lines) == MaxLines {
			err = fmt.Errorf("the log has more than %d lines; at most that many of one instance can be imported", MaxLines)
		}
		switch {
		case err != nil && !whole && !json.Valid(text):
			return lines, true, nil
		case err != nil:
			return nil, false, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		line.Number = number
		lines = append(lines, line)
	}
	return lines, false, nil
}

// claims are what the member "gavel" of an export says. Of one that is not as it must be, what
// can be read counts.
type claims struct {
	Kind           record.Kind
	Status         record.Status
	Seq            int64
	DefinitionHash string
	Origin         struct{ Kind record.Kind } // of the event that an imported line was of
}

// ParseLine reads one line of a log. Members that it does not know are in Extra.
func ParseLine(raw []byte) (transfer.Line, error) {
	o, err := parseObject(raw, MaxLine)
	if err != nil {
		return transfer.Line{}, err
	}
	line := transfer.Line{
		Hash:   hashOf(raw),
		Time:   o.takeTime("timestamp", "time"),
		Action: o.takeText("action", "transition"),
		From:   o.takeText("from", "fromState"),
		To:     o.takeText("to", "toState"),
		Data:   o.takeObject("data", "payload"), Context: o.takeObject("context"),
		Extra: o.members,
	}
	about := o.readClaims()
	line.Seq, line.Cancelled = about.Seq, about.Status == record.Cancelled
	line.Kind = cmp.Or(about.Origin.Kind, about.Kind)
	if line.Action == "rollback" {
		_ = json.Unmarshal(o.members["checkpointId"], &line.CheckpointID) // an id of another form is none
	}
	return line, o.err
}

// parseInstance reads a wf-*.json, in the documented shape or the older one.
func parseInstance(content []byte, in transfer.Instance) (transfer.Instance, error) {
	o, err := parseObject(content, MaxFile)
	if err != nil {
		return in, err
	}
	about := o.readClaims()
	delete(o.members, "gavel") // an export writes it again
	in.DefinitionHash, in.Cancelled = about.DefinitionHash, about.Status == record.Cancelled
	in.Hash = hashOf(content)
	in.ID = o.takeText("id")
	in.Workflow = o.takeText("type", "definitionName")
	in.State = o.takeText("state", "currentState")
	in.Context = o.takeObject("context")
	in.CreatedAt, in.UpdatedAt = o.takeTime("createdAt"), o.takeTime("updatedAt")
	in.Extra = o.members
	if in.Workflow == "" {
		o.addError(`it does not name its workflow ("type", or "definitionName")`)
	}
	if in.State == "" {
		o.addError(`it does not name its state ("state", or "currentState")`)
	}
	return in, o.err
}

func parseCheckpoint(file string, content []byte) (transfer.Checkpoint, string, error) {
	o, err := parseObject(content, MaxFile)
	if err != nil {
		return transfer.Checkpoint{}, "", err
	}
	cp := transfer.Checkpoint{
		File: file, Hash: hashOf(content), Seq: o.readClaims().Seq, Extra: o.members,
		ID: o.takeText("checkpointId"), State: o.takeText("state"), Description: o.takeText("description"),
		Context: o.takeObject("context"), Time: o.takeTime("timestamp"), Metadata: o.takeObject("metadata"),
	}
	owner := o.takeText("workflowId")
	return cp, owner, o.err
}

// object is a JSON object whose members are taken out of it: what is left has no field.
type object struct {
	members transfer.Extra
	err     error // the first one
}

func parseObject(raw []byte, limit int) (*object, error) {
	doc, err := document.ReadJSON(raw, document.Limits{Bytes: limit})
	if issue, ok := errors.AsType[*document.Issue](err); ok {
		return nil, fmt.Errorf("it is not acceptable JSON: %s", issue.Message)
	}
	if doc.Kind() != document.Object {
		return nil, errors.New("it is not a JSON object")
	}
	o := &object{members: transfer.Extra{}}
	for name, value := range doc.Members() {
		o.members[name.Text()] = value.Raw()
	}
	return o, nil
}

func (o *object) addError(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

// take removes the first member with one of the names that is not null; nulls go, too.
func (o *object) take(names ...string) (string, json.RawMessage) {
	for _, name := range names {
		value, known := o.members[name]
		delete(o.members, name)
		if known && string(value) != "null" {
			return name, value
		}
	}
	return "", nil
}

func (o *object) takeText(names ...string) (text string) {
	name, value := o.take(names...)
	if value != nil && json.Unmarshal(value, &text) != nil {
		o.addError("%q is not a string", name)
	}
	return text
}

func (o *object) takeObject(names ...string) json.RawMessage {
	name, value := o.take(names...)
	doc := document.Known(value)
	if value != nil && doc.Kind() != document.Object {
		o.addError("%q is not an object", name)
	}
	for _, key := range workflow.ReservedKeys {
		if doc.Get(key).Kind() != 0 {
			o.addError("its %s: the key %q is reserved: only gavel sets it", name, key)
		}
	}
	return value
}

// takeTime takes a time in RFC 3339, or in milliseconds since 1970. Any other value stays.
func (o *object) takeTime(names ...string) time.Time {
	name, value := o.take(names...)
	var at time.Time
	var millis int64
	if json.Unmarshal(value, &millis) == nil {
		at = time.UnixMilli(millis)
	} else {
		_ = json.Unmarshal(value, &at) // zero for what is no time
	}
	if at.Year() < 1970 || at.Year() > 2200 {
		if value != nil {
			o.members[name] = value
		}
		return time.Time{}
	}
	return at.UTC()
}

func (o *object) readClaims() (about claims) {
	_ = json.Unmarshal(o.members["gavel"], &about)
	return about
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
