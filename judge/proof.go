package judge

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/shown"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Proof is what code requires of the quote that a model gives for a criterion it calls met. The zero Proof
// requires the default: DefaultMinWords words or a whole value, from any document.
type Proof struct {
	// Basis is optional. BasisEvidence requires a quote from the fetched evidence; without one the criterion
	// is not met, whatever the model answers.
	Basis string `json:"basis,omitempty"`
	// MinWords is the minimum number of words in the quote; 0 means DefaultMinWords, or a whole value
	// that has fewer.
	MinWords int `json:"minWords,omitempty"`
	// Figure requires a digit.
	Figure bool `json:"figure,omitempty"`
	// Pattern is a regular expression (RE2) that the quote must match.
	Pattern string `json:"pattern,omitempty"`
	// From is where the quote must come from: a document (data, context, evidence) or a JSON pointer that
	// begins with one, such as /data/comments. "" means anywhere.
	From string `json:"from,omitempty"`
}

// DefaultMinWords is about the length of a clause. Fewer words prove little, unless they are a whole value.
const DefaultMinWords = 4

// wholeValue asks a model to quote a whole value if no document has DefaultMinWords words.
const wholeValue = " [quote: a whole value, however short]"

// minWords returns how many words a quote needs, unless it is a whole value.
func (p Proof) minWords() int { return cmp.Or(p.MinWords, DefaultMinWords) }

// isShort reports whether no document that can prove a criterion has DefaultMinWords words.
func (p Proof) isShort(docs shown.Documents) bool {
	from := p.sources(docs)
	return len(from) > 0 && !slices.ContainsFunc(from, func(d shown.Document) bool { return countWords(d.Quotable()) >= DefaultMinWords })
}

// sources returns the documents, or the parts of them, that a quote can come from.
func (p Proof) sources(docs shown.Documents) shown.Documents {
	if from := p.source(); from != "" {
		return docs.Within(from)
	}
	return docs
}

// source returns the document or pointer that the quote must come from.
func (p Proof) source() string {
	if p.Basis == BasisEvidence && !strings.HasPrefix(p.From, "/"+shown.Evidence+"/") {
		return shown.Evidence
	}
	return p.From
}

// DataField returns the top-level field of the data that the quote must come from, "" for any field.
// isData is false if the quote must come from another document.
func (p Proof) DataField() (field string, isData bool) {
	from := p.source()
	if p == (Proof{}) || from != "" && from != shown.Data && !strings.HasPrefix(from, "/"+shown.Data+"/") {
		return "", false
	}
	tokens := slices.Collect(document.Pointer(strings.TrimPrefix(from, "/"+shown.Data)).Tokens())
	if !strings.HasPrefix(from, "/") || len(tokens) == 0 {
		return "", true
	}
	return tokens[0], true
}

// ValueBound describes the possible values of a field: all of them, or their maximum length in
// runes. The zero ValueBound means that nothing is known.
type ValueBound struct {
	Values   []string
	MaxRunes int
}

// CanMeet reports whether a quote from these fields can satisfy the proof. keyed allows quotes that
// include the keys.
func (p Proof) CanMeet(fields map[string]ValueBound, keyed bool) bool {
	pattern, err := regexp.Compile(p.Pattern)
	words, figure, matches := 0, !p.Figure, p.Pattern == "" || err != nil
	for key, b := range fields {
		if len(b.Values) == 0 {
			if b.MaxRunes == 0 {
				return true
			}
			words, figure, matches = words+(b.MaxRunes+1)/2, true, true
		}
		most := 0
		for _, value := range b.Values {
			quote := value
			if keyed {
				quote = fmt.Sprintf("%q:%q", key, value)
			}
			most, figure = max(most, countWords(value)), figure || strings.ContainsFunc(quote, unicode.IsDigit)
			matches = matches || pattern.MatchString(quote) || pattern.MatchString(value)
		}
		if words += most; keyed {
			words += countWords(key)
		}
	}
	return words >= p.MinWords && figure && matches
}

// EvidenceOnly returns the first criterion that only a quote from fetched evidence proves, "" for none.
func (r Rubric) EvidenceOnly() string {
	for _, text := range r.Criteria {
		if r.Terms[text].Advisory {
			continue
		}
		if from := strings.TrimPrefix(r.Proofs[text].source(), "/"); from == shown.Evidence || strings.HasPrefix(from, shown.Evidence+"/") {
			return text
		}
	}
	return ""
}

// describe describes the required quote, for a model and for people; "" for the default.
func (p Proof) describe() string {
	var demands []string
	if from := p.source(); from != "" {
		demands = append(demands, "from "+from)
	}
	if p.MinWords > 0 {
		demands = append(demands, fmt.Sprintf("of at least %d words", p.MinWords))
	}
	if p.Figure {
		demands = append(demands, "with a figure")
	}
	if p.Pattern != "" {
		demands = append(demands, "matching "+p.Pattern)
	}
	return strings.Join(demands, ", ")
}

// describeCriterion returns a criterion's text with the proof that it requires.
func (p Proof) describeCriterion(text string) string {
	if demand := p.describe(); demand != "" {
		return text + " [quote: " + demand + "]"
	}
	return text
}

// explainMissing explains why a quote from the documents fails the proof, "" if it satisfies it.
func (p Proof) explainMissing(quote string, docs shown.Documents, leastWords int) string {
	docs = p.sources(docs)
	if from := p.source(); from != "" {
		if ok, _ := docs.Contains(quote); !ok {
			return "its quote does not appear in " + from
		}
	}
	if n := countWords(quote); n < leastWords && (p.MinWords > 0 || len(docs.FindWhole(quote)) == 0) {
		return fmt.Sprintf("its quote has %d of the %d required words", n, leastWords)
	}
	if p.Figure && !strings.ContainsFunc(quote, unicode.IsDigit) {
		return "its quote has no figure"
	}
	if p.Pattern == "" {
		return ""
	}
	pattern, err := regexp.Compile(p.Pattern)
	switch {
	case err != nil: // such a definition is rejected earlier
		return "the pattern of its proof does not compile"
	case !pattern.MatchString(quote):
		return "its quote does not match " + p.Pattern
	}
	return ""
}

// unprovenStatus returns the status of a criterion that is not proven.
func (p Proof) unprovenStatus() string {
	if p.Basis == BasisEvidence {
		return llm.StatusNotMet
	}
	return llm.StatusCannotAssess
}

// countWords counts words: runs of letters and digits, which a single punctuation mark may join (12.5,
// e-mail). In scripts without spaces, two characters count as a word.
func countWords(s string) int {
	words, dense, inWord, joiner := 0, 0, false, false
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar):
			dense++
			inWord, joiner = false, false
		case unicode.In(r, unicode.L, unicode.M, unicode.N):
			if !inWord {
				words++
			}
			inWord, joiner = true, false
		case inWord && !joiner && strings.ContainsRune(".,-'’", r):
			joiner = true
		default:
			inWord, joiner = false, false
		}
	}
	return words + (dense+1)/2
}

// sameQuote returns a string that is equal for quotes with only superficial differences.
func sameQuote(quote string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.L, unicode.M, unicode.N) {
			return r
		}
		return -1
	}, quote))
}
