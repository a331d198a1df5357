package eval

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// caseKeys are the keys of every object of a case that this package reads, by path; what
// stands under a path that is not here is the user's own.
var caseKeys = map[string][]string{
	"":          {"id", "group", "tags", "workflow", "state", "action", "context", "data", "evidence", "history", "principal", "role", "expect", "label", "weight", "risk", "split", "notes"},
	"expect":    {"outcome", "criteria", "violations_any"},
	"label":     {"source", "by", "n_raters", "agreement"},
	"history[]": {"action", "state", "by"},
}

// maxNesting of a case's values.
const maxNesting = 100

// checkKeys returns the rule that a line breaks, "" when it breaks none: encoding/json
// takes keys in any case and the last of two.
func checkKeys(text []byte) (rule, says string) {
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return RuleSyntax, "the file begins with a byte order mark; save it as UTF-8 without one"
	}
	if kindOf(text) != '{' {
		return RuleSyntax, "the line is no JSON object; a case is one object on one line"
	}
	v, err := document.ReadJSON(text, document.Limits{Bytes: len(text), Depth: maxNesting, Lax: true})
	if err != nil {
		return RuleSyntax, fmt.Sprintf("this is not JSON: %v; every case stands on a line of its own", err)
	}
	return checkNames(v, "")
}

func checkNames(v document.JSON, path string) (rule, says string) {
	if twice := v.Duplicate(); twice.Kind() != 0 {
		return RuleDuplicateKey, fmt.Sprintf("%s stands here twice; keep one", clipQuote(memberPath(path, twice)))
	}
	known, ours := caseKeys[path]
	for name, value := range v.Members() {
		at := memberPath(path, name)
		if ours && !slices.Contains(known, name.Text()) {
			return RuleUnknownKey, fmt.Sprintf("unknown key %q; %s", clipQuote(at), suggestWord(name.Text(), known))
		}
		if rule, says = checkNames(value, at); rule != "" {
			return rule, says
		}
	}
	for _, item := range v.Elements() {
		if rule, says = checkNames(item, path+"[]"); rule != "" {
			return rule, says
		}
	}
	return "", ""
}

func memberPath(path string, name document.JSON) string {
	return strings.TrimPrefix(path+"."+name.Text(), ".")
}

// suggestWord ends a message about a word that is not known.
func suggestWord(word string, known []string) string {
	if best := document.Suggest(word, known); best != "" {
		return fmt.Sprintf("did you mean %q?", clipQuote(best))
	}
	var names []string
	for _, k := range known[:min(len(known), 30)] {
		names = append(names, clipQuote(k))
	}
	if len(names) == 0 {
		return "there are none"
	}
	return "known are " + strings.Join(names, ", ")
}
