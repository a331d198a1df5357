package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// maxDepth limits the nesting of a request: the document and the object around it.
const maxDepth = 96

// Noun is the word for a field in messages.
type Noun string

// The nouns.
const (
	Argument  Noun = "argument"
	Member    Noun = "member"
	Parameter Noun = "parameter"
	Header    Noun = "header"
	Flag      Noun = "flag"
)

// nameAs returns the name of the field in the given role.
func (f *Field) nameAs(noun Noun) string {
	if noun == Argument || noun == Flag {
		return f.Name
	}
	return f.HTTP()
}

// jsonSpace is the white space that RFC 8259 allows.
const jsonSpace = " \t\r\n"

// ReadObject parses a JSON object; empty input is an absent object without members. what begins the messages:
// "arguments are", "body is".
func ReadObject(raw []byte, what string) (document.JSON, error) {
	if raw = bytes.Trim(raw, jsonSpace); len(raw) == 0 {
		return document.JSON{}, nil
	}
	v, err := document.ReadJSON(raw, document.Limits{Bytes: len(raw) + 1, Depth: maxDepth, Spaced: true})
	if err != nil {
		e := &engine.Error{
			Code: engine.CodeInvalidData, Err: err, Message: fmt.Sprintf("The %s not acceptable JSON: %s.", what, err),
			Hint: "Send each key once, valid Unicode text, and numbers that a 64-bit float keeps; quote larger ones.",
		}
		if issue := (*document.Issue)(nil); errors.As(err, &issue) && issue.Path != "" { // the whole document is often on one line
			e.Path, e.Message = issue.Path, fmt.Sprintf("The %s not acceptable JSON: at %s, %s.", what, issue.Path, issue.Message)
		} else if issue != nil {
			e.Message = fmt.Sprintf("The %s not acceptable JSON: %s.", what, issue.Message)
		}
		return document.JSON{}, e
	}
	if v.Kind() != document.Object {
		return document.JSON{}, NewArgumentError("", fmt.Sprintf("The %s %s, not an object.", what, kindName(v)), "Send them by name.")
	}
	return v, nil
}

// BindTool parses the arguments of a tool call; null means none. It returns the operation to run, and a pointer to
// its request.
func (o *Operation) BindTool(raw json.RawMessage) (*Operation, any, error) {
	if raw = bytes.Trim(raw, jsonSpace); len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	members, err := ReadObject(raw, "arguments are")
	if err != nil {
		return nil, nil, err
	}
	listed, other := o.ToolFields(), o.alternative()
	// The engine checks the names of a document's parts, unless a required one is missing. Then an unknown name is
	// probably the missing one.
	incomplete := slices.ContainsFunc(listed, func(f *Field) bool { return f.Required && members.Get(f.Name).Kind() == 0 })
	if !o.Document || incomplete {
		if err := CheckMembers(members, listed, Argument); err != nil {
			return nil, nil, err
		}
	}
	if o.Document || other != nil { // with an alternative, wrong values are reported before wrong combinations
		if err := BindMembers(nil, listed, members, Argument); err != nil {
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

// choose returns the operation, or the alternative of its tool if a field is given that only the alternative has.
func (o *Operation) choose(other *Operation, members document.JSON) (*Operation, error) {
	own, others := o.arguments, other.arguments
	given := func(fields, without []*Field) string {
		for _, f := range fields {
			if isGiven(members.Get(f.Name)) && !hasName(without, f.Name) {
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
		return nil, NewArgumentError(extra, fmt.Sprintf("The arguments %q and %q cannot be combined.", extra, chosen), "Omit one.")
	}
	return other, nil
}

// alternative returns the other operation of a tool; nil if there is none.
func (o *Operation) alternative() *Operation {
	if i := slices.IndexFunc(table, func(other *Operation) bool { return other.ID == o.Tool.Or }); i >= 0 {
		return table[i]
	}
	return nil
}

func hasName(fields []*Field, name string) bool {
	return slices.ContainsFunc(fields, func(f *Field) bool { return f.Name == name })
}

// ToolFields returns the fields that a tool lists: those of its operation and of the alternative. Fields that only
// one of the two requires are not required.
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

// Shown returns values of the types that a tool can answer with: of its operation and, if there is one, of the
// alternative.
func (o *Operation) Shown() []any {
	shown := []any{o.Show(reflect.Zero(o.Result).Interface())}
	if other := o.alternative(); other != nil {
		shown = append(shown, other.Shown()...)
	}
	return shown
}

// SetDocument sets the document of a request, and the name of the document in messages.
func SetDocument(req any, source string, text []byte) {
	v := reflect.ValueOf(req).Elem()
	v.FieldByName("Source").SetString(source)
	v.FieldByName("Document").SetBytes(text)
}

// CheckMembers rejects an object with unknown members.
func CheckMembers(members document.JSON, fields []*Field, noun Noun) error {
	var unknown []string
	for name := range members.Members() {
		if !slices.ContainsFunc(fields, func(f *Field) bool { return name.Is(f.nameAs(noun)) }) {
			unknown = append(unknown, name.Text())
		}
	}
	var missing []string
	for _, f := range fields {
		if name := f.nameAs(noun); f.Required && !isGiven(members.Get(name)) {
			missing = append(missing, name)
		}
	}
	return rejectUnknown(unknown, missing, fields, noun)
}

// CheckQuery rejects a query with unknown parameters.
func CheckQuery(query url.Values, fields []*Field) error {
	var unknown []string
	for name := range query {
		if !slices.ContainsFunc(fields, func(f *Field) bool { return name == f.HTTP() }) {
			unknown = append(unknown, name)
		}
	}
	return rejectUnknown(unknown, nil, fields, Parameter)
}

// maxUnknown limits how many unknown names one message lists.
const maxUnknown = 8

// rejectUnknown returns an error that lists the unknown names, if there are any. If exactly one name is missing and
// one is unknown, the unknown one is probably the missing one. Otherwise, if the fields include an open object, the
// names are probably its members, because clients send data flat.
func rejectUnknown(unknown, missing []string, fields []*Field, noun Noun) error {
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	name, known := unknown[0], namesOf(fields, noun)
	hint := fmt.Sprintf("The %ss are: %s.", noun, strings.Join(known, ", "))
	if len(known) == 0 {
		hint = fmt.Sprintf("There are no %ss here.", noun)
	}
	message := fmt.Sprintf("There is no %s %s.", noun, quoteText(name))
	if len(missing) > 0 {
		hint = fmt.Sprintf("The %s %q is missing. %s", noun, missing[0], hint)
	}
	open := slices.IndexFunc(fields, func(f *Field) bool { return f.Open && noun != Parameter })
	if len(unknown) == 1 && len(missing) == 1 {
		hint = fmt.Sprintf("Did you mean %q? %s", missing[0], hint)
		return NewArgumentError(name, message, hint)
	}
	if open >= 0 {
		var quoted, members []string
		for _, u := range unknown[:min(len(unknown), maxUnknown)] {
			quoted, members = append(quoted, quoteText(u)), append(members, quoteText(u)+": ...")
		}
		it := "it"
		if len(unknown) > 1 {
			message, it = fmt.Sprintf("There are no %ss %s.", noun, strings.Join(quoted, ", ")), "them"
		}
		inside := fields[open].nameAs(noun)
		hint = fmt.Sprintf("Put %s inside %s: %q: {%s}. %s", it, inside, inside, strings.Join(members, ", "), hint)
	}
	if near := document.Suggest(name, known); near != "" {
		hint = fmt.Sprintf("Did you mean %q? %s", near, hint)
	}
	return NewArgumentError(name, message, hint)
}

// isGiven reports whether a member has a value; null counts as absent.
func isGiven(v document.JSON) bool { return v.Kind() != 0 && v.Kind() != document.Null }

// BindMembers sets the fields of a request from the members of an object. If req is nil, it only checks them.
func BindMembers(req any, fields []*Field, members document.JSON, noun Noun) error {
	for _, f := range fields {
		v := members.Get(f.nameAs(noun))
		switch {
		case isGiven(v):
			if err := f.set(req, v, noun); err != nil {
				return err
			}
		case f.Required:
			return f.reportMissing(noun)
		}
	}
	return nil
}

func (f *Field) reportMissing(noun Noun) error {
	return NewArgumentError(f.nameAs(noun), fmt.Sprintf("The %s %q is missing.", noun, f.nameAs(noun)), f.About())
}

// BindQuery sets the fields of a request from a URL query.
func BindQuery(req any, fields []*Field, query url.Values) error {
	for _, f := range fields {
		values, given := query[f.HTTP()]
		switch {
		case given:
			if err := f.SetText(req, values, Parameter); err != nil {
				return err
			}
		case f.Required:
			return f.reportMissing(Parameter)
		}
	}
	return nil
}

// SetText sets the field from text in a path, a query or a header.
func (f *Field) SetText(req any, values []string, noun Noun) error {
	if f.Kind == Strings {
		f.assign(req, values)
		return nil
	}
	if len(values) != 1 {
		return NewArgumentError(f.HTTP(), fmt.Sprintf("The %s %q is given more than once.", noun, f.HTTP()), "Give it once.")
	}
	text := values[0]
	if !utf8.ValidString(text) {
		return NewArgumentError(f.HTTP(), fmt.Sprintf("The %s %q is not valid UTF-8.", noun, f.HTTP()), "Encode it as UTF-8.")
	}
	if f.Kind != String && f.Kind != Time {
		v, err := document.ReadJSON([]byte(text), document.Limits{Bytes: len(text) + 1, Depth: maxDepth})
		if err == nil && (v.Kind() != document.String || f.Kind == Any) {
			return f.set(req, v, noun)
		}
	}
	return f.set(req, document.ReadTrusted(document.AppendQuote(nil, text)), noun)
}

// set sets the field from a JSON value other than null.
func (f *Field) set(req any, v document.JSON, noun Noun) error {
	value, ok := f.parse(v)
	switch {
	case !ok && f.Kind == Time && v.Kind() != document.String:
		return f.reportMistake(string(String), v, noun)
	case !ok:
		return f.reportMistake(string(f.Kind), v, noun)
	case len(f.Enum) > 0 && !slices.ContainsFunc(f.Enum, v.Is) && (noun != Parameter || !v.Is("")):
		return f.reportMistake("one of "+strings.Join(f.Enum, ", "), v, noun)
	case f.Range != nil:
		if n, _ := strconv.ParseFloat(string(v.Raw()), 64); !f.Range.contains(n) { // parse has rejected values that are not numbers
			return f.reportMistake(f.Range.String(), v, noun)
		}
	}
	if req != nil {
		f.assign(req, value)
	}
	return nil
}

// parse converts the value to the field's kind; ok is false if it has another kind.
func (f *Field) parse(v document.JSON) (value any, ok bool) {
	switch f.Kind {
	case String:
		return v.Text(), v.Kind() == document.String
	case Time:
		at, err := time.Parse(time.RFC3339Nano, v.Text())
		return at, err == nil && !at.IsZero()
	case Object:
		return v, v.Kind() == document.Object
	case Any:
		return v, true
	case Boolean:
		return v.Kind() == document.True, v.Kind() == document.True || v.Kind() == document.False
	case Number:
		n, err := strconv.ParseFloat(string(v.Raw()), 64)
		return n, err == nil
	case Integer:
		return parseInteger(string(v.Raw()))
	default:
		texts := make([]string, 0, v.Len())
		for _, text := range v.Elements() {
			if text.Kind() != document.String {
				return nil, false
			}
			texts = append(texts, text.Text())
		}
		return texts, v.Kind() == document.Array
	}
}

// reportMistake returns the error for a value that the field cannot have.
func (f *Field) reportMistake(want string, v document.JSON, noun Noun) error {
	is, hint := kindName(v), f.About()
	if noun == Argument || noun == Flag {
		hint = f.Help
	}
	switch isText := v.Kind() == document.String; {
	case isText && (f.Kind == Object || f.Kind == Strings):
		hint = "Send the value itself, not its JSON as text. " + hint
	case isText && f.Kind == Time:
		if is, hint = quoteText(v.Text()), "Use RFC 3339, such as 2026-01-02T15:04:05Z."; noun == Parameter {
			hint += " In a URL, write + as %2B."
		}
	case isText && (f.Kind == String || noun == Parameter || noun == Header):
		is = quoteText(v.Text())
	case v.Kind() == document.Number && (f.Kind == Integer || f.Kind == Number):
		is = fmt.Sprintf("%.40s", v.Raw())
	}
	return NewArgumentError(f.nameAs(noun), fmt.Sprintf("The %s %q must be %s, but is %s.", noun, f.nameAs(noun), want, is), hint)
}

// assign sets the field. Parts of a document are not assigned.
func (f *Field) assign(req any, value any) {
	if f.index == nil {
		return
	}
	to := f.In(req)
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	if doc, ok := value.(document.JSON); ok && to.Type() != reflect.TypeFor[document.JSON]() {
		value = doc.Raw()
	}
	if list, ok := value.([]string); ok { // the elements may have a named string type
		to.Set(reflect.MakeSlice(to.Type(), len(list), len(list)))
		for i, text := range list {
			to.Index(i).SetString(text)
		}
		return
	}
	to.Set(reflect.ValueOf(value).Convert(to.Type()))
}

// NewArgumentError returns the error for a part of a request; name "" is the whole request.
func NewArgumentError(name, message, hint string) error {
	at := ""
	if name != "" {
		at = string(document.PointerOf(name))
	}
	return &engine.Error{Code: engine.CodeInvalidArgument, Path: at, Message: message, Hint: hint}
}

// parseInteger accepts what JSON Schema calls an integer: 3, but also 3.0 and 3e0.
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

// kindName describes the kind of a value for messages.
func kindName(v document.JSON) string {
	if v.Kind() == document.Array {
		return "a list"
	}
	return v.Kind().String()
}

// quoteText quotes a caller's text, and truncates it if it is long.
func quoteText(text string) string {
	const most = 60
	if len(text) > most {
		return strconv.Quote(text[:most]) + "..."
	}
	return strconv.Quote(text)
}
