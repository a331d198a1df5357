package schema

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/gavel-mcp/gavel/validators/document"
)

const (
	// maxNames limits how many names or values of the schema a message lists.
	maxNames = 12
	// maxKey limits a key or path in a message, in bytes.
	maxKey = 120
)

// describeLeaf emits a violation for one failed keyword. Some keywords give one violation for each name.
func (r report) describeLeaf(e *jsonschema.ValidationError, emit func(Violation)) {
	s, keyword := r.index.find(e.AbsoluteKeywordLocation)
	if s == nil {
		emit(r.newViolation(e, keyword, r.nameSubject(e)+" does not satisfy "+quoteName(keyword)))
		return
	}
	value := r.findValue(e)
	switch keyword {
	case "required":
		for _, name := range s.Required {
			if value.Get(name).Kind() == 0 {
				v := r.newViolation(e, keyword, "")
				v.Path += "/" + escapeToken(name)
				v.Message = namePath(v.Path) + " is required"
				emit(v)
			}
		}
	case "additionalProperties":
		for _, name := range sortedNames(value) {
			if !hasProperty(s, name) {
				v := r.newViolation(e, keyword, "")
				v.Path += "/" + escapeToken(name)
				v.Message, v.Hint = namePath(v.Path)+" is not allowed", suggestRemoval(v.Path, s)
				emit(v)
			}
		}
	case "dependentRequired", "dependencies":
		r.describeDependent(e, s, keyword, emit)
	default:
		v := r.newViolation(e, keyword, r.nameSubject(e)+" "+describeDemand(s, keyword, value, e.Message))
		v.Hint = suggestFix(s, keyword, value, r.nameSubject(e))
		emit(v)
	}
}

// findValue returns the value that failed: a value of the document, or a property name under propertyNames.
func (r report) findValue(e *jsonschema.ValidationError) document.JSON {
	path := decodeLocation(e.InstanceLocation)
	if !isInPropertyNames(e.KeywordLocation) {
		return r.findPath(path)
	}
	_, last, _ := cutLast(path)
	name, err := document.Marshal(unescapeToken(last))
	if err != nil {
		return document.JSON{}
	}
	return document.ReadTrusted(name)
}

// findPath returns the value at a JSON pointer, absent if there is none.
func (r report) findPath(path string) document.JSON {
	v := r.doc
	if path != "" {
		for token := range strings.SplitSeq(path[1:], "/") {
			v = v.At(unescapeToken(token))
		}
	}
	return v
}

func sortedNames(object document.JSON) []string {
	var out []string
	for name := range object.Members() {
		out = append(out, name.Text())
	}
	slices.Sort(out)
	return out
}

// describeDependent emits a violation for a key that is required because another is present. The keyword
// location ends with the other key and an index.
func (r report) describeDependent(e *jsonschema.ValidationError, s *jsonschema.Schema, keyword string, emit func(Violation)) {
	rest, index, _ := cutLast(decodeLocation(e.KeywordLocation))
	_, cause, _ := cutLast(rest)
	cause = unescapeToken(cause)
	names := s.DependentRequired[cause]
	if list, ok := s.Dependencies[cause].([]string); ok {
		names = list
	}
	v := r.newViolation(e, keyword, "")
	if i, err := strconv.Atoi(index); err == nil && i < len(names) {
		v.Path += "/" + escapeToken(names[i])
	}
	v.Message = fmt.Sprintf("%s is required when %s is present", namePath(v.Path), quoteName(cause))
	emit(v)
}

// describeDemand states what a keyword requires, and what was found if that does not reveal the value. From
// text, the library's message, it takes only counts and indices.
func describeDemand(s *jsonschema.Schema, keyword string, value document.JSON, text string) string {
	switch keyword {
	case "":
		return "is not allowed"
	case "type":
		return fmt.Sprintf("must be %s, is %s", strings.Join(s.Types, " or "), typeOf(value))
	case "const":
		return "must be " + formatLiteral(s.Constant[0])
	case "enum":
		return "must be " + formatOneOf(s.Enum)
	case "format":
		return "must be a valid " + clipText(s.Format, maxKey)
	case "pattern":
		return "must match the pattern " + clipText(s.Pattern.String(), maxText)
	case "minLength":
		return describeAmount("at least", s.MinLength, "character", countElements(value))
	case "maxLength":
		return describeAmount("at most", s.MaxLength, "character", countElements(value))
	case "minItems":
		return describeAmount("at least", s.MinItems, "item", countElements(value))
	case "maxItems":
		return describeAmount("at most", s.MaxItems, "item", countElements(value))
	case "additionalItems":
		items, _ := s.Items.([]*jsonschema.Schema)
		return describeAmount("at most", len(items), "item", countElements(value))
	case "minProperties":
		return describeAmount("at least", s.MinProperties, "key", countElements(value))
	case "maxProperties":
		return describeAmount("at most", s.MaxProperties, "key", countElements(value))
	case "minimum":
		return "must be at least " + formatNumber(s.Minimum)
	case "exclusiveMinimum":
		return "must be more than " + formatNumber(s.ExclusiveMinimum)
	case "maximum":
		return "must be at most " + formatNumber(s.Maximum)
	case "exclusiveMaximum":
		return "must be less than " + formatNumber(s.ExclusiveMaximum)
	case "multipleOf":
		return "must be a multiple of " + formatNumber(s.MultipleOf)
	case "uniqueItems":
		return "must not contain the same item twice" + describeEqualItems(text)
	case "minContains":
		return fmt.Sprintf("must have at least %s matching the schema under \"contains\"%s", formatCount(s.MinContains, "item"), describeActualCount(text))
	case "maxContains":
		return fmt.Sprintf("must have at most %s matching the schema under \"contains\"%s", formatCount(s.MaxContains, "item"), describeActualCount(text))
	case "not":
		return `must not match the schema under "not"`
	case "contentEncoding":
		return "must be encoded as " + clipText(s.ContentEncoding, maxKey)
	case "contentMediaType":
		return "must contain " + clipText(s.ContentMediaType, maxKey)
	}
	return "does not satisfy " + quoteName(clipText(keyword, maxKey))
}

// suggestFix returns how to fix what the message leaves open, or "". It names its subject, because callers
// list hints on their own.
func suggestFix(s *jsonschema.Schema, keyword string, value document.JSON, subject string) string {
	switch keyword {
	case "type":
		return suggestTypeFix(s.Types, value, subject)
	case "format":
		if example := formatExamples[s.Format]; example != "" {
			return fmt.Sprintf("Write %s like %s.", subject, example)
		}
	}
	return ""
}

// suggestTypeFix returns the fix for a value that only has the wrong JSON type.
func suggestTypeFix(types []string, value document.JSON, subject string) string {
	wants := func(any ...string) bool {
		return slices.ContainsFunc(any, func(t string) bool { return slices.Contains(types, t) })
	}
	switch value.Kind() {
	case document.String:
		switch {
		case wants("integer", "number", "boolean"):
			return "Write " + subject + " without quotes."
		case wants("object", "array") && strings.ContainsAny(value.Text(), "[{"):
			return "Send " + subject + " as JSON, not as a string of JSON."
		}
	case document.Number:
		switch {
		case wants("integer"):
			return "Write " + subject + " as a whole number."
		case wants("string"):
			return "Write " + subject + " in quotes."
		}
	case document.Null:
		return "Leave " + subject + " out if it has no value."
	}
	if wants("array") && isScalar(value) {
		return "Put " + subject + " in a list, even if it is a single item."
	}
	return ""
}

var formatExamples = map[string]string{
	"date-time": "2026-01-31T12:30:00Z", "date": "2026-01-31", "time": "12:30:00Z", "duration": "P1DT2H", "email": "name@example.com",
	"uuid": "123e4567-e89b-12d3-a456-426614174000", "uri": "https://example.com/path", "ipv4": "192.0.2.1", "ipv6": "2001:db8::1",
	"hostname": "host.example.com", "json-pointer": "/key/0",
}

// hasProperty reports whether a schema allows a property by name or pattern.
func hasProperty(s *jsonschema.Schema, name string) bool {
	if _, ok := s.Properties[name]; ok {
		return true
	}
	for pattern := range s.PatternProperties {
		if pattern.MatchString(name) {
			return true
		}
	}
	return false
}

// suggestRemoval returns the hint for a key that is not allowed.
func suggestRemoval(path string, s *jsonschema.Schema) string {
	names := sortedKeys(s.Properties)
	if len(names) == 0 {
		return "Remove " + namePath(path) + "."
	}
	more := ""
	if len(names) > maxNames {
		more = fmt.Sprintf(" or %d more", len(names)-maxNames)
		names = names[:maxNames]
	}
	for i, n := range names {
		names[i] = clipText(n, maxKey)
	}
	return fmt.Sprintf("Remove %s; allowed are %s%s.", namePath(path), strings.Join(names, ", "), more)
}

func formatOneOf(values []any) string {
	if len(values) == 1 {
		return formatLiteral(values[0])
	}
	shown := make([]string, 0, min(len(values), maxNames))
	for _, v := range values[:min(len(values), maxNames)] {
		shown = append(shown, formatLiteral(v))
	}
	out := "one of " + strings.Join(shown, ", ")
	if n := len(values) - maxNames; n > 0 {
		out += fmt.Sprintf(" and %d more", n)
	}
	return out
}

// formatLiteral writes a value of the schema as JSON.
func formatLiteral(v any) string {
	text, err := document.Marshal(v)
	if err != nil {
		return "a value of the schema"
	}
	return clipText(string(text), maxText)
}

// formatNumber writes a bound in plain form: 3, 0.1, 9007199254740992.
func formatNumber(r *big.Rat) string {
	if r.IsInt() && len(r.Num().String()) <= 21 {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func describeAmount(bound string, n int, unit string, has int) string {
	return fmt.Sprintf("must have %s %s, has %d", bound, formatCount(n, unit), has)
}

func formatCount(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

// countElements counts characters, items or keys.
func countElements(v document.JSON) int {
	if v.Kind() == document.String {
		return utf8.RuneCount(v.Bytes())
	}
	return v.Len()
}

// describeEqualItems and describeActualCount extract only counts and indices from the library's message, so
// they reveal no value of the document.
func describeEqualItems(text string) string {
	var i, j int
	if n, _ := fmt.Sscanf(text, "items at index %d and %d are equal", &i, &j); n != 2 {
		return ""
	}
	return fmt.Sprintf("; items %d and %d are equal", i, j)
}

func describeActualCount(text string) string {
	_, after, _ := strings.Cut(text, "but got ")
	n, err := strconv.Atoi(after)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(", has %d", n)
}

// typeOf returns the JSON type of a value.
func typeOf(v document.JSON) string {
	switch v.Kind() {
	case document.Null:
		return "null"
	case document.True, document.False:
		return "boolean"
	case document.String:
		return "string"
	case document.Array:
		return "array"
	case document.Object:
		return "object"
	case document.Number:
		return "number"
	}
	return "missing"
}

func isScalar(v document.JSON) bool {
	switch v.Kind() {
	case document.Array, document.Object, 0:
		return false
	}
	return true
}

func addArticle(noun string) string {
	if strings.IndexByte("aeio", noun[0]) >= 0 {
		return "an " + noun
	}
	return "a " + noun
}

// quoteName quotes a name so that its content cannot be mistaken for text of the message.
func quoteName(name string) string { return strconv.Quote(clipText(name, maxKey)) }
