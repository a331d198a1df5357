package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/strictdoc"
)

// Document is a body that is a document itself.
type Document struct {
	// Media is its media type: JSON or YAML.
	Media string
	Bytes []byte
}

// DocumentOf is a document whose name says what it is: .yaml and .yml are YAML.
func DocumentOf(name string, text []byte) Document {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml":
		return Document{Media: yamlType, Bytes: text}
	}
	return Document{Media: jsonType, Bytes: text}
}

// deepestBody bounds the nesting of a body: that of a document, and of what is around it.
const deepestBody = 96

// strictHint is what to do about strict JSON's refusals.
const strictHint = "Send each member once, valid Unicode text, and numbers that a 64-bit float keeps; quote larger ones."

// read decodes a request into *into, and refuses what nobody would read.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, o Route, into any) error {
	v := reflect.ValueOf(into).Elem()
	p := planOf(v.Type())
	for _, f := range p[inPath] {
		if err := f.setText(v, inPath, []string{r.PathValue(f.name)}); err != nil {
			return err
		}
	}
	if err := p.readQuery(v, r.URL.RawQuery); err != nil {
		return err
	}
	if err := p.readHeaders(v, r); err != nil {
		return err
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	return h.readBody(w, r, o, p, v)
}

func (p plan) readQuery(v reflect.Value, raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return wrong("", "The query of the address is not readable.", "Encode what is not a letter or a digit as %XX.")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(p.names(inQuery), name) {
			return unknownName("parameter", name, p.names(inQuery))
		}
	}
	for _, f := range p[inQuery] {
		if values, ok := query[f.name]; ok {
			if err := f.setText(v, inQuery, values); err != nil {
				return err
			}
		} else if f.required {
			return wrong(f.name, fmt.Sprintf("The parameter %q is missing.", f.name), "Add it to the query of the address.")
		}
	}
	return nil
}

func (p plan) readHeaders(v reflect.Value, r *http.Request) error {
	preconditions, keys := false, false
	for _, f := range p[inHeader] {
		values := r.Header.Values(f.name)
		if len(values) == 0 {
			continue
		}
		text := strings.TrimSpace(strings.Join(values, ","))
		switch f.name {
		case headerIfMatch:
			revision, err := revisionOf(text)
			if err != nil {
				return err
			}
			v.FieldByIndex(f.index).Set(reflect.ValueOf(revision))
			preconditions = true
			continue
		case headerIdempotencyKey:
			key, err := keyOf(values)
			if err != nil {
				return err
			}
			text, keys = key, true
		}
		if err := f.setText(v, inHeader, []string{text}); err != nil {
			return err
		}
	}
	changing := r.Method != http.MethodGet && r.Method != http.MethodHead
	if changing && !preconditions && r.Header.Get(headerIfMatch) != "" {
		return wrong(headerIfMatch, "This operation does not look at If-Match.", "Leave it out: a condition that nobody checks would not protect you.")
	}
	if changing && !keys && len(r.Header.Values(headerIdempotencyKey)) > 0 {
		return wrong(headerIdempotencyKey, "This operation takes no Idempotency-Key.", "Leave it out: a repeated request would be done again.")
	}
	return nil
}

// revisionOf reads If-Match: "7", or the ETag of something that was read at revision 7. A
// weak tag means the same, because revisions are what is compared.
func revisionOf(text string) (*int64, error) {
	if text == "*" {
		return nil, nil //nolint:nilnil // any revision
	}
	inner, ok := strings.CutPrefix(strings.TrimPrefix(text, "W/"), `"`)
	if ok {
		inner, ok = strings.CutSuffix(inner, `"`)
	}
	digits, rest, more := strings.Cut(inner, "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 1 || digits[0] == '+' || (more && !isHex(rest)) {
		return nil, wrong(headerIfMatch, fmt.Sprintf("The header If-Match is not one ETag of an instance: %.60q.", text), `Send the ETag that you were given, or a revision in double quotes: "7".`)
	}
	return &n, nil
}

func isHex(text string) bool {
	return text != "" && strings.Trim(text, "0123456789abcdef") == ""
}

// keyOf reads Idempotency-Key: as it stands, or as a string of RFC 9651 in double quotes.
func keyOf(values []string) (string, error) {
	bad := func(what string) (string, error) {
		return "", wrong(headerIdempotencyKey, "The header Idempotency-Key "+what+".", "Send one key, for example a UUID.")
	}
	if len(values) != 1 {
		return bad("stands more than once")
	}
	key := strings.TrimSpace(values[0])
	if inner, ok := strings.CutPrefix(key, `"`); ok {
		if key, ok = strings.CutSuffix(inner, `"`); !ok || strings.ContainsAny(key, `"\`) {
			return bad("is not a string that ends where it should")
		}
	}
	if key == "" {
		return bad("is empty")
	}
	return key, nil
}

// setText sets a field from text: of the path, the query or a header.
func (f field) setText(v reflect.Value, at place, values []string) error {
	to := v.FieldByIndex(f.index)
	if to.Kind() == reflect.Slice {
		to.Set(reflect.ValueOf(slices.Clone(values)).Convert(to.Type()))
		return nil
	}
	if len(values) != 1 {
		return wrong(f.name, fmt.Sprintf("The parameter %q stands more than once.", f.name), "Give it once.")
	}
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	if err := setScalar(to, values[0]); err != nil {
		return wrong(f.name, fmt.Sprintf("The %s %q must be %s, is %.40q.", at.noun(), f.name, wanted(to.Type()), values[0]), hintOf(to.Type()))
	}
	return nil
}

func (p place) noun() string {
	if p == inHeader {
		return "header"
	}
	return "parameter"
}

func setScalar(to reflect.Value, text string) error {
	if to.Type() == reflect.TypeFor[time.Time]() {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err == nil && at.IsZero() {
			err = errors.New("the zero time")
		}
		to.Set(reflect.ValueOf(at))
		return err //nolint:wrapcheck // the caller says what it was
	}
	switch to.Kind() {
	case reflect.String:
		to.SetString(text)
		return nil
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, to.Type().Bits())
		to.SetInt(n)
		return err //nolint:wrapcheck // the caller says what it was
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		to.SetFloat(n)
		return err //nolint:wrapcheck // the caller says what it was
	case reflect.Bool:
		to.SetBool(text == "true")
		if text != "true" && text != "false" {
			return errors.New("neither true nor false")
		}
		return nil
	default:
		panic(fmt.Sprintf("httpapi: no text is a %s", to.Type())) // a mistake of this program, met by its first test
	}
}

// wanted says what text a type is read from.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "a time"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Float64:
		return "a number"
	default:
		return "an integer"
	}
}

func hintOf(t reflect.Type) string {
	if t == reflect.TypeFor[time.Time]() {
		return "Write it as RFC 3339 says: 2026-01-02T15:04:05Z. A + in an address is written %2B."
	}
	return "Correct it, or leave it out."
}

// readBody reads a body of JSON members, or one that is a document itself.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, o Route, p plan, v reflect.Value) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBody))
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &engine.Error{Code: engine.CodeTooLarge, Message: fmt.Sprintf("The body has more than %d bytes.", tooLong.Limit), Hint: "Send less; keep large content elsewhere and refer to it."}
	}
	if err != nil {
		return &engine.Error{Code: engine.CodeCancelled, Message: "The body ended before it was whole.", Hint: "Send it again.", Err: err}
	}
	media, err := mediaOf(r, o, len(body) == 0)
	if err != nil {
		return err
	}
	if document := p[inBody]; len(document) == 1 {
		v.FieldByIndex(document[0].index).Set(reflect.ValueOf(Document{Media: media, Bytes: body}))
		return nil
	}
	return p.readMembers(v, body)
}

// mediaOf is the media type of the body: JSON, or YAML where that is read.
func mediaOf(r *http.Request, o Route, empty bool) (string, error) {
	sent := r.Header.Get("Content-Type")
	if empty && sent == "" {
		return jsonType, nil
	}
	media, params, err := mime.ParseMediaType(sent)
	charset := strings.ToLower(params["charset"])
	coded := r.Header.Get("Content-Encoding")
	fine := err == nil && (charset == "" || charset == "utf-8") && (coded == "" || strings.EqualFold(coded, "identity"))
	switch {
	case fine && media == jsonType:
		return jsonType, nil
	case fine && o.YAML && slices.Contains(yamlTypes, media):
		return yamlType, nil
	}
	hint := "Send it plain as UTF-8, with Content-Type: " + jsonType
	if o.YAML {
		hint += " or " + yamlType
	}
	return "", &engine.Error{Code: CodeUnsupportedMedia, Message: fmt.Sprintf("The body is of the type %.80q, which this operation does not read.", sent), Hint: hint + "."}
}

// readMembers reads a JSON object member by member.
func (p plan) readMembers(v reflect.Value, body []byte) error {
	if body = bytes.TrimSpace(body); len(body) == 0 {
		body = []byte("{}")
	}
	if err := strictdoc.CheckJSON(body, strictdoc.Limits{Bytes: len(body) + 1, Depth: deepestBody}); err != nil {
		return notStrict(err)
	}
	var members map[string]json.RawMessage
	if body[0] != '{' || json.Unmarshal(body, &members) != nil {
		return wrong("", "The body must be an object, is "+typeOf(body)+".", "Send a JSON object.")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(p.names(inJSON), name) {
			return unknownName("member", name, p.names(inJSON))
		}
	}
	for _, f := range p[inJSON] {
		raw, ok := members[f.name]
		if ok && string(raw) != "null" {
			if err := f.setJSON(v, raw); err != nil {
				return err
			}
		} else if f.required {
			return wrong(f.name, fmt.Sprintf("The member %q is missing.", f.name), "Add it to the body.")
		}
	}
	return nil
}

func notStrict(err error) error {
	e := &engine.Error{Code: engine.CodeInvalidData, Hint: strictHint, Err: err, Message: "The body is not acceptable JSON."}
	var issue *strictdoc.Issue
	if errors.As(err, &issue) {
		e.Path = issue.Path
		e.Message = fmt.Sprintf("The body is not acceptable JSON: %s.", issue.Error())
	}
	return e
}

// setJSON sets a field from a member of the body.
func (f field) setJSON(v reflect.Value, raw json.RawMessage) error {
	want, fits := jsonKind(f.of)
	to := v.FieldByIndex(f.index)
	if is := typeOf(raw); !fits(is) {
		hint := "Correct it."
		if is == "a string" {
			hint = "Send the value itself, not its JSON as text."
		}
		return wrong(f.name, fmt.Sprintf("The member %q must be %s, is %s.", f.name, want, is), hint)
	}
	if err := json.Unmarshal(raw, to.Addr().Interface()); err != nil {
		return wrong(f.name, fmt.Sprintf("The member %q must be %s.", f.name, want), "Correct it.")
	}
	return nil
}

// jsonKind says what JSON a type is read from.
func jsonKind(t reflect.Type) (want string, fits func(is string) bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		want = "an object"
	case t.Kind() == reflect.String:
		want = "a string"
	case t.Kind() == reflect.Bool:
		want = "a boolean"
	case t.Kind() == reflect.Slice:
		want = "a list"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return "an integer", func(is string) bool { return is == "a number" }
	default:
		want = "a number"
	}
	return want, func(is string) bool { return is == want }
}

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

func unknownName(noun, name string, known []string) error {
	hint := fmt.Sprintf("There are: %s.", strings.Join(known, ", "))
	if len(known) == 0 {
		hint = "This operation takes none."
	}
	if near := strictdoc.Suggest(name, known); near != "" {
		hint = fmt.Sprintf("Did you mean %q? %s", near, hint)
	}
	return wrong(name, fmt.Sprintf("There is no %s %.60q.", noun, name), hint)
}

// wrong says which part of a request is not right.
func wrong(name, message, hint string) error {
	at := ""
	if name != "" {
		at = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return &engine.Error{Code: engine.CodeInvalidArgument, Path: at, Message: message, Hint: hint}
}
