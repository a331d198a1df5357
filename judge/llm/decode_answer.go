package llm

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Limits on an answer. Longer texts are truncated; longer lists are rejected.
const (
	maxReasoning = 4000 // runes
	maxNote      = 600
	maxEvidence  = 1000
	maxNotes     = 50
	maxCriteria  = 200
	maxID        = 40
)

func (a Answer) equal(b Answer) bool { return reflect.DeepEqual(a, b) }

// readAnswer requires confidence, approved unless the criteria are answered under their ids, and the right types
// for members that affect the decision. It reads all other members leniently.
func readAnswer(o document.JSON) (a Answer, lenient bool, fail *Error) {
	r := answerReader{object: o}
	a.Criteria, a.Keyed, a.NoCriteria = r.readCriteria()
	a.Confidence = r.readShare("confidence")
	a.InjectionSuspected = r.readBool("injection_suspected", false)
	stated := hasMember(o, "approved")
	a.Approved = a.Keyed && !stated || r.readBool("approved", true)
	if a.Keyed {
		unmet := func(c Criterion) bool { return c.Status != StatusMet && c.Status != StatusGraded }
		met := !a.InjectionSuspected && len(a.Criteria) > 0 && !slices.ContainsFunc(a.Criteria, unmet)
		if met && !a.Approved {
			r.refuse("the answer refuses, but every criterion is met")
		}
		a.Approved = met
	}
	a.Violations = r.readTexts("violations", true)
	a.Suggestions = r.readTexts("suggestions", false)
	a.Reasoning = r.readText("reasoning")
	if r.wrong != "" {
		return Answer{}, false, malformedError("the verdict cannot be read: " + r.wrong)
	}
	return a, r.lenient, nil
}

// answerReader reads members and records the first error.
type answerReader struct {
	object  document.JSON
	lenient bool
	wrong   string
}

func (r *answerReader) refuse(format string, args ...any) {
	if r.wrong == "" {
		r.wrong = fmt.Sprintf(format, args...)
	}
}

func (r *answerReader) member(key string) document.JSON {
	v, err := getMember(r.object, key)
	if err != nil {
		r.refuse("%s", err)
	}
	if !isSet(v) {
		return document.JSON{}
	}
	return v
}

// readBool also accepts the strings "true" and "false".
func (r *answerReader) readBool(key string, required bool) bool {
	switch v := r.member(key); v.Kind() {
	case document.True, document.False:
		return v.Kind() == document.True
	case document.String:
		if v.Is("true") || v.Is("false") {
			r.lenient = true
			return v.Is("true")
		}
	case 0:
		if !required {
			return false
		}
		r.refuse("%q is missing", key)
		return false
	}
	r.refuse("%q is neither true nor false", key)
	return false
}

var decimal = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,3}(\.[0-9]{1,20})?$`) })

// readShare reads a number from 0 to 1, also as a decimal string.
func (r *answerReader) readShare(key string) float64 {
	var literal string
	switch v := r.member(key); v.Kind() {
	case document.Number:
		literal = string(v.Raw())
	case document.String:
		if !decimal().MatchString(v.Text()) {
			r.refuse("%q is not a number", key)
			return 0
		}
		literal, r.lenient = v.Text(), true
	case 0:
		r.refuse("%q is missing", key)
		return 0
	default:
		r.refuse("%q is not a number", key)
		return 0
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil || !(f >= 0 && f <= 1) {
		r.refuse("%q is not 0 to 1", key)
		return 0
	}
	return f + 0 // -0 becomes 0
}

// readTexts reads a list of strings, or a single one, and skips blank ones. If decides is set, anything that is
// not a string is an error.
func (r *answerReader) readTexts(key string, decides bool) []string {
	v := r.member(key)
	var list []document.JSON
	switch isList := v.Kind() == document.Array; {
	case v.Kind() == 0:
		return nil
	case v.Kind() == document.String:
		list, r.lenient = []document.JSON{v}, true
	case !isList || v.Len() > maxNotes:
		if decides || isList {
			r.refuse("%q is not a list of at most %d strings", key, maxNotes)
		}
		r.lenient = true
		return nil
	}
	for _, item := range v.Elements() {
		list = append(list, item)
	}
	var out []string
	for _, item := range list {
		isText := item.Kind() == document.String
		if !isText && decides {
			r.refuse("%q has an item that is not a string", key)
		}
		r.lenient = r.lenient || !isText
		if s := item.Text(); strings.TrimSpace(s) != "" {
			out = append(out, cmp.Or(cleanText(s, maxNote), "?")) // a text that cannot be shown still counts
		}
	}
	return out
}

func (r *answerReader) readText(key string) string {
	v := r.member(key)
	r.lenient = r.lenient || v.Kind() != document.String && v.Kind() != 0
	return cleanText(v.Text(), maxReasoning)
}

// readCriteria reads answers under their ids (keyed), or a list of answers with ids. Of a list it accepts a
// duplicate only if both answers are the same.
func (r *answerReader) readCriteria() (out []Criterion, keyed, absent bool) {
	v := r.member("criteria")
	keyed = v.Kind() == document.Object
	switch {
	case v.Kind() == 0:
		return nil, false, !hasMember(r.object, "criteria")
	case !keyed && v.Kind() != document.Array || v.Len() > maxCriteria:
		r.refuse("\"criteria\" has not the form of at most %d criteria", maxCriteria)
		return nil, false, false
	case keyed:
		for id, o := range v.Members() {
			out = r.addCriterion(out, id, o, keyed)
		}
	default:
		for _, o := range v.Elements() {
			id := document.JSON{}
			if o.Kind() == document.Object {
				id, _ = getMember(o, "id") // readCriterion reports the error
			}
			out = r.addCriterion(out, id, o, keyed)
		}
	}
	return out, keyed, false
}

func (r *answerReader) addCriterion(all []Criterion, id, o document.JSON, keyed bool) []Criterion {
	if o.Kind() != document.Object {
		r.refuse("\"criteria\" has an item that is not an object")
		return all
	}
	c := r.readCriterion(id, o)
	for _, other := range all {
		if !strings.EqualFold(other.ID, c.ID) {
			continue
		}
		if keyed || other.ID == c.ID && other != c {
			r.refuse("duplicate criterion %q with different answers", c.ID)
		}
		if other.ID == c.ID {
			return all
		}
	}
	return append(all, c)
}

func (r *answerReader) readCriterion(id, o document.JSON) Criterion {
	in := answerReader{object: o}
	c := Criterion{Status: StatusCannotAssess}
	switch in.member("id"); id.Kind() {
	case document.String:
		c.ID = cleanText(id.Text(), maxID)
	case document.Number:
		c.ID, r.lenient = cleanText(string(id.Raw()), maxID), true
	}
	if c.ID == "" {
		in.refuse("a criterion has no id")
	}
	switch evidence := in.member("evidence"); evidence.Kind() {
	case document.String:
		c.Evidence = truncateQuote(evidence.Text(), maxEvidence)
	case 0:
	default:
		in.refuse("the evidence for %q is not a string", c.ID)
	}
	if why := in.member("why"); why.Kind() == document.String {
		c.Why = cleanText(why.Text(), maxNote)
	}
	switch status := in.member("status"); status.Kind() {
	case document.String:
		switch {
		case status.Is(StatusMet):
			c.Status = StatusMet
		case status.Is(StatusNotMet), status.Is(WordContradicted):
			c.Status = StatusNotMet
		case !status.Is(StatusCannotAssess) && !status.Is(WordNotShown):
			r.lenient = true
		}
	case 0:
		if grade, ok := in.readGrade(); ok {
			c.Status, c.Grade = StatusGraded, grade
		} else {
			r.lenient = true
		}
	default:
		in.refuse("the status of %q is not a string", c.ID)
	}
	if in.wrong != "" {
		r.refuse("%s", in.wrong)
	}
	r.lenient = r.lenient || in.lenient
	return c
}

// readGrade reads a whole number from 0 to 99, also as a string.
func (r *answerReader) readGrade() (grade int, ok bool) {
	v := r.member("grade")
	literal := string(v.Raw())
	switch v.Kind() {
	case 0:
		return 0, false
	case document.String:
		literal, r.lenient = v.Text(), true
	}
	grade, err := strconv.Atoi(literal)
	if err != nil || grade < 0 || grade > 99 {
		r.refuse("\"grade\" is not a whole number from 0 to 99")
	}
	return grade, true
}

// truncateQuote keeps invisible characters that some writing systems need, because the quote is searched for
// in the documents. Callers must clean it before they show it.
func truncateQuote(s string, n int) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
	if r := []rune(s); len(r) > n {
		s = string(r[:n])
	}
	return s
}

// cleanText makes an untrusted text safe to show: no control characters, at most n runes.
func cleanText(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if r := []rune(s); len(r) > n {
		s = strings.TrimSpace(string(r[:n-1])) + "…"
	}
	return s
}
