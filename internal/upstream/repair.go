package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

// repairs collects the changes that make a definition acceptable to strict clients, which otherwise reject the whole
// list. Acceptable definitions stay byte for byte.
type repairs struct {
	made    []string
	refused error
}

func (r *repairs) note(format string, args ...any) {
	r.made = append(r.made, fmt.Sprintf(format, args...))
}

func (r *repairs) refuse(format string, args ...any) {
	if r.refused == nil {
		r.refused = fmt.Errorf(format, args...)
	}
}

// repairDefinition returns a definition that the official SDKs accept, and a description of each repair. It returns
// an error if the meaning is unclear.
func repairDefinition(kind Kind, v document.JSON) (json.RawMessage, []string, error) {
	r := &repairs{}
	replace := r.dropNulls("", v)
	for name, value := range v.Members() {
		text := name.Text()
		fits, known := optionalMembers[text]
		if text == "annotations" && kind == KindTool {
			fits = isAnnotations
		}
		switch with, dropped := replace[text]; {
		case dropped && with == nil, text == nameKey(kind):
		case text == "inputSchema" && kind == KindTool:
			replace[text] = r.repairSchema(text, value)
		case text == "outputSchema" && kind == KindTool:
			replace[text] = r.repairOutput(value)
		case text == "arguments" && kind == KindPrompt:
			replace[text] = r.repairArguments(value)
		case slices.Contains([]string{"name", "title", "description", "mimeType"}, text):
			r.requireText(text, value)
		case known:
			replace[text] = r.repairOptional(text, value, fits)
		}
	}
	if kind == KindTool && replace["inputSchema"] == nil {
		replace["inputSchema"] = r.repairSchema("inputSchema", document.JSON{})
	}
	if (kind == KindResource || kind == KindTemplate) && v.Get("name").Kind() != document.String {
		r.note("it has no name; its %s is used instead", nameKey(kind))
		replace["name"] = v.Get(nameKey(kind)).Raw()
	}
	if uri := v.Get("uri").Text(); kind == KindResource && strings.IndexFunc(uri, unicode.IsSpace) >= 0 {
		r.refuse("its uri has a space in it")
	}
	if len(r.made) == 0 || r.refused != nil {
		return v.Raw(), nil, r.refused
	}
	return rewriteMembers(v.Raw(), replace), r.made, nil
}

// dropNulls returns replacements that remove null members, except those that may be null.
func (r *repairs) dropNulls(path string, v document.JSON, mayBeNull ...string) map[string]json.RawMessage {
	replace := map[string]json.RawMessage{}
	for name, value := range v.Members() {
		if text := name.Text(); value.Kind() == document.Null && !slices.Contains(mayBeNull, text) {
			r.note("%s is null", joinPath(path, text))
			replace[text] = nil
		}
	}
	return replace
}

func joinPath(path, name string) string {
	if path == "" {
		return shortenText(name, nil)
	}
	return path + "." + shortenText(name, nil)
}

func (r *repairs) requireText(path string, v document.JSON) {
	if v.Kind() != document.String && v.Kind() != document.Null && v.Kind() != 0 {
		r.refuse("%s is %s, not a string", path, v.Kind())
	}
}

// isAbsentOr reports whether a member is absent or fits.
func isAbsentOr(v document.JSON, name string, fits func(document.JSON) bool) bool {
	member := v.Get(name)
	return member.Kind() == 0 || fits(member)
}

func isText(v document.JSON) bool { return v.Kind() == document.String }

func isFlag(v document.JSON) bool { return v.Kind() == document.True || v.Kind() == document.False }

func isObject(v document.JSON) bool { return v.Kind() == document.Object }

func isOneOf(words ...string) func(document.JSON) bool {
	return func(v document.JSON) bool { return isText(v) && slices.Contains(words, v.Text()) }
}

func isListOf(fits func(document.JSON) bool) func(document.JSON) bool {
	return func(v document.JSON) bool {
		return v.Kind() == document.Array && !slices.ContainsFunc(listElements(v), func(e document.JSON) bool { return !fits(e) })
	}
}

// optionalMembers maps members that may be dropped to a check of their form.
var optionalMembers = map[string]func(document.JSON) bool{
	"_meta": isObject,
	"icons": isListOf(func(v document.JSON) bool {
		return isText(v.Get("src")) && isAbsentOr(v, "mimeType", isText) && isAbsentOr(v, "sizes", isListOf(isText)) && isAbsentOr(v, "theme", isOneOf("light", "dark"))
	}),
	"execution": func(v document.JSON) bool {
		return isObject(v) && isAbsentOr(v, "taskSupport", isOneOf("required", "optional", "forbidden"))
	},
	"size": func(v document.JSON) bool {
		_, err := strconv.ParseInt(string(v.Raw()), 10, 64)
		return err == nil
	},
	"annotations": func(v document.JSON) bool {
		return isObject(v) && isAbsentOr(v, "audience", isListOf(isOneOf("user", "assistant"))) &&
			isAbsentOr(v, "priority", func(v document.JSON) bool {
				n, err := strconv.ParseFloat(string(v.Raw()), 64)
				return err == nil && n >= 0 && n <= 1
			}) && isAbsentOr(v, "lastModified", func(v document.JSON) bool {
			_, err := time.Parse(time.RFC3339, v.Text())
			return err == nil
		})
	},
}

// isAnnotations reports whether annotations have the form of tool annotations.
func isAnnotations(v document.JSON) bool {
	return isObject(v) && isAbsentOr(v, "title", isText) &&
		!slices.ContainsFunc([]string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}, func(hint string) bool { return !isAbsentOr(v, hint, isFlag) })
}

// repairOptional drops null members of an optional member, and the member itself if it does not fit.
func (r *repairs) repairOptional(name string, v document.JSON, fits func(document.JSON) bool) json.RawMessage {
	raw := v.Raw()
	if name != "_meta" {
		if replace := r.dropNulls(name, v); len(replace) > 0 {
			raw = rewriteMembers(raw, replace)
		}
	}
	if !fits(readChecked(raw)) {
		r.note("%s does not have the form that MCP gives it", name)
		return nil
	}
	return raw
}

// repairArguments repairs the arguments of a prompt.
func (r *repairs) repairArguments(v document.JSON) json.RawMessage {
	if v.Kind() != document.Array {
		r.refuse("arguments is %s, not a list", v.Kind())
		return v.Raw()
	}
	return v.Edit(func(_ string, argument document.JSON) json.RawMessage {
		switch required := argument.Get("required"); {
		case argument.Kind() == document.Null:
			r.note("an argument is null")
			return nil
		case !isText(argument.Get("name")):
			r.refuse("an argument has no name")
		case required.Kind() != document.Null && !isAbsentOr(argument, "required", isFlag):
			r.refuse("required of the argument %q is %s, not a boolean", shortenText(argument.Get("name").Text(), nil), required.Kind())
		}
		r.requireText("the title of an argument", argument.Get("title"))
		r.requireText("the description of an argument", argument.Get("description"))
		if replace := r.dropNulls("arguments", argument); len(replace) > 0 {
			return rewriteMembers(argument.Raw(), replace)
		}
		return argument.Raw()
	})
}

// repairSchema repairs a schema that must describe an object.
func (r *repairs) repairSchema(path string, v document.JSON) json.RawMessage {
	switch v.Kind() {
	case 0, document.Null, document.True:
		r.note("%s is missing", path)
		return json.RawMessage(`{"type":"object"}`)
	case document.Object:
	default:
		r.refuse("%s is %s, not an object", path, v.Kind())
		return v.Raw()
	}
	replace := r.repairKeywords(path, v)
	switch of := v.Get("type"); {
	case of.Is("object"):
	case of.Kind() == 0, of.Kind() == document.Null, slices.ContainsFunc(listElements(of), func(e document.JSON) bool { return e.Is("object") }):
		r.note(`%s does not have the type "object"`, path)
		replace["type"] = json.RawMessage(`"object"`)
	default:
		r.refuse(`%s has the type %s, not "object"`, path, shortenText(string(of.Raw()), nil))
	}
	if len(replace) == 0 {
		return v.Raw()
	}
	return rewriteMembers(v.Raw(), replace)
}

// repairKeywords returns replacements for top-level keywords, which strict clients check.
func (r *repairs) repairKeywords(path string, v document.JSON) map[string]json.RawMessage {
	replace := r.dropNulls(path, v, "const", "default", "example")
	if !isAbsentOr(v, "$schema", isText) && v.Get("$schema").Kind() != document.Null {
		r.note("%s.$schema is not a string", path)
		replace["$schema"] = nil
	}
	if required := v.Get("required"); required.Kind() != document.Null && !isAbsentOr(v, "required", isListOf(isText)) {
		r.refuse("%s.required is not a list of names", path)
	}
	properties := v.Get("properties")
	if properties.Kind() != 0 && properties.Kind() != document.Null && properties.Kind() != document.Object {
		r.refuse("%s.properties is %s, not an object", path, properties.Kind())
	}
	simple := map[string]json.RawMessage{} // replacements for true, false and null, which some clients do not support
	for name, property := range properties.Members() {
		switch property.Kind() {
		case document.Object:
		case document.True, document.Null:
			simple[name.Text()] = json.RawMessage(`{}`)
		case document.False:
			simple[name.Text()] = json.RawMessage(`{"not":{}}`)
		default:
			r.refuse("%s of %s.properties is %s, not a schema", shortenKey(name.Text()), path, property.Kind())
		}
	}
	if len(simple) > 0 {
		r.note("%s.properties has boolean schemas", path)
		replace["properties"] = rewriteMembers(properties.Raw(), simple)
	}
	return replace
}

// repairOutput repairs an outputSchema. An unusable one is dropped, because a tool does not need it, and a client
// that cannot compile it rejects the whole list.
func (r *repairs) repairOutput(v document.JSON) json.RawMessage {
	own := &repairs{}
	if v.Kind() != document.Object {
		own.refuse("it is %s, not an object", v.Kind())
	}
	raw := v.Raw()
	if replace := own.repairKeywords("outputSchema", v); len(replace) > 0 {
		raw = rewriteMembers(raw, replace)
	}
	if own.refused == nil {
		own.refused = checkCompiles(readChecked(raw))
	}
	if own.refused != nil {
		r.note("outputSchema cannot be used: %v", own.refused)
		return nil
	}
	r.made = append(r.made, own.made...)
	return raw
}

// checkCompiles returns an error for a schema that not every client can compile.
func checkCompiles(v document.JSON) (wrong error) {
	var plain func(v document.JSON) json.RawMessage
	plain = func(v document.JSON) json.RawMessage {
		if v.Kind() != document.Object && v.Kind() != document.Array {
			return v.Raw()
		}
		switch enum := v.Get("enum"); {
		case isFlag(v.Get("nullable")) && v.Get("type").Kind() == 0:
			wrong = errors.New("nullable without a type")
		case enum.Kind() == document.Array && enum.Len() == 0:
			wrong = errors.New("an enum without values")
		}
		return v.Edit(func(name string, value document.JSON) json.RawMessage {
			if name != "pattern" || !isText(value) {
				return plain(value)
			}
			if err := checkPattern(value.Text()); err != nil {
				wrong = err
			}
			return nil
		})
	}
	_, err := schema.Compile(plain(v))
	if wrong == nil {
		wrong = err
	}
	return wrong
}

// nonportablePattern matches constructs that some regular expression engines reject: unnecessary escapes, groups with flags
// or with Python-style names, and anchors that JavaScript lacks.
var nonportablePattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*(?:\\[^dDwWsSbBtnvfrpPcxuk0-9^$\\.*+?()\[\]{}|/-]|\(\?(?:P|[^:=!<])|\[\[:)`)
})

// checkPattern returns an error for a pattern that JavaScript or other engines cannot compile.
func checkPattern(pattern string) error {
	// Go does not support assertions. Removing them does not affect the validity of the rest.
	known := strings.NewReplacer("(?<=", "(?:", "(?<!", "(?:", "(?=", "(?:", "(?!", "(?:").Replace(pattern)
	if _, err := regexp.Compile(known); err != nil || nonportablePattern().MatchString(pattern) {
		return fmt.Errorf("not every client can compile the pattern %s", shortenKey(pattern))
	}
	return nil
}

// replaceSurrogates replaces escapes of unpaired surrogates, which encode no text: the Python SDK rejects messages
// that contain one.
func replaceSurrogates(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(bytes.ToLower(raw), []byte(`\ud`)) {
		return raw
	}
	halfAt := func(i int) (lead, trail bool) {
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return false, false
		}
		n, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		return err == nil && n >= 0xD800 && n < 0xDC00, err == nil && n >= 0xDC00 && n < 0xE000
	}
	var out []byte
	for i := 0; i < len(raw); {
		lead, trail := halfAt(i)
		_, pair := halfAt(i + 6)
		switch n := 1; {
		case lead && pair:
			out, i = append(out, raw[i:i+12]...), i+12
		case lead || trail:
			out, i = append(out, `\ufffd`...), i+6
		default:
			if raw[i] == '\\' && i+1 < len(raw) {
				n = 2
			}
			out, i = append(out, raw[i:i+n]...), i+n
		}
	}
	return out
}
