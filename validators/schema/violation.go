package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/gavel-mcp/gavel/validators/document"
)

// MaxViolations limits the violations that one validation reports. An additional last entry without a keyword
// counts the rest.
const MaxViolations = 20

// Violation is one way in which a document violates a schema.
type Violation struct {
	// Path is a JSON pointer into the document; "" is the whole document. For a missing or forbidden key,
	// it points to that key.
	Path string `json:"path"`
	// Keyword is the schema keyword that failed, such as "minLength".
	Keyword string `json:"keyword"`
	// SchemaPath is the path through the schema to the keyword: a JSON pointer that passes through references
	// ("/properties/a/$ref/minLength").
	SchemaPath string `json:"schemaPath"`
	// Message is one sentence without a value of the document.
	Message string `json:"message"`
	// Hint states the fix, or is "" if the message already does.
	Hint string `json:"hint,omitempty"`
}

// report converts the library's tree of errors into violations.
type report struct {
	index index
	doc   document.JSON
}

// maxCollected limits the violations that are collected before they are sorted and truncated.
const maxCollected = 1000

func (r report) listViolations(ve *jsonschema.ValidationError) []Violation {
	var out []Violation
	dropped := 0
	r.collect(ve, func(v Violation) {
		if len(out) < maxCollected {
			out = append(out, v)
		} else {
			dropped++
		}
	})
	if len(out) == 0 { // the library's location is wrong: it omits empty names
		out = []Violation{r.newViolation(ve, "", "the document does not match its schema")}
	}
	// The library visits the members of objects in random order, and can reach the same location by several
	// paths.
	slices.SortFunc(out, func(a, b Violation) int {
		return cmp.Or(comparePaths(a.Path, b.Path), cmp.Compare(a.SchemaPath, b.SchemaPath), cmp.Compare(a.Message, b.Message))
	})
	out = slices.CompactFunc(out, func(a, b Violation) bool { return a.Path == b.Path && a.Message == b.Message })
	if more := len(out) + dropped - MaxViolations; more > 0 {
		out = append(out[:MaxViolations], Violation{Message: fmt.Sprintf("and %d more violations", more)})
	}
	return out
}

// comparePaths orders pointers by segments, and array indices by number.
func comparePaths(a, b string) int {
	for a != "" && b != "" {
		x, y := firstSegment(a), firstSegment(b)
		if x != y {
			if isIndex(x) && isIndex(y) && len(x) != len(y) {
				return cmp.Compare(len(x), len(y))
			}
			return cmp.Compare(x, y)
		}
		a, b = a[len(x):], b[len(y):]
	}
	return cmp.Compare(len(a), len(b))
}

// firstSegment returns the first segment of a pointer with its slash.
func firstSegment(path string) string {
	if i := strings.IndexByte(path[1:], '/'); i >= 0 {
		return path[:i+1]
	}
	return path
}

func isIndex(segment string) bool { return strings.Trim(segment[1:], "0123456789") == "" }

// collect emits the errors that a caller can act on.
func (r report) collect(e *jsonschema.ValidationError, emit func(Violation)) {
	switch keyword := r.findKeyword(e); keyword {
	case "anyOf", "oneOf":
		if best := r.findIntended(e); best != nil {
			r.collect(best, emit)
			return
		}
		emit(r.newViolation(e, keyword, r.nameSubject(e)+" "+r.describeAlternatives(e, keyword)))
		return
	case "minContains":
		// The causes only explain why each item did not count.
	default:
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				r.collect(cause, emit)
			}
			return
		}
	}
	r.describeLeaf(e, emit)
}

func (r report) findKeyword(e *jsonschema.ValidationError) string {
	if e.Message == "" {
		return "" // a group of errors; its location may end with a property called anyOf
	}
	_, keyword := r.index.find(e.AbsoluteKeywordLocation)
	return keyword
}

func (r report) newViolation(e *jsonschema.ValidationError, keyword, message string) Violation {
	return Violation{
		Path: decodeLocation(e.InstanceLocation), Keyword: keyword,
		SchemaPath: decodeLocation(e.KeywordLocation), Message: message,
	}
}

// findIntended returns the alternative that the document was probably written for: the only one whose type and
// constants match. It returns nil if there is none or more than one.
func (r report) findIntended(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	var best *jsonschema.ValidationError
	for _, branch := range e.Causes {
		if r.failsByType(branch, e.InstanceLocation) {
			continue
		}
		if best != nil {
			return nil
		}
		best = branch
	}
	return best
}

// failsByType reports whether a branch fails at something that distinguishes alternatives: the type of the
// value, or a constant directly within it.
func (r report) failsByType(branch *jsonschema.ValidationError, location string) bool {
	if len(branch.Causes) > 0 {
		return slices.ContainsFunc(branch.Causes, func(c *jsonschema.ValidationError) bool { return r.failsByType(c, location) })
	}
	switch r.findKeyword(branch) {
	case "type":
		return branch.InstanceLocation == location
	case "const", "enum":
		before, _, _ := cutLast(branch.InstanceLocation)
		return before == location || branch.InstanceLocation == location && !isScalar(r.findPath(decodeLocation(location)))
	case "":
		return branch.InstanceLocation == location
	}
	return false
}

// maxAlternatives limits how many alternatives a message lists.
const maxAlternatives = 4

// describeAlternatives lists the alternatives for a value that matches none of them, or more than one of a
// oneOf.
func (r report) describeAlternatives(e *jsonschema.ValidationError, keyword string) string {
	which := "at least one"
	if keyword == "oneOf" {
		which = "exactly one"
	}
	if len(e.Causes) == 0 {
		return "must match exactly one of the alternatives, matches more"
	}
	var ways []string
	for _, branch := range e.Causes {
		var first *Violation
		r.collect(branch, func(v Violation) {
			if first == nil || comparePaths(v.Path, first.Path) < 0 || v.Path == first.Path && v.Message < first.Message {
				first = &v
			}
		})
		if first == nil {
			continue
		}
		way := strings.TrimPrefix(first.Message, r.nameSubject(e)+" ")
		if len(ways) < maxAlternatives && !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	return fmt.Sprintf("must match %s of the alternatives: %s", which, strings.Join(ways, "; or "))
}

func (r report) nameSubject(e *jsonschema.ValidationError) string {
	path := decodeLocation(e.InstanceLocation)
	if isInPropertyNames(e.KeywordLocation) {
		_, last, _ := cutLast(path)
		return "the property name " + quoteName(unescapeToken(last))
	}
	return namePath(path)
}

func namePath(path string) string {
	if path == "" {
		return "the document"
	}
	return quoteName(path)
}

// isInPropertyNames reports whether a keyword location is within propertyNames. There, the checked value is
// the name itself.
func isInPropertyNames(location string) bool {
	skip := false // the segment is a name or an index, not a keyword
	for s := range strings.SplitSeq(strings.TrimPrefix(location, "/"), "/") {
		if skip {
			skip = false
			continue
		}
		switch s {
		case "propertyNames":
			return true
		case "properties", "patternProperties", "dependentSchemas", "dependencies", "allOf", "anyOf", "oneOf", "prefixItems":
			skip = true
		}
	}
	return false
}
