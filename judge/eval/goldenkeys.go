package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
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

// keyChecker walks a line: encoding/json takes keys in any case and the last of two.
type keyChecker struct {
	in   *json.Decoder
	rule string
	says string
}

// checkKeys returns the rule that a line breaks, "" when it breaks none.
func checkKeys(text []byte) (rule, says string) {
	k := &keyChecker{in: json.NewDecoder(bytes.NewReader(text))}
	k.in.UseNumber()
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return RuleSyntax, "the file begins with a byte order mark; save it as UTF-8 without one"
	}
	if kindOf(text) != '{' {
		return RuleSyntax, "the line is no JSON object; a case is one object on one line"
	}
	k.value("", 0)
	if k.rule == "" {
		if _, err := k.in.Token(); !errors.Is(err, io.EOF) {
			k.fail(RuleSyntax, "something follows the object; put every case on a line of its own")
		}
	}
	return k.rule, k.says
}

func (k *keyChecker) fail(rule, format string, args ...any) {
	if k.rule == "" {
		k.rule, k.says = rule, fmt.Sprintf(format, args...)
	}
}

func (k *keyChecker) token() json.Token {
	t, err := k.in.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it ends too early")
		}
		k.fail(RuleSyntax, "this is not JSON: %v", err)
		return nil
	}
	return t
}

func (k *keyChecker) value(path string, depth int) {
	t := k.token()
	if depth > maxNesting {
		k.fail(RuleSyntax, "%s is nested deeper than %d", clipQuote(path), maxNesting)
	}
	switch {
	case k.rule != "":
	case t == json.Delim('{'):
		k.object(path, depth)
	case t == json.Delim('['):
		for k.rule == "" && k.in.More() {
			k.value(path+"[]", depth+1)
		}
		k.token()
	}
}

func (k *keyChecker) object(path string, depth int) {
	known, ours := caseKeys[path]
	seen := map[string]bool{}
	for k.rule == "" && k.in.More() {
		key, ok := k.token().(string)
		if !ok {
			return
		}
		at := strings.TrimPrefix(path+"."+key, ".")
		switch {
		case seen[key]:
			k.fail(RuleDuplicateKey, "%s stands here twice; keep one", clipQuote(at))
		case ours && !slices.Contains(known, key):
			k.fail(RuleUnknownKey, "unknown key %q; %s", clipQuote(at), nearest(key, known))
		}
		seen[key] = true
		k.value(at, depth+1)
	}
	k.token()
}

// nearest ends a message about a word that is not known.
func nearest(word string, known []string) string {
	best, at := "", max(2, len(word)/3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(clipQuote(word)), strings.ToLower(clipQuote(k))); d < at {
			best, at = k, d
		}
	}
	if best != "" {
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

// distance is how many letters must be changed, added or taken out.
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range from {
		diagonal := row[0]
		row[0] = i + 1
		for j, s := range to {
			cost := diagonal
			if r != s {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(to)]
}
