package content

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/validators/document"
)

//go:embed rules.yaml
var ruleSource []byte

// rule is one pattern. The pattern is tried only on strings that contain one of the cues.
type rule struct {
	id      string
	cues    []string // lower case; at least one
	pattern func() *regexp.Regexp
}

// ruleBook holds the rules of rules.yaml.
type ruleBook struct{ refuse, flag []rule }

// rules parses the rules on first use.
var rules = sync.OnceValue(func() ruleBook {
	doc, err := document.Parse("rules.yaml", ruleSource, document.Limits{Bytes: len(ruleSource)})
	if err != nil {
		panic(err) // the rules are embedded
	}
	var parts []string
	for _, m := range doc.Get("parts").Members {
		parts = append(parts, "${"+m.Key+"}", joinLines(m.Value.Text))
	}
	fill := strings.NewReplacer(parts...)
	read := func(key string) (set []rule) {
		for _, n := range doc.Get(key).Items {
			r := rule{id: n.Get("id").Text, pattern: compileOnce(fill.Replace(joinLines(n.Get("pattern").Text)))}
			for _, cue := range n.Get("cues").Items {
				r.cues = append(r.cues, cue.Text)
			}
			set = append(set, r)
		}
		return set
	}
	return ruleBook{read("refuse"), read("flag")}
})

// joinLines joins the lines of a pattern without their indentation.
func joinLines(pattern string) string {
	lines := strings.Split(pattern, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "")
}

// firstMatch returns the words that the first matching rule matched, "" if none does.
func firstMatch(s string, all []rule) string {
	for _, r := range all {
		if slices.ContainsFunc(r.cues, func(cue string) bool { return strings.Contains(s, cue) }) {
			if words := r.pattern().FindString(s); words != "" {
				return words
			}
		}
	}
	return ""
}
