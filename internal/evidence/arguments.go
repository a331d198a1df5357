package evidence

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

const (
	// maxArgumentsBytes limits the arguments of one request together.
	maxArgumentsBytes = 256 << 10
	// defaultMaxLength and maxMaxLength limit one value, in bytes. The kernel accepts no command argument longer than
	// 128 KiB.
	defaultMaxLength = 1 << 10
	maxMaxLength     = 64 << 10
)

var (
	sourceName   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`) })
	argumentName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`) })
)

func isArgumentName(s string) bool { return argumentName().MatchString(s) }

type parameter struct {
	pattern   *regexp.Regexp // nil: any value
	maxLength int
	optional  bool
}

// wholePattern compiles a pattern so that it matches only whole values. It compiles the pattern alone first, because
// "a)|(b" is invalid and must not become valid inside the group.
func wholePattern(pattern string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + pattern + `)\z`)
}

// readArguments returns a request's arguments as an object, or the problem with them in one sentence without values.
func (s *source) readArguments(r judge.EvidenceRequest) (given document.JSON, problem string) {
	if len(r.Missing) > 0 {
		return given, "missing value for " + listNames(r.Missing)
	}
	raw := r.Arguments
	if len(raw) == 0 {
		raw = json.RawMessage(`{}`)
	}
	given, err := document.ReadJSON(raw, document.Limits{Bytes: maxArgumentsBytes, Depth: maxResultDepth})
	if err != nil || given.Kind() != document.Object {
		return given, "the arguments must be a JSON object"
	}
	for name, value := range given.Sorted() {
		p, known := s.parameters[name]
		if !known {
			return given, "the source takes no argument " + listNames([]string{name})
		}
		if problem := p.check(value); problem != "" {
			return given, fmt.Sprintf("the argument %q %s", name, problem)
		}
	}
	var absent []string
	for _, name := range slices.Sorted(maps.Keys(s.parameters)) {
		if given.Get(name).Kind() == 0 && !s.parameters[name].optional {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		return given, "missing value for " + listNames(absent)
	}
	return given, ""
}

func (p parameter) check(value document.JSON) string {
	text, isScalar := scalarText(value)
	switch {
	case text == "" && !p.optional:
		return "is empty"
	case len(text) > p.maxLength:
		return fmt.Sprintf("is longer than %d bytes", p.maxLength)
	case p.pattern == nil:
		return ""
	case !isScalar:
		return "has a pattern, so it must be a string, a number or a boolean"
	case !p.pattern.MatchString(text):
		return "does not match the pattern that the source declares"
	default:
		return ""
	}
}

// scalarText returns a string, number or boolean as text for a template. Numbers keep their original digits. For
// other values it returns their JSON, and ok is false.
func scalarText(v document.JSON) (text string, ok bool) {
	switch v.Kind() {
	case document.String:
		return v.Text(), true
	case document.Number, document.True, document.False:
		return string(v.Raw()), true
	default:
		return string(v.Raw()), false
	}
}

// templateValues returns the arguments as texts for templates. problem describes an argument that cannot be one, or is
// "".
func templateValues(given document.JSON) (values map[string]string, problem string) {
	values = map[string]string{}
	for name, value := range given.Sorted() {
		text, ok := scalarText(value)
		if !ok {
			return nil, fmt.Sprintf("the argument %q is not a string, a number or a boolean", name)
		}
		if strings.ContainsFunc(text, unicode.IsControl) {
			return nil, fmt.Sprintf("the argument %q contains a control character", name)
		}
		values[name] = text
	}
	return values, ""
}

// listNames quotes names for a sentence. It limits their number and cuts long ones.
func listNames(names []string) string {
	const most, longest = 8, 64
	quoted := make([]string, 0, most+1)
	for i, n := range names {
		if i == most {
			quoted = append(quoted, "others")
			break
		}
		if len(n) > longest {
			n = strings.ToValidUTF8(n[:longest], "") + "…"
		}
		quoted = append(quoted, fmt.Sprintf("%q", n))
	}
	return strings.Join(quoted, ", ")
}
