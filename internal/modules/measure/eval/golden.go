package eval

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Limits of golden data. A line longer than MaxLine is reported as a separate error; reading continues with the next
// line.
const (
	MaxLine     = 1 << 20 // bytes
	MaxCases    = 1_000_000
	maxCaseID   = 200 // bytes; also for groups, tags and names
	maxCaseTags = 50
)

// The rules that a single line can break.
const (
	RuleSyntax       = "syntax"
	RuleUnknownKey   = "unknown-key"
	RuleDuplicateKey = "duplicate-key"
	RuleBadValue     = "bad-value"
)

// Golden is a case and its place in a file.
type Golden struct {
	Case
	File string
	Line int // from 1
}

// ReadCases reads JSON Lines one at a time, in bounded memory, and skips empty lines. A line that is not a case yields
// an *Issue, and reading continues. Any other error means that reading failed, and comes last. file is the name in
// messages.
func ReadCases(file string, from io.Reader) iter.Seq2[Golden, error] {
	return ReadDrafts(file, from, func(*Case) {})
}

// ReadDrafts reads cases like ReadCases. It checks each case after complete has filled in missing fields, but yields
// the case as it is in the file.
func ReadDrafts(file string, from io.Reader, complete func(*Case)) iter.Seq2[Golden, error] {
	return func(yield func(Golden, error) bool) {
		n := 0
		for l, err := range readLines(from, MaxLine) {
			at := Golden{File: file, Line: l.number}
			switch {
			case err != nil:
				yield(Golden{}, fmt.Errorf("eval: read %s, line %d: %w", file, l.number, err))
				return
			case l.isLong:
				err = &Issue{file, l.number, RuleSyntax, "", fmt.Sprintf("the line has more than %d bytes; put less into one case", MaxLine)}
			default:
				if n++; n > MaxCases {
					yield(Golden{}, fmt.Errorf("eval: %s has more than %d cases; split it", file, MaxCases))
					return
				}
				at.Case, err = decodeCase(file, l.number, l.text, complete)
			}
			if !yield(at, err) {
				return
			}
		}
	}
}

type line struct {
	number int // from 1
	text   []byte
	isLong bool // longer than allowed; then text is nil
}

// readLines yields the lines that are not empty. An error comes last, with the line at which reading failed.
func readLines(from io.Reader, most int) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		in := bufio.NewReaderSize(from, 64<<10)
		for l := (line{number: 1}); ; l = (line{number: l.number + 1}) {
			part, err := in.ReadSlice('\n')
			for ; ; part, err = in.ReadSlice('\n') {
				if l.text = append(l.text, part...); len(l.text) > most {
					l.text, l.isLong = nil, true
				}
				if !errors.Is(err, bufio.ErrBufferFull) {
					break
				}
			}
			if err != nil && !errors.Is(err, io.EOF) {
				yield(l, err)
				return
			}
			if l.isLong {
				l.text = nil
			}
			l.text = bytes.TrimSpace(l.text)
			if (l.isLong || len(l.text) > 0) && !yield(l, nil) || err != nil {
				return
			}
		}
	}
}

// decodeCase returns an untyped nil error if the line is a case.
func decodeCase(file string, line int, text []byte, complete func(*Case)) (Case, error) {
	bad := &Issue{File: file, Line: line}
	if !utf8.Valid(text) {
		bad.Rule, bad.Message = RuleSyntax, "the line is not UTF-8; save the file as UTF-8"
		return Case{}, bad
	}
	if bad.Rule, bad.Message = checkKeys(text); bad.Rule != "" {
		return Case{}, bad
	}
	var c Case
	if err := json.Unmarshal(text, &c); err != nil {
		bad.Rule, bad.Message = RuleBadValue, decodeMessage(err)
		return Case{}, bad
	}
	c.Schema = "" // two cases that differ only here are equal
	whole := c
	complete(&whole)
	if problem := whole.findProblem(); problem != "" {
		bad.Rule, bad.Case, bad.Message = RuleBadValue, c.ID, problem
		return c, bad
	}
	return c, nil
}

func decodeMessage(err error) string {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%s is a %s; docs/evaluation.md lists the types", kind.Field, kind.Value)
	}
	return err.Error()
}

// Validate checks a case without regard to other cases. It returns nil if there is no problem.
func (c Case) Validate() error {
	if problem := c.findProblem(); problem != "" {
		return errors.New("eval: " + problem)
	}
	return nil
}

func (c Case) findProblem() string {
	named := []struct{ key, value string }{
		{"id", c.ID},
		{"group", c.Group},
		{"state", c.State},
		{"action", c.Action},
		{"principal", c.Principal},
		{"role", c.Role},
		{"label.by", c.Label.By},
	}
	for _, n := range named {
		if p := nameProblem(n.value); p != "" {
			return fmt.Sprintf("%s %s", n.key, p)
		}
	}
	for _, n := range []struct{ key, value string }{{"id", c.ID}, {"state", c.State}, {"action", c.Action}} {
		if n.value == "" {
			return n.key + " is missing; give one"
		}
	}
	if len(c.Tags) > maxCaseTags {
		return fmt.Sprintf("tags has %d tags; give at most %d", len(c.Tags), maxCaseTags)
	}
	for i, tag := range c.Tags {
		if p := nameProblem(tag); p != "" {
			return fmt.Sprintf("tags[%d] %s", i, p)
		}
	}
	if kindOf(c.Workflow) != '{' {
		return `workflow is not an object; give {"ref": "file#name"} or a definition`
	}
	for i, s := range c.History {
		if s.Action == "" || s.State == "" {
			return fmt.Sprintf("history[%d] needs action and state", i)
		}
	}
	if p := c.findDocumentProblem(); p != "" {
		return p
	}
	return c.findAnswerProblem()
}

func (c Case) findDocumentProblem() string {
	for _, d := range []struct {
		key string
		doc json.RawMessage
	}{{"context", c.Context}, {"data", c.Data}} {
		if k := kindOf(d.doc); k != 0 && k != '{' {
			return d.key + " is not a JSON object; use {} or leave it out"
		}
	}
	for name := range c.Evidence {
		if p := nameProblem(name); p != "" || name == "" {
			return "evidence has a name that is empty or not readable"
		}
	}
	return ""
}

func (c Case) findAnswerProblem() string {
	oneOf := []struct {
		key, value string
		allowed    []string
	}{
		{"expect.outcome", string(c.Expect.Outcome), []string{string(judge.Approve), string(judge.Reject), string(judge.Escalate)}},
		{"label.source", c.Label.Source, []string{"human", "adjudicated", "synthetic"}},
		{"split", string(c.Split), []string{string(Dev), string(Cal), string(Test)}},
		{"risk", c.Risk, []string{"", "high"}},
	}
	for _, o := range oneOf {
		if !slices.Contains(o.allowed, o.value) {
			return fmt.Sprintf("%s is %q; it is %s", o.key, ClipQuote(o.value), orList(o.allowed))
		}
	}
	for id, answer := range c.Expect.Criteria {
		if allowed := []string{"met", "not_met", "cannot_assess"}; !slices.Contains(allowed, answer) {
			return fmt.Sprintf("expect.criteria: %q is %q; it is %s", ClipQuote(id), ClipQuote(answer), orList(allowed))
		}
	}
	for _, code := range c.Expect.ViolationsAny {
		if code == "" {
			return "expect.violations_any has an empty code; remove it"
		}
	}
	if a := c.Label.Agreement; a != nil && !(*a >= 0 && *a <= 1) {
		return fmt.Sprintf("label.agreement is %v; it is 0 to 1", *a)
	}
	if c.Label.Raters < 0 {
		return fmt.Sprintf("label.n_raters is %d; it is 1 or more", c.Label.Raters)
	}
	return ""
}

func nameProblem(s string) string {
	if len(s) > maxCaseID {
		return fmt.Sprintf("has %d bytes; give at most %d", len(s), maxCaseID)
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return "has control characters; remove them"
	}
	return ""
}

func kindOf(doc json.RawMessage) byte {
	if doc = bytes.TrimSpace(doc); len(doc) > 0 {
		return doc[0]
	}
	return 0
}

func orList(words []string) string {
	var out []string
	for _, k := range words {
		k = cmp.Or(k, "absent")
		out = append(out, k)
	}
	return strings.Join(out[:len(out)-1], ", ") + " or " + out[len(out)-1]
}

// ClipQuote shortens a text that a message quotes.
func ClipQuote(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

// caseKeys are the keys of a case by path. Objects under any other path belong to the user.
var caseKeys = map[string][]string{
	"":          {"$schema", "id", "group", "tags", "workflow", "state", "action", "context", "data", "evidence", "history", "principal", "role", "expect", "label", "risk", "split", "notes"},
	"expect":    {"outcome", "criteria", "violations_any"},
	"label":     {"source", "by", "n_raters", "agreement"},
	"history[]": {"action", "state", "by"},
}

const maxNesting = 100

// checkKeys returns the rule that a line breaks, "" for none. It is stricter than encoding/json, which ignores the
// case of keys and takes the last of duplicate keys.
func checkKeys(text []byte) (rule, says string) {
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		return RuleSyntax, "the file begins with a byte order mark; save it as UTF-8 without one"
	}
	if kindOf(text) != '{' {
		return RuleSyntax, "the line is not a JSON object; a case is one object on one line"
	}
	v, err := document.ReadJSON(text, document.Limits{Bytes: len(text), Depth: maxNesting, Lax: true})
	if err != nil {
		return RuleSyntax, fmt.Sprintf("this is not JSON: %v; put every case on a line of its own", err)
	}
	return checkNames(v, "")
}

func checkNames(v document.JSON, path string) (rule, says string) {
	if twice := v.Duplicate(); twice.Kind() != 0 {
		return RuleDuplicateKey, fmt.Sprintf("duplicate key %s; keep one", ClipQuote(memberPath(path, twice)))
	}
	keys, isOurs := caseKeys[path]
	for name, value := range v.Members() {
		at := memberPath(path, name)
		if isOurs && !slices.Contains(keys, name.Text()) {
			return RuleUnknownKey, fmt.Sprintf("unknown key %q; %s", ClipQuote(at), suggestWord(name.Text(), keys))
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

func suggestWord(word string, words []string) string {
	if best := document.Suggest(word, words); best != "" {
		return fmt.Sprintf("did you mean %q?", ClipQuote(best))
	}
	var names []string
	for _, k := range words[:min(len(words), 30)] {
		names = append(names, ClipQuote(k))
	}
	if len(names) == 0 {
		return "there are none"
	}
	return "known are " + strings.Join(names, ", ")
}
