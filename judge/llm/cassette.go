package llm

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/validators/document"
)

// CassetteMode says what a Cassette does with a request.
type CassetteMode string

// The modes of a Cassette.
const (
	// CassetteReplay answers from the file; a request that it does not hold is an error,
	// and nothing is sent.
	CassetteReplay CassetteMode = "replay"
	// CassetteRecord sends everything and begins a new file.
	CassetteRecord CassetteMode = "record"
	// CassetteRecordMissing answers from the file, and sends and adds what it does not hold.
	CassetteRecordMissing CassetteMode = "record-missing"
	// CassetteLive sends everything and touches no file.
	CassetteLive CassetteMode = "live"
)

// ErrCassetteMiss is the error for a request that a cassette does not hold.
var ErrCassetteMiss = errors.New("the cassette does not hold this request")

const (
	cassetteVersion = 1
	maxRecorded     = 8 << 20  // bytes of an answer
	maxCassetteLine = 64 << 20 // an answer, its request, and escapes
)

// Cassette is a Doer that records exchanges in a file and answers from it: a map from the
// hash of a request to its answer, one JSON object a line.
//
// The hash covers the method, the path, the body (as canonical JSON) and how often the same
// request came before: the n-th time, it gets the n-th recorded answer. Host and headers do
// not count. Error answers are recorded too, and failures without an answer as their class;
// a caller that cancelled is not.
//
// The file never contains request headers. Text that looks like a key, and the key that the
// request carried, are redacted before anything is written; of the answer's headers only a
// few are kept. It is safe for concurrent use.
type Cassette struct {
	path string
	mode CassetteMode
	next Doer

	mu      sync.Mutex
	file    *os.File // nil when nothing is written
	closed  bool
	entries []cassetteEntry
	byKey   map[string]int // index into entries
	used    []bool         // like entries
	asked   map[string]int // by request: how often it came
}

type cassetteEntry struct {
	V   int             `json:"v"`
	Key string          `json:"key"`
	Req cassetteRequest `json:"req"`
	Res cassetteAnswer  `json:"res"`
	// Rec describes the recording to a reader; nothing depends on it.
	Rec map[string]any `json:"rec"`
}

type cassetteRequest struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Host   string `json:"host"` // not part of the key
	// Body is canonical JSON; a body that is not JSON is a JSON string.
	Body json.RawMessage `json:"body"`
}

// cassetteAnswer is a status with a body, or the class of a failure.
type cassetteAnswer struct {
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // lower-case names
	Body    string            `json:"body,omitempty"`
	Body64  []byte            `json:"body64,omitempty"` // a body that is not UTF-8
	Class   Class             `json:"class,omitempty"`
	Message string            `json:"message,omitempty"`
}

// OpenCassette opens the file at path. It must exist to replay; recording creates it,
// readable for its owner only. next sends what is not replayed; replay needs none,
// and live needs no path.
func OpenCassette(path string, mode CassetteMode, next Doer) (*Cassette, error) {
	c := &Cassette{path: path, mode: mode, next: next, byKey: map[string]int{}, asked: map[string]int{}}
	flags := os.O_CREATE | os.O_RDWR | os.O_APPEND
	switch mode {
	case CassetteLive:
	case CassetteReplay:
		flags = os.O_RDONLY
	case CassetteRecord:
		flags |= os.O_TRUNC
	case CassetteRecordMissing:
	default:
		return nil, fmt.Errorf("unknown cassette mode %q; use replay, record, record-missing or live", mode)
	}
	if next == nil && mode != CassetteReplay {
		return nil, fmt.Errorf("cassette mode %s needs a client to send requests", mode)
	}
	if mode == CassetteLive {
		return c, nil
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, os.ErrNotExist) && mode == CassetteReplay {
		return nil, fmt.Errorf("cassette %s does not exist; record it first", path)
	}
	if err != nil {
		return nil, fmt.Errorf("cassette: %w", err)
	}
	if mode == CassetteReplay {
		defer f.Close()
	} else {
		c.file, err = f, f.Chmod(0o600)
	}
	if err == nil {
		err = c.load(f)
	}
	if err != nil {
		return nil, fmt.Errorf("cassette %s: %w", path, errors.Join(err, c.Close()))
	}
	return c, nil
}

// load checks the key of each request against its hash, so that an edited request does
// not pass for the recorded one; a request with a redacted secret has another hash and
// is trusted. Its error names the line and what to do.
func (c *Cassette) load(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxCassetteLine)
	recorded := map[string]int{}
	for lines.Scan() {
		number := len(c.entries) + 1
		var e cassetteEntry
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&e); err != nil || dec.More() || len(e.Req.Body) == 0 || (e.Res.Class == "") == (e.Res.Status < 100 || e.Res.Status > 999) {
			return fmt.Errorf("line %d is not a whole cassette entry; delete it and record what is missing", number)
		}
		if e.V != cassetteVersion {
			return fmt.Errorf("line %d: unknown version %d; this program reads version %d", number, e.V, cassetteVersion)
		}
		id := cassetteRequest{Method: e.Req.Method, Path: e.Req.Path, Body: canonicalBody(e.Req.Body)}.id()
		if _, duplicate := c.byKey[e.Key]; duplicate || !isRedacted(e.Req.Body) && e.Key != requestKey(id, recorded[id]) {
			return fmt.Errorf("line %d: the key is a duplicate or not that of the request; delete the line and record the request again", number)
		}
		recorded[id]++
		c.add(e, false)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d cannot be read: %w", len(c.entries)+1, err)
	}
	return nil
}

func isRedacted(body []byte) bool { return bytes.Contains(body, []byte(redacted)) }

func (c *Cassette) add(e cassetteEntry, used bool) {
	c.byKey[e.Key] = len(c.entries)
	c.entries = append(c.entries, e)
	c.used = append(c.used, used)
}

// Do answers a request from the file, or sends and records it. Misses and what cannot
// be recorded are an *Error of ClassConfig; a miss wraps ErrCassetteMiss.
func (c *Cassette) Do(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if c.mode == CassetteLive {
		return c.next.Do(req)
	}
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		if err = errors.Join(err, req.Body.Close()); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	q := cassetteRequest{Method: req.Method, Path: req.URL.EscapedPath(), Host: req.URL.Host, Body: canonicalBody(body)}
	if c.mode != CassetteRecord {
		answer, err := c.find(q)
		if err != nil {
			return nil, err
		}
		if answer != nil {
			return answer.response(req)
		}
	}
	return c.record(req, q)
}

// find looks a request up; nil means that it has to be sent.
func (c *Cassette) find(q cassetteRequest) (*cassetteAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, c.fail("it is closed")
	}
	id := q.id()
	n := c.asked[id]
	if i, ok := c.byKey[requestKey(id, n)]; ok {
		c.asked[id], c.used[i] = n+1, true
		return &c.entries[i].Res, nil
	}
	if c.mode == CassetteRecordMissing {
		return nil, nil
	}
	return nil, &Error{
		Class: ClassConfig, Err: ErrCassetteMiss,
		Message: fmt.Sprintf("the cassette holds %d answers to %s, and this request came %d times", n, q.describe(), n+1),
		Advice:  "record what is missing (mode record-missing) if the prompt, the model or a setting was meant to change",
	}
}

func (c *Cassette) record(req *http.Request, q cassetteRequest) (*http.Response, error) {
	began := time.Now()
	res, err := c.next.Do(req)
	secrets := secretsOf(req)
	e := cassetteEntry{V: cassetteVersion, Req: q}
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(io.LimitReader(res.Body, maxRecorded+1))
		err = errors.Join(err, res.Body.Close())
	}
	switch {
	case err != nil:
		failed, ok := errors.AsType[*Error](transportError(req.Context(), err, req.URL.Host))
		if !ok { // the caller cancelled; our own deadlines end the context with an *Error
			return nil, err
		}
		e.Res = cassetteAnswer{Class: failed.Class, Message: secrets.redact(failed.Message)}
	case len(raw) > maxRecorded:
		return nil, c.fail(fmt.Sprintf("the answer is longer than %d bytes and cannot be recorded", maxRecorded))
	default:
		e.Res = answerOf(res, raw, secrets)
		res.Body = io.NopCloser(bytes.NewReader(raw))
	}
	e.Rec = map[string]any{"at": began.UTC().Truncate(time.Millisecond), "ms": time.Since(began).Milliseconds()}
	if failed := c.write(e, secrets); failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// write appends an entry as the next answer to its request, in one write.
func (c *Cassette) write(e cassetteEntry, secrets secrets) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.fail("it is closed")
	}
	id := e.Req.id()
	n := 0
	for e.Key = requestKey(id, n); ; e.Key = requestKey(id, n) {
		if _, taken := c.byKey[e.Key]; !taken {
			break
		}
		n++
	}
	e.Req.Body = secrets.redactJSON(e.Req.Body)
	line, err := document.Marshal(e)
	if err == nil {
		_, err = c.file.Write(append(line, '\n'))
	}
	if err != nil {
		return c.fail("it cannot be written: " + quoteForeign(err.Error()))
	}
	c.add(e, true)
	c.asked[id] = max(c.asked[id], n+1)
	return nil
}

func (c *Cassette) fail(why string) *Error {
	return &Error{Class: ClassConfig, Message: "cassette " + quoteForeign(c.path) + ": " + why}
}

// Unused describes the entries of the file that answered nothing, in order: requests that
// nobody makes any longer.
func (c *Cassette) Unused() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var unused []string
	for i, e := range c.entries {
		if !c.used[i] {
			unused = append(unused, fmt.Sprintf("line %d: %s", i+1, e.Req.describe()))
		}
	}
	return unused
}

// Close ends the recording. The cassette answers nothing after it.
func (c *Cassette) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.file == nil {
		return nil
	}
	if err := errors.Join(c.file.Sync(), c.file.Close()); err != nil {
		return fmt.Errorf("cassette %s: %w", c.path, err)
	}
	return nil
}

func (q cassetteRequest) id() string { return q.Method + "\n" + q.Path + "\n" + string(q.Body) }

// requestKey identifies the n-th time, from 0, that a request comes.
func requestKey(id string, n int) string {
	sum := sha256.Sum256([]byte(id + "\n" + strconv.Itoa(n)))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// describe names a request without quoting its prompt.
func (q cassetteRequest) describe() string {
	var body struct {
		Model string `json:"model"`
	}
	if err := json.Unmarshal(q.Body, &body); err != nil || body.Model == "" {
		body.Model = "no model"
	}
	return fmt.Sprintf("%s %s (%s)", quoteForeign(q.Method), quoteForeign(q.Path), quoteForeign(body.Model))
}

func answerOf(res *http.Response, raw []byte, secrets secrets) cassetteAnswer {
	a := cassetteAnswer{Status: res.StatusCode, Headers: map[string]string{}}
	for name, values := range res.Header {
		// What reading an answer needs, and nothing that could name an account or a session.
		switch name = strings.ToLower(name); {
		case name == "content-type", name == "date", name == "retry-after", name == "retry-after-ms", name == "x-should-retry",
			strings.HasPrefix(name, "x-ratelimit-"):
			a.Headers[name] = secrets.redact(strings.Join(values, ", "))
		}
	}
	if to, err := res.Location(); err == nil {
		to.User, to.RawQuery, to.Fragment = nil, "", ""
		a.Headers["location"] = secrets.redact(to.String())
	}
	if text := secrets.redactAnswer(raw); utf8.Valid(text) {
		a.Body = string(text)
	} else {
		a.Body64 = text
	}
	return a
}

func (a cassetteAnswer) response(req *http.Request) (*http.Response, error) {
	if a.Class != "" {
		return nil, &Error{Class: a.Class, Message: a.Message}
	}
	body := []byte(a.Body)
	if a.Body64 != nil {
		body = a.Body64
	}
	header := http.Header{}
	for name, value := range a.Headers {
		header.Set(name, value)
	}
	return &http.Response{
		Status: strconv.Itoa(a.Status) + " " + http.StatusText(a.Status), StatusCode: a.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}

// canonicalBody is a body as JSON with sorted keys and without spaces, numbers as written; a
// body that is not JSON becomes a JSON string.
func canonicalBody(body []byte) json.RawMessage {
	return rewriteBody(body, func(s string) string { return s })
}
