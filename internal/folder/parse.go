package folder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/validators/document"
)

// lineError is an error with the line of a log that it is about.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf(":%d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// ReadLog reads a log, one JSON object a line. The beginning of a line at the end, which
// a crash leaves, is skipped: torn says so. Every other line that is not right is an
// error that begins with ":" and its number. Empty lines are nothing.
func ReadLog(r io.Reader) (lines []engine.ImportLine, torn bool, err error) {
	in := bufio.NewReaderSize(io.LimitReader(r, MaxLog+1), 64<<10)
	total := 0
	for number := 1; ; number++ {
		raw, whole, err := readLine(in)
		if total += len(raw) + 1; err == nil && total > MaxLog+1 {
			err = fmt.Errorf("the log has more than %d bytes", MaxLog)
		}
		if err != nil {
			return nil, false, &lineError{number, err}
		}
		if !whole && len(raw) == 0 {
			return lines, false, nil
		}
		if len(bytes.TrimSpace(raw)) > 0 {
			line, err := ParseLine(raw)
			switch {
			case err != nil && !whole && !json.Valid(raw):
				return lines, true, nil
			case err != nil:
				return nil, false, &lineError{number, err}
			}
			if line.Number = number; len(lines) == MaxLines {
				return nil, false, &lineError{number, fmt.Errorf("the log has more than %d lines; at most that many of one instance can be imported", MaxLines)}
			}
			lines = append(lines, line)
		}
		if !whole {
			return lines, false, nil
		}
	}
}

// readLine returns the next line without its end; whole is false at the end of the file.
func readLine(in *bufio.Reader) (line []byte, whole bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > MaxLine+1:
			return nil, false, fmt.Errorf("the line has more than %d bytes", MaxLine)
		case err == nil:
			return line[:len(line)-1], true, nil
		case errors.Is(err, io.EOF):
			return line, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, fmt.Errorf("read the line: %w", err)
		}
	}
}

// ParseLine reads one line of a log. What it has no place for is in Extra.
func ParseLine(raw []byte) (engine.ImportLine, error) {
	f, err := parse(raw, MaxLine)
	if err != nil {
		return engine.ImportLine{}, err
	}
	line := engine.ImportLine{
		Hash:   hashOf(raw),
		Time:   f.time("timestamp", "time", "at", "date", "createdAt"),
		Action: f.text("action", "event", "transition"),
		From:   f.text("from", "fromState", "previousState"),
		To:     f.text("to", "toState", "newState", "nextState", "state", "currentState"),
		Data:   f.object("data", "input", "payload"), Context: f.object("context"),
	}
	about := f.peek("gavel")
	line.Kind = kindOf(about.text("kind"))
	// An export of what was imported names its event, and the one which that came from.
	origin := about.peek("origin")
	if kind := kindOf(origin.text("kind")); kind != "" {
		line.Kind = kind
	}
	for _, hash := range []string{about.text("hash"), origin.text("hash")} {
		if hash != "" {
			line.EventHashes = append(line.EventHashes, hash)
		}
	}
	if record.Status(about.text("status")) == record.Cancelled {
		line.Status = record.Cancelled
	}
	switch line.Action {
	case "rollback", "restore", "rolled_back":
		line.CheckpointID = f.peekText("checkpointId", "checkpoint")
	case "checkpoint", "checkpointed":
		if line.Kind == "" {
			line.Kind = record.Checkpointed
		}
	}
	line.Extra, err = f.rest()
	return line, err
}

// kindOf is a kind as an export writes it; what is none is "".
func kindOf(text string) record.Kind {
	switch k := record.Kind(text); k {
	case record.Started, record.Advanced, record.Refused, record.Prechecked, record.Checkpointed, record.RolledBack,
		record.Cancelling, record.Escalated, record.Reviewed, record.Undone, record.Redone, record.Migrated,
		record.Imported, record.Reconciled, record.Truncated:
		return k
	}
	return ""
}

// parseInstance reads a wf-*.json, as documented and in its older shape.
func parseInstance(content []byte, in engine.ImportInstance) (engine.ImportInstance, error) {
	f, err := parse(content, MaxFile)
	if err != nil {
		return in, err
	}
	in.Hash = hashOf(content)
	in.ID = f.text("id", "workflowId")
	in.Workflow = f.text("type", "definitionName", "workflow", "workflowType")
	in.State = f.text("state", "currentState")
	in.Context = f.object("context")
	in.CreatedAt = f.time("createdAt")
	in.UpdatedAt = f.time("updatedAt")
	about := f.peek("gavel")
	in.DefinitionHash = about.text("definitionHash")
	in.Cancelled = record.Status(about.text("status")) == record.Cancelled
	delete(f.members, "gavel") // an export says it anew
	if in.Extra, err = f.rest(); err != nil {
		return in, err
	}
	switch {
	case in.Workflow == "":
		return in, errors.New(`it does not name its workflow ("type", or "definitionName")`)
	case in.State == "":
		return in, errors.New(`it does not say in which state it is ("state", or "currentState")`)
	}
	return in, nil
}

// parseCheckpoint reads a checkpoint and returns whose it is.
func parseCheckpoint(content []byte) (engine.ImportCheckpoint, string, error) {
	f, err := parse(content, MaxFile)
	if err != nil {
		return engine.ImportCheckpoint{}, "", err
	}
	cp := engine.ImportCheckpoint{
		Hash: hashOf(content),
		ID:   f.text("checkpointId", "id"), State: f.text("state", "currentState"), Description: f.text("description"),
		Context: f.object("context"), Time: f.time("timestamp", "createdAt", "time", "at"),
	}
	if raw := f.members["metadata"]; len(raw) > 0 && raw[0] == '{' {
		cp.Metadata = f.object("metadata")
	}
	owner := f.text("workflowId", "instanceId", "instance")
	if cp.Extra, err = f.rest(); err == nil && cp.State == "" {
		err = errors.New(`it does not say in which state it was ("state", or "currentState")`)
	}
	return cp, owner, err
}

// fields are the members of an object that were not taken yet. The first mistake is kept.
type fields struct {
	members map[string]json.RawMessage
	err     error
}

func parse(raw []byte, limit int) (*fields, error) {
	f := &fields{members: map[string]json.RawMessage{}}
	if err := document.CheckJSON(raw, document.Limits{Bytes: limit}); err != nil {
		var issue *document.Issue
		if errors.As(err, &issue) {
			return nil, fmt.Errorf("it is not acceptable JSON: %s", issue.Message)
		}
		return nil, fmt.Errorf("it is not acceptable JSON: %w", err)
	}
	if trimmed := bytes.TrimSpace(raw); trimmed[0] != '{' {
		return nil, errors.New("it is not a JSON object")
	}
	if err := json.Unmarshal(raw, &f.members); err != nil {
		return nil, fmt.Errorf("it is not acceptable JSON: %w", err)
	}
	for name, value := range f.members {
		f.members[name] = compact(value)
	}
	return f, nil
}

func compact(value json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if err := json.Compact(&out, value); err != nil {
		return value
	}
	return out.Bytes()
}

// first is the first of the names that has a value. A null is none, and is not kept.
func (f *fields) first(names []string) string {
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

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

func (f *fields) text(names ...string) string {
	name := f.first(names)
	if name == "" {
		return ""
	}
	var text string
	if err := json.Unmarshal(f.members[name], &text); err != nil {
		f.fail("%q is not a text", name)
		return ""
	}
	delete(f.members, name)
	return text
}

func (f *fields) object(names ...string) json.RawMessage {
	name := f.first(names)
	if name == "" {
		return nil
	}
	value := f.members[name]
	if value[0] != '{' {
		f.fail("%q is not an object", name)
		return nil
	}
	delete(f.members, name)
	return value
}

// time is a time in RFC 3339, or in milliseconds since 1970; what is neither stays among
// the rest.
func (f *fields) time(names ...string) time.Time {
	name := f.first(names)
	if name == "" {
		return time.Time{}
	}
	value := f.members[name]
	var text string
	var millis int64
	var at time.Time
	switch {
	case json.Unmarshal(value, &text) == nil:
		parsed, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(text))
		if err != nil {
			return time.Time{}
		}
		at = parsed
	case json.Unmarshal(value, &millis) == nil && millis > 0:
		at = time.UnixMilli(millis)
	default:
		return time.Time{}
	}
	if at.Year() < 1970 || at.Year() > 2200 {
		return time.Time{}
	}
	delete(f.members, name)
	return at.UTC()
}

// peek is a member that stays; one that is no object is empty.
func (f *fields) peek(name string) *fields {
	inner := &fields{members: map[string]json.RawMessage{}}
	if value := f.members[name]; len(value) > 0 && value[0] == '{' {
		if err := json.Unmarshal(value, &inner.members); err != nil {
			inner.members = map[string]json.RawMessage{}
		}
	}
	return inner
}

// peekText is a text that stays.
func (f *fields) peekText(names ...string) string {
	var text string
	if name := f.first(names); name != "" && json.Unmarshal(f.members[name], &text) != nil {
		f.fail("%q is not a text", name)
	}
	return text
}

// rest is what was not taken, with the first mistake.
func (f *fields) rest() (json.RawMessage, error) {
	if f.err != nil {
		return nil, f.err
	}
	return object(f.members)
}
