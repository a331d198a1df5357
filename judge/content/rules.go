package content

import (
	_ "embed"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"github.com/gavel-mcp/gavel/judge/shown"
	"github.com/gavel-mcp/gavel/validators/document"
)

//go:embed rules.yaml
var ruleSource []byte

// rule is one pattern. It runs only on texts that contain one of its cues. A match within
// a quotation that the text talks about does not count: people write about such texts, too.
type rule struct {
	id, code string
	cues     []string // lower case; none: always
	pattern  func() *regexp.Regexp
}

// ruleBook is what rules.yaml holds.
type ruleBook struct {
	plain, foreign, compact []rule
	openers, talk           func() *regexp.Regexp
}

// compileOnce compiles a pattern when it is first asked: all of them together are a fifth of the
// start of a process, and most processes judge no content.
func compileOnce(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// rules reads the rules when they are first asked for.
var rules = sync.OnceValue(func() ruleBook {
	doc, err := document.Parse("rules.yaml", ruleSource, document.Limits{Bytes: len(ruleSource)})
	if err != nil {
		panic(err) // it is a part of the program
	}
	var parts []string
	for _, m := range doc.Get("parts").Members {
		parts = append(parts, "${"+m.Key+"}", joinLines(m.Value.Text))
	}
	fill := strings.NewReplacer(parts...)
	compile := func(n *document.Node) func() *regexp.Regexp { return compileOnce(fill.Replace(joinLines(n.Text))) }
	read := func(key string) (set []rule) {
		for _, n := range doc.Get(key).Items {
			r := rule{id: n.Get("id").Text, code: n.Get("code").Text, pattern: compile(n.Get("pattern"))}
			for _, cue := range n.Get("cues").Items {
				r.cues = append(r.cues, cue.Text)
			}
			set = append(set, r)
		}
		return set
	}
	return ruleBook{read("plain"), read("foreign"), read("compact"), compile(doc.Get("openers")), compile(doc.Get("talk"))}
})

// joinLines joins the lines of a pattern without their indentation.
func joinLines(pattern string) string {
	lines := strings.Split(pattern, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "")
}

// isBoilerplate reports whether a text is nothing but an opener or punctuation.
func isBoilerplate(s string) bool {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > 120 {
		return false
	}
	if !shown.HasWord(s) {
		return len([]rune(s)) <= 3 && strings.ContainsAny(s, ":.,;") // a lone colon
	}
	// A short honest value ("ok", "result") stands under a key that says what it is;
	// an opener ends in a colon or goes on as if more came.
	return rules().openers().MatchString(s) && (strings.HasSuffix(s, ":") || strings.HasSuffix(s, "：") || strings.HasSuffix(s, "…") || strings.HasSuffix(s, "...") || len(strings.Fields(s)) >= 3)
}

// Where repetition begins to count, in words and in characters.
const (
	manyWords = 40
	manyRunes = 160
)

// isRepetitive reports whether a text has few different words, or one character. Tables
// and logs repeat words too, but with numbers that differ.
func isRepetitive(s string) bool {
	runes := []rune(s)
	if len(runes) < manyRunes {
		return false
	}
	count := map[rune]int{}
	most := 0
	for _, r := range runes {
		if unicode.IsSpace(r) {
			continue
		}
		count[r]++
		most = max(most, count[r])
	}
	if len(count) <= 4 || most*10 > len(runes)*8 {
		return true
	}
	all := strings.Fields(s)
	if len(all) < manyWords {
		return false
	}
	different := map[string]bool{}
	for _, w := range all {
		different[strings.Trim(w, `.,;:!?"'()`)] = true
	}
	return len(different)*8 < len(all)
}

// hiddenIn returns CodeHidden for text with characters that hide or reorder what one
// reads, otherwise "". What scripts need (joiners in Persian and in emoji, isolates in
// Arabic and Hebrew) is no trap.
func hiddenIn(s string) string {
	var (
		previous   rune
		tags       int
		selectors  int
		inWord     int
		seen, show bool
		flag       bool
	)
	for _, r := range s {
		seen = true
		switch {
		case r == 0x1F3F4:
			flag = true
		case r >= 0xE0000 && r <= 0xE007F:
			if !flag {
				tags++
			}
		case r == '\u202d' || r == '\u202e':
			return CodeHidden
		case r >= 0xE0100 && r <= 0xE01EF || unicode.Is(unicode.Variation_Selector, r) && unicode.Is(unicode.Variation_Selector, previous):
			selectors++
		case isInvisible(r):
			if previous < 0x250 && unicode.IsLetter(previous) && r != '\u00ad' {
				inWord++
			}
		default:
			flag = false
			show = show || !unicode.IsSpace(r)
		}
		previous = r
	}
	if tags > 0 || selectors > 1 || inWord > 2 || seen && !show && strings.ContainsFunc(s, isInvisible) {
		return CodeHidden
	}
	return ""
}

// openQuotes open what encloses a quotation.
const openQuotes = "\"'`“‘«„「『<(["

// isTalkedAbout reports whether the range is quoted or marked as code in a text that
// talks about it, outside of the quotation.
func isTalkedAbout(s string, begin, end int) bool {
	from, to := findQuotation(s, begin, end)
	if from < 0 {
		return false
	}
	before, after := s[max(0, from-200):from], s[to:min(len(s), to+120)]
	outside := len(strings.Fields(before)) + len(strings.Fields(after))
	talk := rules().talk()
	return outside >= 4 && (talk.MatchString(before) || talk.MatchString(after))
}

// findQuotation finds the quotation marks, backticks or code fence around a range; -1
// when there are none close by.
func findQuotation(s string, begin, end int) (from, to int) {
	// A match may take an opening quote with it.
	for begin < end && strings.ContainsRune(openQuotes+" \n.!?:,;", rune(s[begin])) && s[begin] < 0x80 {
		begin++
	}
	if from = findFence(s, begin); from >= 0 {
		if close := strings.Index(s[end:], "```"); close >= 0 {
			return from, end + close + 3
		}
		return from, len(s)
	}
	for _, pair := range [][2]string{{"`", "`"}, {"“", "”"}, {"«", "»"}, {"„", "“"}, {"「", "」"}, {"\"", "\""}, {"‘", "’"}, {"'", "'"}} {
		open := strings.LastIndex(s[max(0, begin-300):begin], pair[0])
		if open < 0 {
			continue
		}
		open += max(0, begin-300)
		close := strings.Index(s[max(end-1, begin):min(len(s), end+300)], pair[1])
		if close < 0 {
			continue
		}
		if pair[0] == pair[1] && strings.Count(s[:open], pair[0])%2 == 1 {
			continue // it closes an earlier one
		}
		return open, max(end-1, begin) + close + len(pair[1])
	}
	return -1, -1
}

// findFence returns the start of the code fence around a position, -1 without one.
func findFence(s string, at int) int {
	if strings.Count(s[:at], "```")%2 == 0 {
		return -1
	}
	return strings.LastIndex(s[:at], "```")
}
