package validators

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// CodeRequiredField is the code of a Finding for a field that is absent or null.
const CodeRequiredField = "required_field"

// field is one required field: where to look for it.
type field struct {
	name string   // as written
	path []string // segments, unescaped
	// whole is the name as one top-level key, tried first: a key that holds dots
	// wins over the path that they would spell.
	whole bool
}

func parseField(name string) (field, error) {
	switch {
	case name == "":
		return field{}, fmt.Errorf("a required field has an empty name")
	case name[0] == '/':
		segments := strings.Split(name[1:], "/")
		for i, s := range segments {
			for j := 0; j < len(s); j++ {
				if s[j] == '~' && (j+1 == len(s) || (s[j+1] != '0' && s[j+1] != '1')) {
					return field{}, fmt.Errorf("%q is not a JSON pointer: ~ stands only in ~0 and ~1", name)
				}
			}
			segments[i] = unescapePointer.Replace(s)
		}
		return field{name: name, path: segments}, nil
	default:
		return field{name: name, path: strings.Split(name, "."), whole: strings.Contains(name, ".")}, nil
	}
}

var (
	unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
	escapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
)

func pointer(segments []string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(escapePointer.Replace(s))
	}
	return b.String()
}

// check returns the finding for a field that top does not have, nil when it does.
func (f field) check(top map[string]json.RawMessage) *Finding {
	if f.whole {
		if v, ok := top[f.name]; ok {
			return f.judge(v, true)
		}
	}
	v, ok := top[f.path[0]]
	for _, segment := range f.path[1:] {
		if !ok {
			break
		}
		v, ok = member(v, segment)
	}
	return f.judge(v, ok)
}

func (f field) judge(v json.RawMessage, found bool) *Finding {
	if found && string(v) != "null" {
		return nil
	}
	out := &Finding{Code: CodeRequiredField, Path: pointer(f.path), Message: fmt.Sprintf("%q is required", f.name), Hint: fmt.Sprintf("Send %q with a value.", f.name)}
	if f.whole && found {
		out.Path = pointer([]string{f.name})
	}
	if found {
		out.Message += " and is null"
	}
	return out
}

// member is one step into an object or, with a decimal index, into an array.
func member(doc json.RawMessage, segment string) (json.RawMessage, bool) {
	if len(doc) == 0 {
		return nil, false
	}
	switch doc[0] {
	case '{':
		var m map[string]json.RawMessage
		if json.Unmarshal(doc, &m) != nil {
			return nil, false
		}
		v, ok := m[segment]
		return v, ok
	case '[':
		i, err := strconv.Atoi(segment)
		if err != nil || i < 0 || (len(segment) > 1 && segment[0] == '0') {
			return nil, false
		}
		var a []json.RawMessage
		if json.Unmarshal(doc, &a) != nil || i >= len(a) {
			return nil, false
		}
		return a[i], true
	}
	return nil, false
}
