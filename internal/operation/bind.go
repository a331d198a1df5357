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
	"unicode/utf8"

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

// named is what the field is called where it is a noun.
func (f *Field) named(noun Noun) string {
	if noun == Argument {
		return f.Name
	}
	return f.HTTP()
}

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
		if issue := (*document.Issue)(nil); errors.As(err, &issue) && issue.Path != "" { // its line is often the only one
			e.Path, e.Message = issue.Path, fmt.Sprintf("The %s not acceptable JSON: at %s, %s.", what, issue.Path, issue.Message)
		} else if issue != nil {
			e.Message = fmt.Sprintf("The %s not acceptable JSON: %s.", what, issue.Message)
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

// BindTool reads the arguments of a tool call; null is none. It returns the operation that
// is meant, and a pointer to its request.
func (o *Operation) BindTool(raw json.RawMessage) (*Operation, any, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	members, err := ReadObject(raw, "arguments are")
	if err != nil {
		return nil, nil, err
	}
	listed, other := o.ToolFields(), o.alternative()
	// The parts of a document are the engine's to name, unless a required one is missing:
	// then an unknown one is probably it.
	incomplete := slices.ContainsFunc(listed, func(f *Field) bool { return f.Required && members[f.Name] == nil })
	if !o.Document || incomplete {
		if err := CheckNames(slices.Sorted(maps.Keys(members)), namesOf(listed, Argument), Argument); err != nil {
			return nil, nil, err
		}
	}
	if o.Document || other != nil { // other: mistakes in values come before what goes together
		unbound := make([]*Field, len(listed))
		for i, f := range listed {
			one := *f
			one.index = nil
			unbound[i] = &one
		}
		if err := BindMembers(nil, unbound, members, Argument); err != nil {
			return nil, nil, err
		}
	}
	if other != nil {
		if o, err = o.choose(other, members); err != nil {
			return nil, nil, err
		}
	}
	req := o.NewRequest()
	if o.Document {
		SetDocument(req, o.Tool.Name, raw)
		return o, req, nil
	}
	return o, req, BindMembers(req, o.arguments, members, Argument)
}

// choose is the operation, or the other one of its tool when a field of only that is given.
func (o *Operation) choose(other *Operation, members map[string]json.RawMessage) (*Operation, error) {
	own, others := o.arguments, other.arguments
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
		return o, nil
	}
	if extra := given(own, others); extra != "" {
		return nil, Wrong(extra, fmt.Sprintf("The arguments %q and %q cannot be combined.", extra, chosen), "Leave out one of them.")
	}
	return other, nil
}

// alternative is the other operation of a tool, nil when there is none.
func (o *Operation) alternative() *Operation {
	if i := slices.IndexFunc(table, func(other *Operation) bool { return other.ID == o.Tool.Or }); i >= 0 {
		return table[i]
	}
	return nil
}

func hasName(fields []*Field, name string) bool {
	return slices.ContainsFunc(fields, func(f *Field) bool { return f.Name == name })
}

// ToolFields are the fields that a tool lists: those of its operation, and of the other
// one that it can run. What only one of the two requires is not required.
func (o *Operation) ToolFields() []*Field {
	own, other := o.arguments, o.alternative()
	if other == nil {
		return own
	}
	var added []*Field
	for _, f := range other.arguments {
		if !hasName(own, f.Name) {
			one := *f
			if o.Tool.OrPrefix != "" {
				one.Help = o.Tool.OrPrefix + strings.ToLower(f.Help[:1]) + f.Help[1:]
			}
			added = append(added, &one)
		}
	}
	all := append(slices.Clone(own), added...)
	if o.Tool.OrFirst {
		all = append(added, own...)
	}
	for i, f := range all {
		one := *f
		one.Required = false
		all[i] = &one
	}
	return all
}

// Shown are values of the types that a tool answers with: its operation's and, where
// there is one, the other's.
func (o *Operation) Shown() []any {
	shown := []any{o.Show(reflect.Zero(o.Result).Interface())}
	if other := o.alternative(); other != nil {
		shown = append(shown, other.Shown()...)
	}
	return shown
}

// SetDocument sets the document that a request is, and the name that it has in messages.
func SetDocument(req any, source string, text []byte) {
	v := reflect.ValueOf(req).Elem()
	v.FieldByName("Source").SetString(source)
	v.FieldByName("Document").SetBytes(text)
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
		return Wrong(name, fmt.Sprintf("There is no %s %s.", noun, quoteText(name)), hint)
	}
	return nil
}

// BindMembers sets the fields of a request from the members of an object. Null counts as
// absent.
func BindMembers(req any, fields []*Field, members map[string]json.RawMessage, noun Noun) error {
	for _, f := range fields {
		raw, given := members[f.named(noun)]
		switch {
		case given && string(raw) != "null":
			if err := f.set(req, raw, noun); err != nil {
				return err
			}
		case f.Required:
			return Wrong(f.named(noun), fmt.Sprintf("The %s %q is missing.", noun, f.named(noun)), f.About())
		}
	}
	return nil
}

// BindQuery sets the fields of a request from the query of an address.
func BindQuery(req any, fields []*Field, query url.Values) error {
	for _, f := range fields {
		values, given := query[f.HTTP()]
		if !given && f.Required {
			return BindMembers(req, []*Field{f}, nil, Parameter)
		}
		if given {
			if err := f.SetText(req, values, Parameter); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetText sets the field from text: of a path, a query or a header.
func (f *Field) SetText(req any, values []string, noun Noun) error {
	if f.Kind == Strings {
		f.assign(req, values)
		return nil
	}
	if len(values) != 1 {
		return Wrong(f.HTTP(), fmt.Sprintf("The %s %q is given more than once.", noun, f.HTTP()), "Give it once.")
	}
	raw := json.RawMessage(values[0])
	if f.Kind != String && f.Kind != Time && json.Valid(raw) && typeOf(raw) != "a string" {
		return f.set(req, raw, noun)
	}
	raw, err := json.Marshal(values[0])
	if err != nil || !utf8.ValidString(values[0]) {
		return Wrong(f.HTTP(), fmt.Sprintf("The %s %q is not valid UTF-8.", noun, f.HTTP()), "Encode it as UTF-8.")
	}
	return f.set(req, raw, noun)
}

// set sets the field from a JSON value that is not null.
func (f *Field) set(req any, raw json.RawMessage, noun Noun) error {
	is, text, n := typeOf(raw), "", 0.0
	switch is {
	case "a string":
		_ = json.Unmarshal(raw, &text) // it is one
	case "a number":
		n, _ = strconv.ParseFloat(string(raw), 64) // parse looks at what is none
	}
	value, ok := f.parse(raw, is, text)
	switch {
	case !ok && f.Kind == Time && is != "a string":
		return f.mistake(string(String), is, text, raw, noun)
	case !ok:
		return f.mistake(string(f.Kind), is, text, raw, noun)
	case len(f.Enum) > 0 && !slices.Contains(f.Enum, text) && (text != "" || noun != Parameter):
		return f.mistake("one of "+strings.Join(f.Enum, ", "), is, text, raw, noun)
	case f.Range != nil && !f.Range.holds(n):
		return f.mistake(f.Range.String(), is, text, raw, noun)
	}
	f.assign(req, value)
	return nil
}

// parse is the value of the field's kind that raw is, false when it is another one.
func (f *Field) parse(raw json.RawMessage, is, text string) (value any, ok bool) {
	switch f.Kind {
	case String:
		return text, is == "a string"
	case Time:
		at, err := time.Parse(time.RFC3339Nano, text)
		return at, err == nil && !at.IsZero()
	case Object:
		return raw, is == "an object"
	case Boolean:
		return raw[0] == 't', is == "a boolean"
	case Number:
		n, err := strconv.ParseFloat(string(raw), 64)
		return n, err == nil
	case Integer:
		return parseInteger(string(raw))
	default:
		var list []*string
		if is != "a list" || json.Unmarshal(raw, &list) != nil || slices.Contains(list, nil) {
			return nil, false
		}
		texts := make([]string, len(list))
		for i, text := range list {
			texts[i] = *text
		}
		return texts, true
	}
}

// mistake is the error for a value that the field cannot have.
func (f *Field) mistake(want, is, text string, raw json.RawMessage, noun Noun) error {
	hint := f.About()
	if noun == Argument {
		hint = f.Help
	}
	switch {
	case is == "a string" && (f.Kind == Object || f.Kind == Strings):
		hint = "Send the value itself, not its JSON as text. " + hint
	case is == "a string" && f.Kind == Time:
		if is, hint = quoteText(text), "Write it as RFC 3339 says: 2026-01-02T15:04:05Z."; noun == Parameter {
			hint += " A + in an address is written %2B."
		}
	case is == "a string" && (f.Kind == String || noun == Parameter || noun == Header):
		is = quoteText(text)
	case is == "a number" && (f.Kind == Integer || f.Kind == Number):
		is = fmt.Sprintf("%.40s", raw)
	}
	return Wrong(f.named(noun), fmt.Sprintf("The %s %q must be %s, is %s.", noun, f.named(noun), want, is), hint)
}

// assign sets the field; one that is a part of a document is only checked.
func (f *Field) assign(req any, value any) {
	if f.index == nil {
		return
	}
	to := f.In(req)
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	if list, ok := value.([]string); ok { // whose texts may have a type of their own
		to.Set(reflect.MakeSlice(to.Type(), len(list), len(list)))
		for i, text := range list {
			to.Index(i).SetString(text)
		}
		return
	}
	to.Set(reflect.ValueOf(value).Convert(to.Type()))
}

// Wrong is the error for a part of a request; "" for the whole.
func Wrong(name, message, hint string) error {
	at := ""
	if name != "" {
		at = string(document.PointerOf(name))
	}
	return &engine.Error{Code: engine.CodeInvalidArgument, Path: at, Message: message, Hint: hint}
}

// parseInteger takes what JSON Schema calls an integer: 3, and 3.0 and 3e0 too.
func parseInteger(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return 0, false
	}
	return int64(n), true
}

func formatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

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

// quoteText quotes what a caller wrote, cut where it is long.
func quoteText(text string) string {
	const most = 60
	if len(text) > most {
		return strconv.Quote(text[:most]) + "..."
	}
	return strconv.Quote(text)
}
