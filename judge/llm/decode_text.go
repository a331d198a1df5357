package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

type choice struct {
	finish  string
	refusal string
	// calls holds the arguments of each call of the verdict tool, other counts calls of other tools, and
	// content is the message's text.
	calls   []string
	other   int
	content string
	thought bool   // the message has thinking apart from the text
	fail    *Error // the choice cannot be read at all
}

// decode prefers a tool call to text, and never reads the model's thinking.
func (c choice) decode(nonce string) (Answer, deviations, *Error) {
	switch {
	case c.fail != nil:
		return Answer{}, deviations{}, c.fail
	case c.finish == "content_filter":
		return Answer{}, deviations{}, &Error{Class: ClassFilter, Message: "the endpoint's content filter stopped the answer"}
	case strings.TrimSpace(c.refusal) != "":
		return Answer{}, deviations{}, &Error{Class: ClassRefusal, Message: "the model refuses to judge this"}
	case c.finish == "error":
		return Answer{}, deviations{}, &Error{Class: ClassUpstream, Message: "the endpoint ended the answer with an error"}
	}
	answer, how, fail := c.parse(nonce)
	if c.finish == "length" || c.finish == "max_tokens" {
		how.lenient = true
		if fail != nil && (fail.Class == ClassEmpty || fail.Class == ClassMalformed) {
			fail = truncatedError()
		}
	}
	return answer, how, fail
}

// deviations describes how an answer deviates from the requested form: lenient means in any way, picked means
// that it was taken from a longer text.
type deviations struct{ lenient, picked bool }

func (c choice) parse(nonce string) (Answer, deviations, *Error) {
	if len(c.calls) > 0 {
		var found candidates
		for _, arguments := range c.calls {
			found.add(arguments, nonce)
		}
		found.lenient = found.lenient || len(c.calls) > 1
		answer, how, fail := found.takeSingle()
		if fail != nil {
			fail.Err = nil // a call of the tool follows the form, whatever its arguments
		}
		return answer, how, fail
	}
	text := answerText(c.content)
	if text == "" {
		if c.other > 0 {
			return Answer{}, deviations{}, malformedError("the model called an unknown tool")
		}
		fail := &Error{Class: ClassEmpty, Message: "the model answered nothing"}
		if c.thought || strings.TrimSpace(c.content) != "" {
			fail.Message = "the model answered nothing but its thinking, which is not read"
			fail.Advice = "turn its thinking off (LLM_JUDGE_THINKING_MODE=off); or turn off the server's reasoning parser if it mistakes the verdict for thinking"
		}
		return Answer{}, deviations{}, fail
	}
	var found candidates
	found.lenient = text != strings.TrimSpace(c.content)
	found.picked = found.lenient
	found.add(text, nonce)
	return found.takeSingle()
}

func truncatedError() *Error { return &Error{Class: ClassTruncated, Message: "the answer was cut off"} }

func malformedError(message string) *Error { return &Error{Class: ClassMalformed, Message: message} }

// errNoVerdict reports that no tool was called and the text contains no verdict.
var errNoVerdict = errors.New("no verdict")

func withoutVerdict(message string) *Error {
	return &Error{Class: ClassMalformed, Message: message, Err: errNoVerdict}
}

// Markers of thinking that servers leave in the text.
var (
	thinkEnd = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)</(?:think|thinking|thought|reasoning)>|\[/THINK\]`)
	})
	thinkBegin = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)<(?:think|thinking|thought|reasoning)>|\[THINK\]`)
	})
)

const (
	harmonyChannel = "<|channel|>"
	harmonyFinal   = "<|channel|>final"
	harmonyMessage = "<|message|>"
)

// answerText removes the model's thinking. A text that is JSON as a whole has no thinking around it, whatever
// its strings contain.
func answerText(text string) string {
	text = strings.TrimSpace(text)
	if json.Valid([]byte(text)) {
		return text
	}
	if strings.Contains(text, harmonyChannel) {
		text = finalChannel(text)
	}
	if ends := thinkEnd().FindAllStringIndex(text, -1); ends != nil {
		text = text[ends[len(ends)-1][1]:]
	}
	if begin := thinkBegin().FindStringIndex(text); begin != nil {
		text = text[:begin[0]] // without an end tag, everything after it is thinking
	}
	return strings.TrimSpace(text)
}

// finalChannel returns the last final message of the harmony format, or "".
func finalChannel(text string) string {
	at := strings.LastIndex(text, harmonyFinal)
	if at < 0 {
		return ""
	}
	_, text, ok := strings.Cut(text[at:], harmonyMessage)
	if !ok {
		return ""
	}
	for _, end := range []string{"<|end|>", "<|return|>", "<|start|>", "<|call|>"} {
		text, _, _ = strings.Cut(text, end)
	}
	return text
}

var fence = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?s)^(?:```|~~~)[A-Za-z0-9]*\\s*\\n(.*?)\\n?(?:```|~~~)$")
})

func stripFence(text string) (string, bool) {
	m := fence().FindStringSubmatch(text)
	if m == nil || strings.Contains(m[1], "```") || strings.Contains(m[1], "~~~") {
		return "", false
	}
	return strings.TrimSpace(m[1]), true
}

type candidates struct {
	answers []Answer
	deviations
	fault *Error // the first mistake
}

func (c *candidates) add(text, nonce string) {
	text = strings.TrimSpace(text)
	if inner, ok := stripFence(text); ok {
		text, c.lenient = inner, true
	}
	if v, err := parseJSON([]byte(text)); err == nil {
		if v.Kind() == document.Array && v.Len() == 1 {
			v, c.lenient = v.At("0"), true
		}
		if v.Kind() == document.Object {
			if !c.addVerdict(v, nonce, true) && c.fault == nil {
				c.fault = withoutVerdict("the answer is JSON without a verdict")
			}
			return
		}
	}
	c.lenient, c.picked = true, true
	objects, unended := objectsIn(text)
	if unended {
		c.fault = withoutVerdict("the answer has unterminated JSON")
		return
	}
	taken := false
	for _, raw := range objects {
		v, err := parseJSON([]byte(raw))
		if err != nil {
			// This may have been the verdict.
			c.fault = withoutVerdict("the answer has invalid JSON: " + cleanText(err.Error(), 80))
			return
		}
		taken = c.addVerdict(v, nonce, false) || taken
	}
	if !taken && c.fault == nil {
		c.fault = withoutVerdict("the answer has no verdict")
	}
}

// addVerdict reports whether an object is a verdict. If there is a nonce, the verdict must repeat it. The
// exception is a rejection without criteria that is the whole answer: endpoints with their own answer form
// were not asked for a nonce, and a rejection cannot approve anything.
func (c *candidates) addVerdict(o document.JSON, nonce string, whole bool) bool {
	if !looksLikeVerdict(o) {
		var in document.JSON
		for _, in = range o.Members() {
		}
		if o.Len() != 1 || !looksLikeVerdict(in) {
			return false
		}
		o, c.lenient = in, true // wrapped in one object, often under the schema's name
	}
	answer, lenient, fail := readAnswer(o)
	if nonce != "" {
		got, err := getMember(o, "nonce")
		refuses := whole && got.Kind() == 0 && fail == nil && !answer.Approved && answer.NoCriteria
		if err != nil || !got.Is(nonce) && !refuses {
			return false
		}
		lenient = lenient || refuses
	}
	if fail != nil {
		if c.fault == nil {
			c.fault = fail
		}
		return true
	}
	c.answers, c.lenient = append(c.answers, answer), c.lenient || lenient
	return true
}

func looksLikeVerdict(o document.JSON) bool {
	return hasMember(o, "approved") || hasMember(o, "confidence")
}

func (c *candidates) takeSingle() (Answer, deviations, *Error) {
	if c.fault != nil {
		return Answer{}, deviations{}, c.fault
	}
	for _, a := range c.answers[1:] {
		if !a.equal(c.answers[0]) {
			return Answer{}, deviations{}, &Error{Class: ClassAmbiguous, Message: "the answer has several different verdicts"}
		}
	}
	a := c.answers[0]
	if a.Approved && len(a.Violations) > 0 {
		return Answer{}, deviations{}, &Error{Class: ClassInconsistent, Message: "the answer approves but lists violations"}
	}
	return a, deviations{c.lenient || len(c.answers) > 1, c.picked}, nil
}

type decodedReply struct {
	Answer Answer
	// Lenient: unambiguous, but not in the requested form.
	Lenient bool
	// Picked: the verdict was taken from a longer text. Without a nonce, the model may only be quoting it.
	Picked bool
	// Text is the answer to a dialogue; then there is no Answer.
	Text               string
	Model, Fingerprint string
	Usage              *Usage
}

// Decode reads one recorded answer as the judge does. The second result is true if the answer was clear but
// not in the requested form. The error is an *Error.
func Decode(x Exchange) (Answer, bool, error) {
	read, err := readExchange(x.Status, headerOf(x.Headers), []byte(x.Body), x.Nonce, time.Now())
	if fail := asError(err); fail != nil {
		fail.Advice = fail.advice()
	}
	return read.Answer, read.Lenient, err
}

func headerOf(recorded map[string]string) http.Header {
	header := make(http.Header, len(recorded))
	for name, value := range recorded {
		header.Set(name, value)
	}
	return header
}

// readExchange reads one HTTP answer, which must repeat nonce unless it is "". A date in Retry-After is
// relative to now.
func readExchange(status int, header http.Header, body []byte, nonce string, now time.Time) (decodedReply, error) {
	if status < 200 || status > 299 {
		return decodedReply{}, classifyResponse(status, header, body, now)
	}
	env, fail := openEnvelope(status, header, body, now)
	if fail != nil {
		return decodedReply{}, fail
	}
	read := decodedReply{Model: env.model, Fingerprint: env.fingerprint, Usage: env.usage}
	for i, c := range env.choices {
		answer, how, fail := c.decode(nonce)
		if fail != nil {
			fail.Usage = env.usage
			return decodedReply{}, fail
		}
		if i > 0 && !answer.equal(read.Answer) {
			return decodedReply{}, &Error{Class: ClassAmbiguous, Message: "the endpoint gave several different answers", Usage: env.usage}
		}
		read.Answer, read.Lenient, read.Picked = answer, read.Lenient || how.lenient || i > 0, read.Picked || how.picked
	}
	return read, nil
}

// readDialogue returns the plain text of the first choice, without the model's thinking.
func readDialogue(status int, header http.Header, body []byte, now time.Time) (decodedReply, error) {
	if status < 200 || status > 299 {
		return decodedReply{}, classifyResponse(status, header, body, now)
	}
	env, fail := openEnvelope(status, header, body, now)
	if fail != nil {
		return decodedReply{}, fail
	}
	c := env.choices[0]
	text := answerText(c.content)
	switch {
	case c.fail != nil:
		fail = c.fail
	case c.finish == "content_filter":
		fail = &Error{Class: ClassFilter, Message: "the endpoint's content filter stopped the answer"}
	case strings.TrimSpace(c.refusal) != "":
		fail = &Error{Class: ClassRefusal, Message: "the model refuses to answer this"}
	case c.finish == "error":
		fail = &Error{Class: ClassUpstream, Message: "the endpoint ended the answer with an error"}
	case c.finish == "length" || c.finish == "max_tokens":
		fail = truncatedError()
	case text == "":
		fail = &Error{Class: ClassEmpty, Message: "the model answered nothing"}
	default:
		return decodedReply{Text: text, Model: env.model, Fingerprint: env.fingerprint, Usage: env.usage}, nil
	}
	fail.Usage = env.usage
	return decodedReply{}, fail
}

const maxDepth = 64

func parseJSON(raw []byte) (document.JSON, error) {
	return document.ReadJSON(raw, document.Limits{Bytes: len(raw) + 1, Depth: maxDepth, Lax: true})
}

// getMember returns the value of a key, absent if there is none. It fails for a duplicate key or one in
// another case, because the object is then ambiguous.
func getMember(o document.JSON, key string) (value document.JSON, err error) {
	for name, v := range o.Members() {
		switch is := name.Text(); {
		case is == key && value.Kind() == 0:
			value = v
		case is == key:
			return document.JSON{}, fmt.Errorf("duplicate key %q", key)
		case strings.EqualFold(is, key):
			return document.JSON{}, fmt.Errorf("%q is written as %q", key, cleanText(is, 40))
		}
	}
	return value, nil
}

func hasMember(o document.JSON, key string) bool {
	for name := range o.Members() {
		if strings.EqualFold(name.Text(), key) {
			return true
		}
	}
	return false
}

func isSet(v document.JSON) bool { return v.Kind() != 0 && v.Kind() != document.Null }

// objectsIn returns the outermost objects in a text, ignoring braces in strings. unended reports an object
// without an end. It scans each byte once.
func objectsIn(text string) (found []string, unended bool) {
	depth, begin, inString := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case inString:
			inString = c != '"'
		case depth > 0 && c == '"':
			inString = true
		case c == '{':
			if depth == 0 {
				begin = i
			}
			depth++
		case c == '}' && depth > 0:
			if depth--; depth == 0 {
				found = append(found, text[begin:i+1])
			}
		}
	}
	return found, depth > 0
}
