package workflow

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// checkFieldReads looks for data.x in scripts where no required field and no
// schema promises x. It reads the source as text: it knows the usual ways to handle
// an absent field, and reports nothing where it sees one.
func checkFieldReads(s *linter) {
	s.visitTransitions(func(from *State, t *Transition) {
		promised := listPromisedFields(t.RequiredFields, t.Schema)
		check := func(path, source string) {
			for _, name := range s.findUnguardedReads(source) {
				if !slices.Contains(promised, name) {
					s.addIssue(path, "the script reads data.%s, which nothing requires: without it the script sees undefined; add it to requiredFields or write data.%s?.", name, name)
				}
			}
		}
		at := transitionPath(from.Name, t.Action)
		check(at+"/validator", t.Validator)
		for _, key := range [...]string{t.Action, from.Name + "." + t.Action} {
			check(joinPointer("/transitionValidators", key), s.TransitionValidators[key])
		}
		for i, r := range t.Routes {
			check(s.routePath(from, t, i, "condition"), r.Condition)
		}
	})
}

// findUnguardedReads caches: one keyed validator can apply to thousands of transitions.
func (s *linter) findUnguardedReads(source string) []string {
	names, ok := s.reads[source]
	if !ok {
		names = listUnguardedReads(source)
		s.reads[source] = names
	}
	return names
}

// listPromisedFields are the top-level keys that an object has once these checks have passed.
func listPromisedFields(required []string, text json.RawMessage) []string {
	var out []string
	for _, name := range required {
		out = append(out, firstField(name))
	}
	var schema struct {
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(text, &schema) == nil {
		out = append(out, schema.Required...)
	}
	return out
}

// readPattern finds data.name with what follows it, and what may stand before it.
var readPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:\btypeof\s+|!\s*|\.\s*)?\bdata\s*\.\s*([A-Za-z_$][\w$]*)\s*(\?\.|\?\?|&&|\|\||[!=]==?)?`)
})

// maxReads is how many fields of one script are looked at.
const maxReads = 64

func listUnguardedReads(source string) []string {
	if !strings.Contains(source, "data") {
		return nil
	}
	code := blankText(source)
	handled := map[string]bool{}
	var names []string
	for _, m := range readPattern().FindAllStringSubmatchIndex(code, -1) {
		if len(handled)+len(names) >= maxReads {
			break
		}
		name := code[m[2]:m[3]]
		before := code[m[0] : strings.Index(code[m[0]:], "data")+m[0]]
		switch {
		case strings.HasPrefix(before, "."):
			// context.data.x, not the argument
		case before != "", m[4] >= 0, isTested(source, name):
			handled[name] = true
		case !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(n string) bool { return handled[n] })
}

// isTested recognises 'name' in data, and conversions that accept a missing value.
func isTested(source, name string) bool {
	for _, call := range [...]string{"Boolean", "Array.isArray", "Number.isFinite", "Number.isInteger", "String"} {
		if strings.Contains(source, call+"(data."+name+")") {
			return true
		}
	}
	for _, quote := range [...]string{"'", `"`} {
		if strings.Contains(source, quote+name+quote+" in data") {
			return true
		}
	}
	return false
}

// blankText blanks string literals and comments, so that they are not read as code. Regular expression literals are left as they are. The code in a
// template's ${} goes too.
func blankText(source string) string {
	out := []byte(source)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			out[i] = ' '
		}
	}
	for i := 0; i < len(out); i++ {
		switch c := source[i]; {
		case c == '"' || c == '\'' || c == '`':
			end := findClosingQuote(source, i)
			blank(i+1, end)
			i = end
		case strings.HasPrefix(source[i:], "//"):
			end := i + strings.IndexByte(source[i:]+"\n", '\n')
			blank(i, end)
			i = end
		case strings.HasPrefix(source[i:], "/*"):
			end := len(source)
			if n := strings.Index(source[i+2:], "*/"); n >= 0 {
				end = i + 2 + n + 2
			}
			blank(i, end)
			i = end - 1
		}
	}
	return string(out)
}

func findClosingQuote(source string, start int) int {
	for i := start + 1; i < len(source); i++ {
		switch source[i] {
		case '\\':
			i++
		case source[start]:
			return i
		}
	}
	return len(source)
}
