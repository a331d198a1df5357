package shown

import (
	"encoding/json"
	"iter"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/gavel-mcp/gavel/validators/document"
)

// minQuote is the shortest quote that counts unless it is a whole value. maxQuote is how much of a long
// quote is searched for. Both are in runes.
const (
	minQuote = 3
	maxQuote = 500
)

// Documents are all documents of a case that a model saw, the data last.
type Documents []Document

// Named returns the documents with the given name.
func (ds Documents) Named(name string) Documents {
	return slices.DeleteFunc(slices.Clone(ds), func(d Document) bool { return d.Name != name })
}

// Within returns the part of the documents at a path: the name of a document, or a JSON pointer that
// begins with one.
func (ds Documents) Within(path string) Documents {
	tokens := slices.Collect(document.Pointer("/" + strings.TrimPrefix(path, "/")).Tokens())
	out := ds.Named(tokens[0])
	for i := range out {
		out[i].root = out[i].root.At(tokens[1:]...)
	}
	return slices.DeleteFunc(out, func(d Document) bool { return d.root.Kind() == 0 })
}

// Contains reports whether evidence is in the documents: a verbatim quote from one value, or from several as
// their JSON appears in the text. Runs of white space count as one space; no other difference is allowed. A
// pointer, a key alone, punctuation, a truncation note and a masked value are not evidence. Only the
// beginning of long evidence is searched for. If found is false, why gives the reason.
func (ds Documents) Contains(evidence string) (found bool, why string) {
	plain := trimLongQuote(collapseSpace(evidence))
	inner := trimLongQuote(Unwrap(evidence))
	switch {
	case inner == "":
		return false, "no evidence was given"
	case !HasWord(inner):
		return false, "the quote has neither a letter nor a digit"
	}
	values := ds.values()
	if slices.Contains(values, plain) {
		return true, ""
	}
	if found, why = ds.FindPointer(inner); found {
		return false, "a pointer alone proves nothing; quote the text"
	} else if why != "" {
		return false, why
	}
	for _, quote := range []string{plain, inner} {
		if containsQuote(values, quote) || ds.containJSON(quote) {
			return true, ""
		}
	}
	for _, value := range ds.splitNamed(inner) {
		if containsQuote(values, Unwrap(value)) {
			return true, ""
		}
	}
	return false, "the quote is not in what the model was shown"
}

// FindRun returns the longest run of at least n words within a text that one value contains verbatim, "" if there is
// none. A model may write its own words around a quote.
func (ds Documents) FindRun(text string, n int) string {
	words, values, longest := strings.Fields(trimLongQuote(collapseSpace(text))), ds.values(), ""
	for i := range words {
		for j := i + n; j <= len(words); j++ {
			run := strings.TrimFunc(strings.Join(words[i:j], " "), func(r rune) bool { return unicode.IsPunct(r) || unicode.IsSymbol(r) })
			if !containsPieces(values, []string{run}) {
				break
			}
			if len(run) > len(longest) {
				longest = run
			}
		}
	}
	return longest
}

// FindWhole returns the paths of the values that a quote equals as a whole, with or without their keys,
// as JSON pointers that begin with the name of a document.
func (ds Documents) FindWhole(quote string) (paths []string) {
	plain, inner := collapseSpace(quote), Unwrap(quote)
	key, value := splitMember(inner)
	for path, text := range ds.scalars() {
		if HasWord(text) && (text == plain || text == inner || key != "" && strings.HasSuffix(path, pathOf(key)) && strings.Trim(text, `"`) == strings.Trim(value, `"`)) {
			paths = append(paths, path)
		}
	}
	return paths
}

// trimLongQuote returns the part of a quote that is searched for. If it cuts off the end of a long quote,
// it removes the opening quotation marks, too.
func trimLongQuote(s string) string {
	r := []rune(s)
	if len(r) <= maxQuote {
		return s
	}
	return strings.TrimLeft(string(r[:maxQuote]), "\"'`“„« ")
}

// Unwrap removes the quotation marks that models put around a quote.
func Unwrap(s string) string {
	s = collapseSpace(s)
	for {
		before := s
		for _, w := range [][2]string{{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"“", "”"}, {"„", "“"}, {"«", "»"}} {
			if len(s) > len(w[0])+len(w[1]) && strings.HasPrefix(s, w[0]) && strings.HasSuffix(s, w[1]) {
				s = strings.TrimSpace(s[len(w[0]) : len(s)-len(w[1])])
			}
		}
		if s == before {
			return s
		}
	}
}

// collapseSpace replaces every run of white space and control characters with one space, because
// the control characters of an answer have been replaced with spaces already.
func collapseSpace(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

// containsQuote reports whether the values contain the quote: in one piece, as JSON would escape it,
// or in pieces around an ellipsis, all from one value and in order.
func containsQuote(values []string, quote string) bool {
	if containsPieces(values, []string{quote}) {
		return true
	}
	var unescaped string
	if strings.Contains(quote, `\`) && json.Unmarshal([]byte(`"`+quote+`"`), &unescaped) == nil && containsPieces(values, []string{collapseSpace(unescaped)}) {
		return true
	}
	pieces := strings.Split(strings.ReplaceAll(quote, "...", "…"), "…")
	if len(pieces) < 2 {
		return false
	}
	for i := range pieces {
		pieces[i] = Unwrap(pieces[i])
	}
	pieces = slices.DeleteFunc(pieces, func(p string) bool { return p == "" })
	return len(pieces) > 0 && containsPieces(values, pieces)
}

// containsPieces reports whether one value contains all pieces in order, each with at least one
// word.
func containsPieces(values, pieces []string) bool {
	if slices.ContainsFunc(pieces, func(p string) bool { return !HasWord(p) }) {
		return false
	}
	return slices.ContainsFunc(values, func(v string) bool {
		rest := v
		for _, p := range pieces {
			at := strings.Index(rest, p)
			if at < 0 || v != p && len([]rune(p)) < minQuote {
				return false
			}
			rest = rest[at+len(p):]
		}
		return true
	})
}

// values returns all scalars that were shown, with white space collapsed.
func (ds Documents) values() []string {
	var out []string
	for _, text := range ds.scalars() {
		out = append(out, text)
	}
	return out
}

// scalars yields the values with their paths.
func (ds Documents) scalars() iter.Seq2[string, string] {
	return func(yield func(path, text string) bool) {
		for _, d := range ds {
			for l := range d.Leaves() {
				switch {
				case l.Name, l.Kind == document.Null, l.Cut && l.Text == "", l.Kind == document.String && l.Text == Masked:
					continue
				case l.Kind == document.String:
					l.Text = collapseSpace(l.Text)
				}
				if !yield("/"+d.Name+l.Path, l.Text) {
					return
				}
			}
		}
	}
}

// member matches a quote that names the key before the value: comments: "text", or
// "comments": "text", perhaps followed by more of the line.
var member = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[{,\s]*"?([^":=]{1,100}?)"?\s*[:=]\s*(.+?)[},\s]*$`)
})

// splitMember splits a quote that names a key before the value; both are "" for any other quote. From a path
// of keys, it takes the last key.
func splitMember(quote string) (key, value string) {
	m := member().FindStringSubmatch(quote)
	if m == nil {
		return "", ""
	}
	key = strings.TrimSpace(m[1])
	return key[strings.LastIndexAny(key, "./")+1:], m[2]
}

// splitNamed returns the possible values of a quote that names a shown key.
func (ds Documents) splitNamed(quote string) []string {
	key, value := splitMember(quote)
	if value == "" {
		return nil
	}
	for _, d := range ds {
		isName := d.Name == key
		for l := range d.Leaves() {
			isName = isName || l.Name && l.Text == key
		}
		if isName {
			return []string{value, strings.TrimPrefix(value, `"`)} // the quote may end within the value
		}
	}
	return nil
}

// FindPointer looks up evidence as a JSON pointer (RFC 6901), with or without the name of the document
// before it. After a #, it may also be a percent-encoded URI fragment. A string that points nowhere may
// still be a quote; both results are then zero.
func (ds Documents) FindPointer(evidence string) (found bool, why string) {
	path, isFragment := strings.CutPrefix(evidence, "#")
	if !strings.HasPrefix(path, "/") {
		return false, ""
	}
	v := ds.resolve(path)
	if plain, err := url.PathUnescape(path); isFragment && v.Kind() == 0 && err == nil {
		v = ds.resolve(plain)
	}
	switch {
	case v.Kind() == 0:
		return false, ""
	case !hasContent(v):
		return false, "what " + path + " points to is empty or was truncated"
	}
	return true, ""
}

// resolve follows a pointer in the document that it names, then in the data, then in the earlier documents
// from last to first. A pointer that names the evidence is followed only there: a field "evidence" of the
// data was written by the agent.
func (ds Documents) resolve(path string) document.JSON {
	tokens := slices.Collect(document.Pointer(path).Tokens())
	for _, d := range ds {
		if tokens[0] == d.Name && len(tokens) > 1 {
			if v := d.root.At(tokens[1:]...); v.Kind() != 0 {
				return v
			}
		}
	}
	if tokens[0] == Evidence {
		return document.JSON{}
	}
	for _, d := range slices.Backward(ds) {
		if v := d.root.At(tokens...); v.Kind() != 0 {
			return v
		}
	}
	return document.JSON{}
}

// hasContent reports whether a value has any content.
func hasContent(v document.JSON) bool {
	switch v.Kind() {
	case document.Null:
		return false
	case document.String:
		text, _ := splitNote(v.Text())
		return HasWord(text)
	case document.Array:
		for _, item := range v.Elements() {
			if hasContent(item) {
				return true
			}
		}
		return false
	case document.Object:
		for _, value := range v.Members() {
			if hasContent(value) {
				return true
			}
		}
		return false
	}
	return true
}
