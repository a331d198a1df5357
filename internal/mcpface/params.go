package mcpface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/strictdoc"
)

// kind is the type of an argument.
type kind string

const (
	kindString  kind = "a string"
	kindObject  kind = "an object"
	kindInteger kind = "an integer"
	kindNumber  kind = "a number"
	kindBoolean kind = "true or false"
	kindStrings kind = "a list of strings"
)

// param is one argument of a tool.
type param struct {
	name     string
	kind     kind
	required bool
	enum     []string
	within   *bounds // of a number
	help     string
}

// bounds are the least and the greatest value of a number; a most of 0 is none.
type bounds struct{ least, most float64 }

func (b bounds) String() string {
	if b.most == 0 {
		return plain(b.least) + " or more"
	}
	return "from " + plain(b.least) + " to " + plain(b.most)
}

func (b bounds) hold(n float64) bool { return n >= b.least && (b.most == 0 || n <= b.most) }

// arguments are a call's arguments after they were checked against the tool's
// parameters: present keys have the right type, null counts as absent.
type arguments struct {
	raw    json.RawMessage
	fields map[string]json.RawMessage
	// again is what a client adds when it repeats a call that was answered with a
	// question.
	again mcp.MultiRoundTripParams
}

// read checks raw against the parameters and reports the first mistake.
func (t tool) read(raw json.RawMessage) (arguments, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	if err := strictdoc.CheckJSON(raw, strictdoc.Limits{Bytes: len(raw) + 1, Depth: deepestArguments}); err != nil {
		e := &engine.Error{
			Code: engine.CodeInvalidData, Hint: strictHint, Err: err,
			Message: fmt.Sprintf("The arguments are not acceptable JSON: %s.", whatIsWrong(err)),
		}
		var issue *strictdoc.Issue
		if errors.As(err, &issue) {
			e.Path = issue.Path
		}
		return arguments{}, e
	}
	a := arguments{raw: raw}
	if raw[0] != '{' || json.Unmarshal(raw, &a.fields) != nil {
		return arguments{}, wrong("", "The arguments must be an object, are "+jsonType(raw)+".", "Send them by name.")
	}
	if err := t.refuseUnknown(a); err != nil {
		return arguments{}, err
	}
	for _, p := range t.params {
		v, ok := a.fields[p.name]
		if ok && string(v) == "null" {
			delete(a.fields, p.name)
			ok = false
		}
		if !ok && p.required {
			return arguments{}, wrong(p.name, fmt.Sprintf("The argument %q is missing.", p.name), p.help)
		}
		if ok {
			if err := p.check(v); err != nil {
				return arguments{}, err
			}
		}
	}
	return a, nil
}

// deepestArguments bounds the nesting of arguments: that of a document, and of
// what is around it.
const deepestArguments = 96

// refuseUnknown refuses arguments that nobody reads. Those of a tool that passes
// its arguments on are the engine's to name, unless a required one is missing:
// then the unknown one is probably it.
func (t tool) refuseUnknown(a arguments) error {
	names := make([]string, len(t.params))
	complete := true
	for i, p := range t.params {
		names[i] = p.name
		complete = complete && (!p.required || a.fields[p.name] != nil)
	}
	if t.passes && complete {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(a.fields)) {
		if !slices.Contains(names, key) {
			return unknownArgument(key, names)
		}
	}
	return nil
}

func unknownArgument(key string, names []string) error {
	hint := fmt.Sprintf("The arguments are: %s.", strings.Join(names, ", "))
	if len(names) == 0 {
		hint = "This tool takes no arguments."
	}
	if near := strictdoc.Suggest(key, names); near != "" {
		hint = fmt.Sprintf("Did you mean %q? %s", near, hint)
	}
	return wrong(key, fmt.Sprintf("There is no argument %s.", clipped(key)), hint)
}

func (p param) check(v json.RawMessage) error {
	if is := jsonType(v); !p.accepts(v, is) {
		hint := p.help
		if is == "a string" && (p.kind == kindObject || p.kind == kindStrings) {
			hint = "Send the value itself, not its JSON as text. " + hint
		}
		return wrong(p.name, fmt.Sprintf("The argument %q must be %s, is %s.", p.name, p.kind, is), hint)
	}
	if len(p.enum) > 0 {
		var s string
		if json.Unmarshal(v, &s) != nil || !slices.Contains(p.enum, s) {
			return wrong(p.name, fmt.Sprintf("The argument %q must be one of %s.", p.name, strings.Join(p.enum, ", ")), p.help)
		}
	}
	if p.within == nil {
		return nil
	}
	if n, err := strconv.ParseFloat(string(v), 64); err != nil || !p.within.hold(n) {
		return wrong(p.name, fmt.Sprintf("The argument %q must be %s, is %.40s.", p.name, p.within, v), p.help)
	}
	return nil
}

func plain(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func (p param) accepts(v json.RawMessage, is string) bool {
	switch p.kind {
	case kindInteger:
		_, ok := parseInteger(v)
		return ok
	case kindStrings:
		var list []json.RawMessage
		return is == "a list" && json.Unmarshal(v, &list) == nil &&
			!slices.ContainsFunc(list, func(e json.RawMessage) bool { return jsonType(e) != "a string" })
	case kindBoolean:
		return is == "a boolean"
	default:
		return is == string(p.kind)
	}
}

// parseInteger takes what JSON Schema calls an integer: 3, and 3.0 and 3e0 too.
func parseInteger(v json.RawMessage) (int64, bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return 0, false
	}
	return int64(n), true
}

// jsonType names the type of valid JSON.
func jsonType(v json.RawMessage) string {
	switch v[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

func wrong(name, message, hint string) error {
	path := ""
	if name != "" {
		path = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return &engine.Error{Code: engine.CodeInvalidArgument, Path: path, Message: message, Hint: hint}
}

// The getters return the zero value for an absent argument; check has made sure
// of the type.

func (a arguments) text(name string) string         { return get[string](a, name) }
func (a arguments) strings(name string) []string    { return get[[]string](a, name) }
func (a arguments) doc(name string) json.RawMessage { return a.fields[name] }

func (a arguments) integer(name string) int64 {
	n, _ := parseInteger(a.fields[name])
	return n
}

func (a arguments) revision() *int64 {
	if a.doc("expectedRevision") == nil {
		return nil
	}
	n := a.integer("expectedRevision")
	return &n
}

func get[T any](a arguments, name string) T {
	if v := optional[T](a, name); v != nil {
		return *v
	}
	var zero T
	return zero
}

func optional[T any](a arguments, name string) *T {
	raw, ok := a.fields[name]
	if !ok {
		return nil
	}
	var v T
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return &v
}
