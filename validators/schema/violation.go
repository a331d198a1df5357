package schema

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// MaxViolations bounds what one validation reports; a last entry says how many
// more there are.
const MaxViolations = 20

// Violation is one way in which a document breaks a schema.
type Violation struct {
	// Path is a JSON pointer into the document, "" for the whole.
	Path string `json:"path"`
	// Keyword is the schema keyword that failed, such as "minLength".
	Keyword string `json:"keyword"`
	// SchemaPath is the keyword's place in the schema.
	SchemaPath string `json:"schemaPath"`
	// Message is one sentence without a value of the document.
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// violations flattens the library's tree to its leaves: what can be acted on.
func violations(ve *jsonschema.ValidationError) []Violation {
	var out []Violation
	more := 0
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if v, ok := leaf(e); ok {
			if len(out) < MaxViolations {
				out = append(out, v)
			} else {
				more++
			}
			return
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	walk(ve)
	if more > 0 {
		out = append(out, Violation{Message: fmt.Sprintf("and %d more violations", more)})
	}
	return out
}

// leaf reports whether e is to be told as it is: it has no causes, or it is an
// alternative (anyOf, oneOf) whose branches would only confuse.
func leaf(e *jsonschema.ValidationError) (Violation, bool) {
	keyword := keywordOf(e.KeywordLocation)
	v := Violation{Path: e.InstanceLocation, Keyword: keyword, SchemaPath: e.KeywordLocation}
	switch keyword {
	case "anyOf", "oneOf":
		v.Message = sentence(v.Path, alternatives(keyword, e))
		return v, true
	}
	if len(e.Causes) > 0 {
		return Violation{}, false
	}
	v.Message = sentence(v.Path, describe(keyword, e.Message))
	return v, true
}

func alternatives(keyword string, e *jsonschema.ValidationError) string {
	if len(e.Causes) == 0 {
		return "must match exactly one of the alternatives, matches more"
	}
	seen := map[string]bool{}
	var ways []string
	for _, c := range e.Causes {
		for len(c.Causes) > 0 {
			c = c.Causes[0]
		}
		text := describe(keywordOf(c.KeywordLocation), c.Message)
		if c.InstanceLocation != e.InstanceLocation {
			text = strings.TrimPrefix(c.InstanceLocation, e.InstanceLocation) + " " + text
		}
		if !seen[text] && len(ways) < 4 {
			seen[text] = true
			ways = append(ways, text)
		}
	}
	which := "at least one"
	if keyword == "oneOf" {
		which = "exactly one"
	}
	return fmt.Sprintf("must match %s of the alternatives: %s", which, strings.Join(ways, "; or "))
}

var (
	found    = regexp.MustCompile(` but found .*$`)
	expected = regexp.MustCompile(`^expected (.*), but got (.*)$`)
	lengths  = regexp.MustCompile(`^length must be (>=|<=) (\d+), but got (\d+)$`)
	numbers  = regexp.MustCompile(`^(minimum|maximum) (\d+) (items|properties) (?:required|allowed), but found (\d+) (?:items|properties)$`)
	exponent = regexp.MustCompile(`[0-9.]+e\+[0-9]+`)
	missing  = regexp.MustCompile(`^missing properties: (.*)$`)
	extra    = regexp.MustCompile(`^additionalProperties (.*) not allowed$`)
	notValid = regexp.MustCompile(`^(?s).* is not valid '([^']*)'$`)
	multiple = regexp.MustCompile(`^(?s).* not multipleOf (.*)$`)
)

// describe rewrites the library's message as what must be, without the value.
func describe(keyword, message string) string {
	switch keyword {
	case "type":
		return expected.ReplaceAllString(message, "must be $1, is $2")
	case "required", "dependentRequired":
		return missing.ReplaceAllString(message, "must have $1")
	case "additionalProperties", "unevaluatedProperties":
		return extra.ReplaceAllString(message, "must not have $1")
	case "minLength", "maxLength":
		m := lengths.FindStringSubmatch(message)
		if m == nil {
			return message
		}
		return fmt.Sprintf("must have %s %s characters, has %s", bound(m[1]), m[2], m[3])
	case "minItems", "maxItems", "minProperties", "maxProperties":
		m := numbers.FindStringSubmatch(message)
		if m == nil {
			return message
		}
		return fmt.Sprintf("must have %s %s %s, has %s", bound(m[1]), m[2], m[3], m[4])
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		return exponent.ReplaceAllStringFunc(found.ReplaceAllString(message, ""), plain)
	case "multipleOf":
		return multiple.ReplaceAllString(message, "must be a multiple of $1")
	case "format":
		return notValid.ReplaceAllString(message, "must be a valid $1")
	case "pattern":
		return strings.Replace(message, "does not match pattern", "must match the pattern", 1)
	case "const":
		return strings.Replace(message, "value must be", "must be", 1)
	case "enum":
		return strings.Replace(message, "value must be one of", "must be one of", 1)
	case "not":
		return "must not match the schema under \"not\""
	}
	return message
}

// plain writes a bound as the definition's author did: without an exponent.
func plain(number string) string {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return number
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

func bound(word string) string {
	if word == ">=" || word == "minimum" {
		return "at least"
	}
	return "at most"
}

func sentence(path, what string) string {
	if path == "" {
		return "the document " + what
	}
	return fmt.Sprintf("%q %s", path, what)
}

// keywordOf is the last segment of a keyword location that is not an index or a
// name under a keyword.
func keywordOf(location string) string {
	segments := strings.Split(location, "/")
	for i := len(segments) - 1; i >= 0; i-- {
		switch s := segments[i]; s {
		case "dependentRequired", "dependencies":
			return s
		default:
			if i == len(segments)-1 && s != "" && (s[0] < '0' || s[0] > '9') {
				return s
			}
		}
	}
	return ""
}
