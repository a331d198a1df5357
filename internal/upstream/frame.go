package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/validators/document"
)

// maxFrame limits one message of an upstream, in bytes. Clients over stdio disconnect at 10 MiB.
const maxFrame = 8 << 20

// frame is one message of an upstream.
type frame struct {
	id     string // the JSON literal; "" for a notification
	method string
	// In a response, exactly one of result and failure is set, to the bytes received. line is the whole message.
	params, result, failure, line json.RawMessage
}

func (f frame) isResponse() bool { return f.result != nil || f.failure != nil }

var errFrame = errors.New("the message is not JSON-RPC 2.0")

// answerError explains why an answer cannot be used. id is its request's id, or "".
type answerError struct{ id, text string }

func (e *answerError) Error() string { return e.text }

func (e *answerError) failure() *linkError {
	return &linkError{code: CodeProtocol, text: e.text, mayHaveRun: true}
}

// parseFrame parses one message. Where gavel itself depends on the content, it rejects ambiguous JSON. The rest of a
// result is left to the client. The error for an answer is an *answerError, or wraps a *document.Issue if the message
// is not acceptable JSON.
func parseFrame(raw []byte) (frame, error) {
	v, err := document.ReadJSON(raw, document.Limits{Bytes: maxFrame, Depth: maxDepth, Lax: true, Spaced: true})
	if err != nil {
		return frame{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	result, failure, method := v.Get("result"), v.Get("error"), v.Get("method").Text()
	if failure.Kind() == document.Null {
		failure = document.JSON{}
	}
	if result.Kind() == document.Null && failure.Kind() != 0 {
		result = document.JSON{}
	}
	isAnswer := result.Kind() != 0 || failure.Kind() != 0
	f := frame{id: readID(v.Get("id"), isAnswer), method: method, params: v.Get("params").Raw(), result: result.Raw(), failure: failure.Raw(), line: raw}
	isVersion := v.Get("jsonrpc").Is("2.0")
	switch {
	case !isAnswer && (method == "" || !isVersion || v.Duplicate().Kind() != 0), isAnswer && method != "":
		return frame{}, errFrame
	case !isAnswer:
		return f, nil
	}
	if text := findAnswerFault(v, result, failure); text != "" {
		return frame{}, &answerError{f.id, text}
	}
	return f, nil
}

// findAnswerFault returns why an answer cannot be used, or "".
func findAnswerFault(v, result, failure document.JSON) string {
	switch isError := result.Get("isError"); {
	case !v.Get("jsonrpc").Is("2.0"):
		return `the answer has no "jsonrpc": "2.0"`
	case v.Duplicate().Kind() != 0:
		return "the answer has a duplicate key " + shortenKey(v.Duplicate().Text())
	case result.Kind() != 0 && failure.Kind() != 0:
		return "the answer has both a result and an error"
	case failure.Kind() != 0 && failure.Kind() != document.Object:
		return fmt.Sprintf("the error of the answer is %s, not an object", failure.Kind())
	case failure.Kind() != 0:
		return ""
	case result.Kind() != document.Object:
		return fmt.Sprintf("the result is %s, not an object", result.Kind())
	case result.Duplicate().Kind() != 0:
		return "the result has a duplicate key " + shortenKey(result.Duplicate().Text())
	case isError.Kind() != 0 && isError.Kind() != document.Null && isError.Kind() != document.True && isError.Kind() != document.False:
		return fmt.Sprintf("isError of the result is %s, not a boolean", isError.Kind())
	}
	if err := checkCase(result, "isError"); err != nil {
		return "in the result " + err.Error()
	}
	return ""
}

// readID returns the literal of an id, or "" if there is none. In an answer, it also accepts gavel's numbers as other
// libraries write them: as a string or a float.
func readID(id document.JSON, isAnswer bool) string {
	switch literal := string(id.Raw()); {
	case id.Kind() != document.Number && id.Kind() != document.String:
		return ""
	case !isAnswer:
		return literal
	case id.Kind() == document.String && idNumber().MatchString(id.Text()):
		return id.Text()
	default:
		return strings.TrimSuffix(literal, ".0")
	}
}

// idNumber matches ids that gavel may have issued.
var idNumber = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[1-9][0-9]{0,18}$`) })

// message is one message to an upstream.
type message struct {
	id      int64 // 0 for a notification
	method  string
	params  json.RawMessage
	headers map[string]string // used over HTTP only
}

// encode returns the message on one line. Line breaks in JSON are always white space, so they can be replaced.
func (m message) encode() []byte {
	b := []byte(`{"jsonrpc":"2.0"`)
	if m.id != 0 {
		b = strconv.AppendInt(append(b, `,"id":`...), m.id, 10)
	}
	b = document.AppendQuote(append(b, `,"method":`...), m.method)
	if m.params != nil {
		b = append(append(b, `,"params":`...), m.params...)
	}
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
	return append(b, '}')
}

// errTooLong is returned for a line longer than maxFrame.
var errTooLong = errors.New("the message is too long to be passed on")

// maxOverlong limits the bytes that next skips of a line that is too long. After that, reading fails.
const maxOverlong = 512 << 20

// lineReader reads lines of at most maxFrame bytes.
type lineReader struct{ r *bufio.Reader }

// next returns the next line without its end. For a line that is too long, it returns the line's beginning and end
// with errTooLong, and continues after that line on the next call. The result is valid until the next call. Text
// after the last line end is dropped.
func (l lineReader) next(buf []byte) ([]byte, error) {
	const edge = 256
	buf = buf[:0]
	skipped := 0
	for {
		part, err := l.r.ReadSlice('\n')
		if len(buf)+len(part) > maxFrame+1 || skipped > 0 {
			skipped += len(part)
			if len(buf) > 2*edge {
				buf = slices.Delete(buf, edge, len(buf)-edge)
			}
			buf = append(buf, part...)
			if len(buf) > 2*edge {
				buf = slices.Delete(buf, edge, len(buf)-edge)
			}
		} else {
			buf = append(buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && skipped < maxOverlong:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return buf, io.ErrShortBuffer
		case err != nil:
			return nil, err
		case skipped > 0:
			return bytes.TrimRight(buf, "\r\n"), errTooLong
		}
		return bytes.TrimRight(buf, "\r\n"), nil
	}
}

// requestStart matches the beginning of a request or notification.
var requestStart = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*[^,{}\[\]]*,\s*)*"method"\s*:`)
})

// explainUnreadable returns the failure for an answer that parseFrame rejected. The id of the request is "" if
// unknown. Lines that are not an answer yield nil: they are noise, for example from npm.
func explainUnreadable(line []byte, err error) (id string, failure *linkError) {
	if wrong, ok := errors.AsType[*answerError](err); ok {
		return wrong.id, wrong.failure()
	}
	issue, ok := errors.AsType[*document.Issue](err)
	if !ok || !bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) || requestStart().Match(line) {
		return "", nil
	}
	const edge = 256
	edges := line
	if len(line) > 2*edge {
		edges = slices.Concat(line[:edge], line[len(line)-edge:])
	}
	if id = guessID(edges); id == "" && (issue.Rule != document.RuleDepth || bytes.Contains(line, []byte(`"method"`))) {
		return "", nil
	}
	return id, newUnreadable(issue)
}

// newUnreadable returns the failure for an answer that is not acceptable JSON.
func newUnreadable(issue *document.Issue) *linkError {
	return &linkError{code: CodeProtocol, text: "the answer cannot be read: " + issue.Message, mayHaveRun: true, err: issue}
}

// idAtEdge matches an id in its usual places in a message: first or last.
var idAtEdge = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?([0-9]+)"?\s*,|"id"\s*:\s*"?([0-9]+)"?\s*\}\s*$`)
})

// guessID returns the id of a message of which only the beginning and the end are known, or "" if it is not in a
// usual place.
func guessID(edges []byte) string {
	found := idAtEdge().FindSubmatch(edges)
	if found == nil {
		return ""
	}
	return string(slices.Concat(found[1], found[2]))
}

// rewriteMembers copies an object with members replaced, removed (nil) or added. Everything else stays byte for byte,
// except white space between members.
func rewriteMembers(raw json.RawMessage, replace map[string]json.RawMessage) json.RawMessage {
	out := []byte{'{'}
	add := func(name, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	seen := map[string]bool{}
	for name, value := range readChecked(raw).Members() {
		text := name.Text()
		with, ours := replace[text]
		switch seen[text] = true; {
		case !ours:
			add(name.Raw(), value.Raw())
		case with != nil:
			add(name.Raw(), with)
		}
	}
	for _, name := range sortedKeys(replace) {
		if !seen[name] && replace[name] != nil {
			add(document.AppendQuote(nil, name), replace[name])
		}
	}
	return append(out, '}')
}
