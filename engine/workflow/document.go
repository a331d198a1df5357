package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// ReadDocument reads a JSON object that an instance may hold. The result is compact and keeps the digits of its
// numbers and the order of its keys. ReadDocument rejects:
//
//   - duplicate keys, invalid UTF-8 and NUL
//   - numbers that a 64-bit float would change
//   - values nested deeper than 64
//   - strings that begin with SealedForm
//   - anything that is not an object
//
// Callers must limit the length. The error is one sentence with path and line, and quotes no values of the document.
func ReadDocument(doc json.RawMessage) (document.JSON, error) { return readObjectWith(doc, false) }

// TakeDocument is ReadDocument for a document that was read before. It reads the document again only if the first
// reading followed laxer rules.
func TakeDocument(doc document.JSON) (document.JSON, error) {
	if v, ok := doc.Strict(document.DefaultDepth); ok {
		return checkObject(v)
	}
	return ReadDocument(doc.Raw())
}

// ReadArguments is ReadDocument for the arguments of a call. It accepts any number, because no instance stores them.
func ReadArguments(doc json.RawMessage) (document.JSON, error) { return readObjectWith(doc, true) }

func readObjectWith(doc json.RawMessage, literals bool) (document.JSON, error) {
	v, err := document.ReadJSON(doc, document.Limits{Bytes: max(len(doc), 1), Literals: literals})
	if err != nil {
		return document.JSON{}, err
	}
	return checkObject(v)
}

func checkObject(v document.JSON) (document.JSON, error) {
	if v.Kind() != document.Object {
		return document.JSON{}, fmt.Errorf("expected a JSON object, got %s", v.Kind())
	}
	if pointer, ok := FindSealedForm(v); ok {
		return document.JSON{}, fmt.Errorf("the text at %s begins with %q, which only gavel writes", pointer, SealedForm)
	}
	return v, nil
}

// CheckDocument is ReadDocument for callers that need only the text.
func CheckDocument(doc json.RawMessage) (json.RawMessage, error) {
	v, err := ReadDocument(doc)
	return v.Raw(), err
}

// errSyntax reports a document that is not well-formed JSON. Documents are checked earlier, so it indicates a bug in
// the caller, which must lead to an error and not to a wrong result.
var errSyntax = errors.New("not well-formed JSON")

// Merge returns the context after an action with data: each top-level key of data replaces that of
// context as a whole, and a null removes it. Values are copied literally, so numbers keep their
// digits. Existing keys keep their position; new keys follow in the order of data. Both arguments
// are JSON objects without duplicate keys; nil is {}. The result is compact and may share memory
// with context.
//
// An error means that an argument is not a well-formed object; callers that check their input
// never get one.
func Merge(context, data json.RawMessage) (json.RawMessage, error) {
	old, err := readObject(context)
	if err != nil {
		return nil, fmt.Errorf("merge: context: %w", err)
	}
	set, err := readObject(data)
	if err != nil {
		return nil, fmt.Errorf("merge: data: %w", err)
	}
	return mergeObjects(old, set).Raw(), nil
}

var emptyObject = document.ReadTrusted([]byte("{}"))

// readObject reads a stored or checked object; nil is {}.
func readObject(doc json.RawMessage) (document.JSON, error) {
	if len(doc) == 0 {
		return emptyObject, nil
	}
	v := document.ReadTrusted(doc)
	if v.Kind() != document.Object {
		return v, fmt.Errorf("%w: expected an object", errSyntax)
	}
	if name := v.Duplicate(); name.Kind() != 0 {
		return v, fmt.Errorf("%w: duplicate key %q", errSyntax, name.Text())
	}
	return v, nil
}

func mergeObjects(context, data document.JSON) document.JSON {
	if data.Len() == 0 {
		return context
	}
	b := document.NewBuilder(context, data)
	b.Begin(document.Object)
	put := func(name, value document.JSON) {
		b.Name(name)
		b.Copy(value)
	}
	set, had := data.Finder(), context.Finder()
	for name, value := range context.Members() {
		switch now := set(name); now.Kind() {
		case document.Null:
		case 0:
			put(name, value)
		default:
			put(name, now)
		}
	}
	for name, value := range data.Members() {
		if value.Kind() != document.Null && had(name).Kind() == 0 {
			put(name, value)
		}
	}
	b.End()
	return b.JSON()
}

// splitPointer decodes a JSON pointer (RFC 6901) into its tokens. It rejects "", the pointer to
// the whole document, because no setting of a definition allows it.
func splitPointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, errors.New("a JSON pointer names at least one key, such as /customer/id")
	}
	if pointer[0] != '/' {
		return nil, errors.New("a JSON pointer begins with a slash, such as /customer/id")
	}
	if strings.Contains(pointer+"/", "//") {
		return nil, errors.New("a JSON pointer has a name after every slash, such as /customer/id")
	}
	p := document.Pointer(pointer)
	if !p.IsValid() {
		return nil, errors.New(`a "~" in a JSON pointer is written ~0, a "/" within a name ~1`)
	}
	return slices.Collect(p.Tokens()), nil
}

func joinPointer(pointer string, tokens ...string) string {
	return pointer + string(document.PointerOf(tokens...))
}

func parentPointer(pointer string) string { return string(document.Pointer(pointer).Parent()) }

// Bounds limit definitions that do not come from operators; zero means no limit.
type Bounds struct {
	States      int
	Transitions int // each route of a list counts
	SchemaBytes int // of all schemas together
}

// CheckBounds reports the bounds that a definition exceeds.
func (d *Definition) CheckBounds(b Bounds) []Issue {
	var out []Issue
	refuse := func(most, n int, path, what string) {
		if most > 0 && n > most {
			out = append(out, Issue{
				Rule: "size", Severity: SeverityError, Path: path, Line: d.FindLine(path),
				Message: fmt.Sprintf("the definition has %d %s; at most %d are allowed", n, what, most),
			})
		}
	}
	routes, schemas := 0, len(d.InputSchema)
	d.visitTransitions(func(_ *State, t *Transition) {
		routes += max(1, len(t.Routes))
		schemas += len(t.Schema)
	})
	for _, v := range d.StateValidators {
		schemas += len(v.Schema)
	}
	refuse(b.States, len(d.States), "/states", "states")
	refuse(b.Transitions, routes, "/states", "transitions and routes")
	refuse(b.SchemaBytes, schemas, "", "bytes of schemas")
	return out
}

// Memory per part of a definition in addition to its text, on a 64-bit machine. Short strings take
// a multiple of their size in the document.
const (
	stateBytes      = 400
	transitionBytes = 600
	bytesPerByte    = 9
)

// Size estimates the memory of the definition in bytes; the estimate is never too low.
func (d *Definition) Size() int {
	size := 4<<10 + bytesPerByte*len(d.Document) + stateBytes*len(d.States)
	d.visitTransitions(func(*State, *Transition) { size += transitionBytes })
	return size
}

// WithoutLines returns the definition without the fields that only Lint needs, which take as much
// memory as the rest.
func (d *Definition) WithoutLines() *Definition {
	out := *d
	out.lines, out.files = nil, nil
	return &out
}

// RemoveJudgeSettings removes settings of the judge from judgeConfig and from transitions. Keys of
// the same names elsewhere, such as in schemas, stay. cut lists the settings that were present, in
// the order of keys. doc must be a document that Parse accepted.
func RemoveJudgeSettings(doc json.RawMessage, keys ...string) (open json.RawMessage, cut []string, err error) {
	root, err := document.Parse("definition", doc, document.Limits{})
	if err != nil {
		return nil, nil, err
	}
	places := []*document.Node{root.Get("judgeConfig")}
	states := root.Get("states")
	for _, name := range states.Keys() {
		transitions := states.At(name, "transitions")
		for _, action := range transitions.Keys() {
			places = append(places, transitions.Get(action))
		}
	}
	found := map[string]bool{}
	for _, place := range places {
		if place == nil {
			continue
		}
		place.Members = slices.DeleteFunc(place.Members, func(m document.Member) bool {
			gone := slices.Contains(keys, m.Key)
			found[m.Key] = found[m.Key] || gone
			return gone
		})
	}
	for _, key := range keys {
		if found[key] {
			cut = append(cut, key)
		}
	}
	return root.JSON(), cut, nil
}
