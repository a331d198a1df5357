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
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

const (
	// maxArgumentsBytes bounds the arguments of one request together.
	maxArgumentsBytes = 256 << 10
	// defaultMaxLength and maxMaxLength are for one value, in bytes. The kernel takes
	// no argument longer than 128 KiB.
	defaultMaxLength = 1 << 10
	maxMaxLength     = 64 << 10
)

var (
	sourceName   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`) })
	argumentName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`) })
)

func isArgumentName(s string) bool { return argumentName().MatchString(s) }

type parameter struct {
	pattern   *regexp.Regexp // nil: any
	maxLength int
	optional  bool
}

// wholePattern compiles a pattern so that it matches a whole value or not at all.
// It is compiled alone first: "a)|(b" is no pattern, and must not become one.
func wholePattern(pattern string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + pattern + `)\z`)
}

// templateValues are what may be put into the source's templates; or what is wrong, in one
// sentence without values.
func (s *source) templateValues(r judge.EvidenceRequest) (values map[string]string, problem string) {
	if len(r.Missing) > 0 {
		return nil, "missing value for " + listNames(r.Missing)
	}
	given, problem := readScalars(r.Arguments)
	if problem != "" {
		return nil, problem
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		p, known := s.parameters[name]
		if !known {
			return nil, "the source takes no argument " + listNames([]string{name})
		}
		if problem := p.check(given[name]); problem != "" {
			return nil, fmt.Sprintf("the argument %q %s", name, problem)
		}
	}
	var absent []string
	for _, name := range slices.Sorted(maps.Keys(s.parameters)) {
		if _, ok := given[name]; !ok && !s.parameters[name].optional {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		return nil, "missing value for " + listNames(absent)
	}
	return given, ""
}

func (p parameter) check(value string) string {
	switch {
	case value == "" && !p.optional:
		return "is empty"
	case len(value) > p.maxLength:
		return fmt.Sprintf("is longer than %d bytes", p.maxLength)
	case !utf8.ValidString(value):
		return "is not valid UTF-8"
	case strings.ContainsFunc(value, unicode.IsControl):
		return "contains a control character"
	case p.pattern != nil && !p.pattern.MatchString(value):
		return "does not match the pattern that the source declares"
	default:
		return ""
	}
}

// readScalars reads a JSON object of strings, numbers and booleans; numbers keep the
// digits they came with.
func readScalars(raw json.RawMessage) (values map[string]string, problem string) {
	const noObject = "the arguments must be a JSON object of strings, numbers and booleans"
	if len(raw) == 0 {
		return nil, ""
	}
	object, err := document.ReadJSON(raw, document.Limits{Bytes: maxArgumentsBytes, Depth: 1})
	if err != nil || object.Kind() != document.Object {
		return nil, noObject
	}
	values = map[string]string{}
	for name, v := range object.Members() {
		switch v.Kind() {
		case document.String:
			values[name.Text()] = v.Text()
		case document.Number, document.True, document.False:
			values[name.Text()] = string(v.Raw())
		default:
			return nil, noObject
		}
	}
	return values, ""
}

// listNames quotes names for a sentence, a few and none of them whole when long.
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
