package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Encode returns the canonical bytes of an event: compact JSON with the fields in the order of the format, schema
// first. It omits prevHash and hash, which are stored next to the bytes. The same event always has the same bytes;
// documents inside it keep the order of their keys and the digits of their numbers.
//
// It rejects anything that would not decode to the same value: text that is not UTF-8, an unknown
// kind, a time outside the years 1678 to 2261.
func Encode(e Event) ([]byte, error) {
	if err := checkEncodable(e); err != nil {
		return nil, err
	}
	e.Time = canonicalTime(e.Time)
	body, err := document.Marshal(stored{plain: (*plain)(&e)})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if !utf8.Valid(body) {
		return nil, fmt.Errorf("%w: a document is not UTF-8", ErrMalformed)
	}
	return body, nil
}

// plain has Event's fields without its methods. stored hides the two fields that are kept next to
// the body, by shallower fields of the same names that are always empty.
type (
	plain  Event
	stored struct {
		*plain
		PrevHash string `json:"prevHash,omitempty"`
		Hash     string `json:"hash,omitempty"`
	}
)

// canonicalTime drops the monotonic clock and the zone, which are not stored.
func canonicalTime(t time.Time) time.Time { return t.Round(0).UTC() }

// The times that fit 64 bits of nanoseconds, so that drivers can index them.
var (
	minTime = time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC)
	maxTime = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

func checkEncodable(e Event) error {
	switch {
	case !e.Kind.IsKnown():
		return fmt.Errorf("%w: %q", ErrUnknownKind, e.Kind)
	case e.Schema != SchemaVersion:
		return fmt.Errorf("%w: schema %d is not the current one", ErrMalformed, e.Schema)
	case e.Time.Before(minTime) || !e.Time.Before(maxTime):
		return fmt.Errorf("%w: the time %s cannot be stored", ErrMalformed, e.Time)
	}
	// The encoder would silently replace text that is not UTF-8.
	texts := []string{e.Instance, e.Principal, e.Role, e.Workflow, e.Action, e.From, e.To, e.Reason, e.Subject}
	if e.Checkpoint != nil {
		texts = append(texts, e.Checkpoint.ID, e.Checkpoint.Description, e.Checkpoint.State)
	}
	if e.Decision != nil {
		texts = append(texts, e.Decision.Reasoning)
	}
	if e.Review != nil {
		texts = append(texts, e.Review.ID, e.Review.By, e.Review.Reason)
	}
	if e.Call != nil {
		texts = append(texts, e.Call.ID, e.Call.Gate, e.Call.Upstream, e.Call.Tool, e.Call.Pin, e.Call.Success, e.Call.Error)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return fmt.Errorf("%w: %q is not UTF-8", ErrMalformed, s)
		}
	}
	return nil
}

// Decode reads the output of Encode. PrevHash and Hash are left empty: they are stored next to the
// body, and the caller sets them.
//
// Nothing is skipped. An unknown kind is ErrUnknownKind, another schema is ErrOtherSchema, and an unknown field is
// ErrMalformed: ignoring it would show a history that differs from the recorded one. Once a
// release has written a schema, every change of the format, even an added field, therefore needs a new version.
func Decode(body []byte) (Event, error) {
	schema, err := readSchemaVersion(body)
	if err != nil {
		return Event{}, err
	}
	if schema != SchemaVersion {
		return Event{}, fmt.Errorf("%w: %d, this program reads %d", ErrOtherSchema, schema, SchemaVersion)
	}
	e, err := parseBody(body)
	if err != nil {
		return Event{}, err
	}
	e.seal = seal{schema: schema, body: bytes.Clone(body)}
	return e, nil
}

func parseBody(body []byte) (Event, error) {
	if !utf8.Valid(body) {
		return Event{}, fmt.Errorf("%w: it is not UTF-8", ErrMalformed)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	var e Event
	if err := dec.Decode(&e); err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Event{}, fmt.Errorf("%w: more than one document", ErrMalformed)
	}
	switch {
	case !e.Kind.IsKnown():
		return Event{}, fmt.Errorf("%w: %q", ErrUnknownKind, e.Kind)
	case e.Instance == "" || e.Seq < 1 || e.Revision < 1:
		return Event{}, fmt.Errorf("%w: no instance, seq or revision", ErrMalformed)
	case e.PrevHash != "" || e.Hash != "":
		return Event{}, fmt.Errorf("%w: a hash inside the body", ErrMalformed)
	}
	e.Time = canonicalTime(e.Time)
	return e, nil
}

const schemaPrefix = `{"schema":`

// readSchemaVersion reads the schema version, which Encode always writes first, so that the version
// of a body is known before anything else in it is read.
func readSchemaVersion(body []byte) (int, error) {
	rest, ok := bytes.CutPrefix(body, []byte(schemaPrefix))
	end := bytes.IndexByte(rest, ',')
	if !ok || end < 0 {
		return 0, fmt.Errorf("%w: it does not begin with its schema version", ErrMalformed)
	}
	v, err := strconv.Atoi(string(rest[:end]))
	if err != nil || v < 1 {
		return 0, fmt.Errorf("%w: %q is not a schema version", ErrMalformed, rest[:end])
	}
	return v, nil
}
