package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// maxDepth bounds the nesting of a request: that of a document, and of what is around it.
const maxDepth = 96

// Noun is what a field is called in messages.
type Noun string

// The nouns.
const (
	Argument  Noun = "argument"
	Member    Noun = "member"
	Parameter Noun = "parameter"
	Header    Noun = "header"
)

// ReadObject reads a JSON object member by member. Nothing at all is an empty one. what
// names it in messages: "arguments are", "body is".
func ReadObject(raw []byte, what string) (map[string]json.RawMessage, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return map[string]json.RawMessage{}, nil
	}
	v, err := document.ReadJSON(raw, document.Limits{Bytes: len(raw) + 1, Depth: maxDepth, Spaced: true})
	if err != nil {
		e := &engine.Error{
			Code: engine.CodeInvalidData, Err: err, Message: fmt.Sprintf("The %s not acceptable JSON: %s.", what, err),
			Hint: "Send each key once, valid Unicode text, and numbers that a 64-bit float keeps; quote larger ones.",
		}
		var issue *document.Issue
		if errors.As(err, &issue) {
			e.Path, e.Message = issue.Path, fmt.Sprintf("The %s not acceptable JSON: %s.", what, issueText(issue))
		}
		return nil, e
	}
	if v.Kind() != document.Object {
		return nil, Wrong("", fmt.Sprintf("The %s %s, and must be an object.", what, typeOf(raw)), "Send them by name.")
	}
	members := make(map[string]json.RawMessage, v.Len())
	for name, value := range v.Members() {
		members[name.Text()] = value.Raw()
	}
	return members, nil
}

// issueText tells an issue without its line, which is often the only one.
func issueText(issue *document.Issue) string {
	if issue.Path == "" {
		return issue.Message
	}
	return "at " + issue.Path + ", " + issue.Message
}

// BindTool reads the arguments of a tool call; null is none. It returns the operation that is meant,
// and a pointer to its request.
func BindTool(op Any, raw json.RawMessage) (Any, any, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	members, err := ReadObject(raw, "arguments are")
	if err != nil {
		return nil, nil, err
	}
	listed := ToolFields(op)
	if err := refuseUnknown(op, listed, members); err != nil {
		return nil, nil, err
	}
	if op, err = chooseOperation(op, listed, members); err != nil {
		return nil, nil, err
	}
	req := NewRequest(op)
	if op.Info().Document {
		SetDocument(req, op.Info().Tool.Name, raw)
		return op, req, checkValues(listed, members)
	}
	return op, req, BindMembers(req, toolFields(op.Info()), members, Argument, (*Field).Argument)
}

// checkValues refuses a value that its field cannot have.
func checkValues(fields []*Field, members map[string]json.RawMessage) error {
	unbound := make([]*Field, len(fields))
	for i, f := range fields {
		one := *f
		one.index = nil
		unbound[i] = &one
	}
	return BindMembers(nil, unbound, members, Argument, (*Field).Argument)
}

// refuseUnknown refuses arguments that nobody reads. Those of a document are the
// engine's to name, unless a required one is missing: then the unknown one is probably it.
func refuseUnknown(op Any, listed []*Field, members map[string]json.RawMessage) error {
	complete := !slices.ContainsFunc(listed, func(f *Field) bool { return f.Required && members[f.Name] == nil })
	if op.Info().Document && complete {
		return nil
	}
	return CheckNames(slices.Sorted(maps.Keys(members)), namesOf(listed, (*Field).Argument), Argument)
}

// chooseOperation is op, or the one that its tool runs when its fields are given.
func chooseOperation(op Any, listed []*Field, members map[string]json.RawMessage) (Any, error) {
	other := alternative(op)
	if other == nil {
		return op, nil
	}
	if err := checkValues(listed, members); err != nil {
		return nil, err
	}
	own, others := toolFields(op.Info()), toolFields(other.Info())
	given := func(fields, without []*Field) string {
		for _, f := range fields {
			if v := members[f.Name]; v != nil && string(v) != "null" && !hasName(without, f.Name) {
				return f.Name
			}
		}
		return ""
	}
	chosen := given(others, own)
	if chosen == "" {
		return op, nil
	}
	if extra := given(own, others); extra != "" {
		return nil, Wrong(extra, fmt.Sprintf("The arguments %q and %q cannot be combined.", extra, chosen), "Leave out one of them.")
	}
	return other, nil
}

// alternative is the other operation of a tool, nil when there is none.
func alternative(op Any) Any {
	if i := slices.IndexFunc(table, func(o Any) bool { return o.Info().ID == op.Info().Tool.Or }); i >= 0 {
		return table[i]
	}
	return nil
}

func hasName(fields []*Field, name string) bool {
	return slices.ContainsFunc(fields, func(f *Field) bool { return f.Name == name })
}

func toolFields(a *About) []*Field {
	var fields []*Field
	for i := range a.Fields {
		if !a.Fields[i].HTTPOnly {
			fields = append(fields, &a.Fields[i])
		}
	}
	return fields
}

// ToolFields are the fields that a tool lists: those of its operation, and of the other
// one that it can run. What only one of the two requires is not required.
func ToolFields(op Any) []*Field {
	own, other := toolFields(op.Info()), alternative(op)
	if other == nil {
		return own
	}
	tool := op.Info().Tool
	var added []*Field
	for _, f := range toolFields(other.Info()) {
		if !hasName(own, f.Name) {
			one := *f
			one.Required = false
			if tool.OrPrefix != "" {
				one.Help = tool.OrPrefix + strings.ToLower(f.Help[:1]) + f.Help[1:]
			}
			added = append(added, &one)
		}
	}
	for i, f := range own {
		if f.Required {
			one := *f
			one.Required = false
			own[i] = &one
		}
	}
	if tool.OrFirst {
		return append(added, own...)
	}
	return append(own, added...)
}

// Shown are values of the types that a tool answers with: its operation's and, where
// there is one, the other's.
func Shown(op Any) []any {
	shown := []any{op.Shown()}
	if other := alternative(op); other != nil {
		shown = append(shown, other.Shown())
	}
	return shown
}

// NewRequest is a pointer to an empty request of the operation.
func NewRequest(op Any) any {
	req, _ := op.Types()
	return reflect.New(req).Interface()
}

// SetDocument sets the document that a request is, and the name that it has in messages.
func SetDocument(req any, source string, text []byte) {
	v := reflect.ValueOf(req).Elem()
	v.FieldByName("Source").SetString(source)
	v.FieldByName("Document").SetBytes(text)
}

// BindMembers sets the fields of a request from the members of an object. Null counts as
// absent. name says what fields are called there.
func BindMembers(req any, fields []*Field, members map[string]json.RawMessage, noun Noun, name func(*Field) string) error {
	for _, f := range fields {
		raw, given := members[name(f)]
		switch {
		case given && string(raw) != "null":
			if err := f.setJSON(req, raw, noun, name(f)); err != nil {
				return err
			}
		case f.Required:
			return missing(noun, name(f), f.Help)
		}
	}
	return nil
}

// BindQuery sets the fields of a request from the query of an address.
func BindQuery(req any, fields []*Field, query url.Values) error {
	for _, f := range fields {
		values, given := query[f.HTTP()]
		switch {
		case given:
			if err := f.SetText(req, values, Parameter); err != nil {
				return err
			}
		case f.Required:
			return missing(Parameter, f.HTTP(), f.About())
		}
	}
	return nil
}

// CheckNames refuses the first name that is not known.
func CheckNames(given, known []string, noun Noun) error {
	for _, name := range given {
		if slices.Contains(known, name) {
			continue
		}
		hint := fmt.Sprintf("The %ss are: %s.", noun, strings.Join(known, ", "))
		if len(known) == 0 {
			hint = fmt.Sprintf("There are no %ss here.", noun)
		}
		if near := document.Suggest(name, known); near != "" {
			hint = fmt.Sprintf("Did you mean %q? %s", near, hint)
		}
		return Wrong(name, fmt.Sprintf("There is no %s %s.", noun, quoted(name)), hint)
	}
	return nil
}

func missing(noun Noun, name, help string) error {
	return Wrong(name, fmt.Sprintf("The %s %q is missing.", noun, name), help)
}

// Wrong is the error for a part of a request; "" for the whole.
func Wrong(name, message, hint string) error {
	at := ""
	if name != "" {
		at = string(document.PointerOf(name))
	}
	return &engine.Error{Code: engine.CodeInvalidArgument, Path: at, Message: message, Hint: hint}
}

// setJSON sets the field from a JSON value.
func (f *Field) setJSON(req any, raw json.RawMessage, noun Noun, name string) error {
	is := typeOf(raw)
	mistake := func(want any, is string) error {
		hint := f.Help
		if typeOf(raw) == "a string" && (f.Kind == Object || f.Kind == Strings) {
			hint = "Send the value itself, not its JSON as text. " + hint
		}
		return Wrong(name, fmt.Sprintf("The %s %q must be %s, is %s.", noun, name, want, is), hint)
	}
	var value any
	ok := false
	switch f.Kind {
	case String, Time:
		var text string
		if is != "a string" || json.Unmarshal(raw, &text) != nil {
			return mistake(String, is)
		}
		return f.setString(req, text, noun, name)
	case Object:
		value, ok = raw, is == "an object"
	case Boolean:
		value, ok = raw[0] == 't', is == "a boolean"
	case Strings:
		var list []*string
		ok = is == "a list" && json.Unmarshal(raw, &list) == nil && !slices.Contains(list, nil)
		var texts []string
		for _, text := range list {
			if ok {
				texts = append(texts, *text)
			}
		}
		value = texts
	case Integer, Number:
		if is != "a number" {
			break
		}
		return f.setNumber(req, string(raw), noun, name)
	}
	if !ok {
		return mistake(f.Kind, is)
	}
	f.set(req, value)
	return nil
}

// SetText sets the field from text: of a path, a query or a header.
func (f *Field) SetText(req any, values []string, noun Noun) error {
	name := f.HTTP()
	if f.Kind == Strings {
		f.set(req, slices.Clone(values))
		return nil
	}
	if len(values) != 1 {
		return Wrong(name, fmt.Sprintf("The %s %q is given more than once.", noun, name), "Give it once.")
	}
	text := values[0]
	switch f.Kind {
	case Integer, Number:
		return f.setNumber(req, text, noun, name)
	case Boolean:
		if text != "true" && text != "false" {
			return f.mustBe(f.Kind, quoted(text), noun, name)
		}
		f.set(req, text == "true")
		return nil
	default:
		return f.setString(req, text, noun, name)
	}
}

func (f *Field) mustBe(want any, shown string, noun Noun, name string) error {
	return Wrong(name, fmt.Sprintf("The %s %q must be %s, is %s.", noun, name, want, shown), f.About())
}

func (f *Field) setString(req any, text string, noun Noun, name string) error {
	if f.Kind == Time {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || at.IsZero() {
			hint := "Write it as RFC 3339 says: 2026-01-02T15:04:05Z."
			if noun == Parameter {
				hint += " A + in an address is written %2B."
			}
			return Wrong(name, fmt.Sprintf("The %s %q must be %s, is %s.", noun, name, Time, quoted(text)), hint)
		}
		f.set(req, at)
		return nil
	}
	if len(f.Enum) > 0 && !slices.Contains(f.Enum, text) && (text != "" || noun != Parameter) {
		return f.mustBe("one of "+strings.Join(f.Enum, ", "), quoted(text), noun, name)
	}
	f.set(req, text)
	return nil
}

func (f *Field) setNumber(req any, text string, noun Noun, name string) error {
	n, err := strconv.ParseFloat(text, 64)
	shown := text
	if err != nil || len(text) > 40 {
		shown = quoted(text)
	}
	var value any = n
	if f.Kind == Integer && err == nil {
		value, err = parseInteger(text)
	}
	switch {
	case err != nil:
		return f.mustBe(f.Kind, shown, noun, name)
	case f.Range != nil && !f.Range.holds(n):
		return f.mustBe(f.Range, shown, noun, name)
	}
	f.set(req, value)
	return nil
}

// set sets the field; one that is a part of a document is only checked.
func (f *Field) set(req any, value any) {
	if f.index == nil {
		return
	}
	to := reflect.ValueOf(req).Elem().FieldByIndex(f.index)
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	if list, ok := value.([]string); ok && to.Type() != reflect.TypeFor[[]string]() { // of named strings
		to.Set(reflect.MakeSlice(to.Type(), len(list), len(list)))
		for i, text := range list {
			to.Index(i).SetString(text)
		}
		return
	}
	to.Set(reflect.ValueOf(value).Convert(to.Type()))
}

// In is the field's value in a request, given as a pointer.
func (f *Field) In(req any) reflect.Value { return reflect.ValueOf(req).Elem().FieldByIndex(f.index) }

// parseInteger takes what JSON Schema calls an integer: 3, and 3.0 and 3e0 too.
func parseInteger(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return 0, strconv.ErrRange
	}
	return int64(n), nil
}

func plain(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// typeOf names the type of valid JSON.
func typeOf(v []byte) string {
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

// quoted quotes what a caller wrote, cut where it is long.
func quoted(text string) string {
	const most = 60
	if len(text) > most {
		return strconv.Quote(text[:most]) + "..."
	}
	return strconv.Quote(text)
}
