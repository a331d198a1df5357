package llm

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/validators/document"
)

// CassetteMode selects how a Cassette handles requests.
type CassetteMode string

// The modes of a Cassette.
const (
	// CassetteReplay sends nothing; a request that is not in the file is an error.
	CassetteReplay CassetteMode = "replay"
	// CassetteRecord sends every request and starts a new file.
	CassetteRecord CassetteMode = "record"
	// CassetteRecordMissing answers from the file, and sends and records requests that are not in it.
	CassetteRecordMissing CassetteMode = "record-missing"
)

var cassetteFlags = map[CassetteMode]int{
	CassetteReplay:        os.O_RDONLY,
	CassetteRecord:        os.O_CREATE | os.O_RDWR | os.O_APPEND | os.O_TRUNC,
	CassetteRecordMissing: os.O_CREATE | os.O_RDWR | os.O_APPEND,
}

// ErrCassetteMiss reports a request that is not in the cassette.
var ErrCassetteMiss = errors.New("the cassette does not contain this request")

const (
	cassetteVersion = 1
	maxRecorded     = 8 << 20  // length of an answer, in bytes
	maxCassetteLine = 64 << 20 // an answer with its request, escaped
)

// Cassette is a Doer that records exchanges in a file and replays them. The file maps hashes of requests to
// answers, one JSON object on each line.
//
// The hash covers the method, the path, the body (as canonical JSON) and how many times the same request
// was made before. So the n-th identical request gets the n-th recorded answer. Failures without an answer
// are recorded as their class; cancellation by the caller is not recorded.
//
// The file never contains request headers. Text that looks like a key, and the key of the request itself, are
// redacted before anything is written. A Cassette is safe for concurrent use.
type Cassette struct {
	path string
	mode CassetteMode
	next Doer

	mu      sync.Mutex
	file    *os.File // nil if nothing is written
	closed  bool
	entries []*cassetteEntry
	byKey   map[string]*cassetteEntry
	asked   map[string]int // number of times that each request was made
}

type cassetteEntry struct {
	used bool
	V    int             `json:"v"`
	Key  string          `json:"key"`
	Req  cassetteRequest `json:"req"`
	Res  cassetteAnswer  `json:"res"`
	Rec  map[string]any  `json:"rec"` // for human readers; not used
}

type cassetteRequest struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Host   string `json:"host"` // not part of the key
	// Body is canonical JSON. A body that is not JSON is stored as a JSON string.
	Body json.RawMessage `json:"body"`
	// Try is the value of WithTry.
	Try int `json:"try,omitempty"`
}

type tryKey struct{}

// WithTry marks the n-th attempt (from 0) at a question that got no answer. A cassette stores these
// requests separately, so that recordings with retries and recordings without retries both replay as
// recorded.
func WithTry(ctx context.Context, n int) context.Context { return context.WithValue(ctx, tryKey{}, n) }

// cassetteAnswer is a status with a body, or the class of a failure.
type cassetteAnswer struct {
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // lower-case names
	Body    string            `json:"body,omitempty"`
	Body64  []byte            `json:"body64,omitempty"` // for a body that is not UTF-8
	Class   Class             `json:"class,omitempty"`
	Message string            `json:"message,omitempty"`
}

// OpenCassette opens the file at path. For replay it must exist; recording creates it, readable only by its
// owner. next sends requests that are not replayed; it may be nil for replay.
func OpenCassette(path string, mode CassetteMode, next Doer) (*Cassette, error) {
	c := &Cassette{path: path, mode: mode, next: next, byKey: map[string]*cassetteEntry{}, asked: map[string]int{}}
	flags, known := cassetteFlags[mode]
	switch {
	case !known:
		return nil, fmt.Errorf("unknown cassette mode %q; use replay, record or record-missing", mode)
	case next == nil && mode != CassetteReplay:
		return nil, fmt.Errorf("cassette mode %s needs a client to send requests", mode)
	}
	f, err := os.OpenFile(path, flags, 0o600)
	switch {
	case errors.Is(err, os.ErrNotExist) && mode == CassetteReplay:
		return nil, fmt.Errorf("cassette %s does not exist; record it first", path)
	case err != nil:
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

// load checks each request against its hash, so that an edited request is not accepted as the recorded one. A
// request with a redacted secret has a different hash and is trusted. The error names the line and the remedy.
func (c *Cassette) load(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxCassetteLine)
	recorded := map[string]int{}
	for lines.Scan() {
		number := len(c.entries) + 1
		e := &cassetteEntry{}
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(e); err != nil || dec.More() || len(e.Req.Body) == 0 || (e.Res.Class == "") == (e.Res.Status < 100 || e.Res.Status > 999) {
			return fmt.Errorf("line %d is not a complete cassette entry; delete it and record the missing answers", number)
		}
		if e.V != cassetteVersion {
			return fmt.Errorf("line %d: unknown version %d; this program reads version %d", number, e.V, cassetteVersion)
		}
		id := cassetteRequest{Method: e.Req.Method, Path: e.Req.Path, Body: canonicalBody(e.Req.Body), Try: e.Req.Try}.id()
		isRedacted := bytes.Contains(e.Req.Body, []byte(redacted))
		if c.byKey[e.Key] != nil || !isRedacted && e.Key != requestKey(id, recorded[id]) {
			return fmt.Errorf("line %d: the key is a duplicate or not that of the request; delete the line and record the request again", number)
		}
		recorded[id]++
		c.add(e)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d cannot be read: %w", len(c.entries)+1, err)
	}
	return nil
}

func (c *Cassette) add(e *cassetteEntry) {
	c.byKey[e.Key] = e
	c.entries = append(c.entries, e)
}

// Do answers a request from the file, or sends and records it. A miss, or an answer that cannot be recorded,
// is an *Error of ClassConfig; a miss wraps ErrCassetteMiss.
func (c *Cassette) Do(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
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
	try, _ := req.Context().Value(tryKey{}).(int)
	q := cassetteRequest{Method: req.Method, Path: req.URL.EscapedPath(), Host: req.URL.Host, Body: canonicalBody(body), Try: try}
	if c.mode != CassetteRecord {
		if res, err := c.find(req, q); res != nil || err != nil {
			return res, err
		}
	}
	return c.record(req, q)
}

// find answers from the file. It returns nil if the request must be sent.
func (c *Cassette) find(req *http.Request, q cassetteRequest) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, c.fail("it is closed")
	}
	id := q.id()
	n := c.asked[id]
	if e := c.byKey[requestKey(id, n)]; e != nil {
		c.asked[id], e.used = n+1, true
		return e.Res.response(req)
	}
	if c.mode == CassetteRecordMissing {
		return nil, nil
	}
	return nil, &Error{
		Class: ClassConfig, Err: ErrCassetteMiss,
		Message: fmt.Sprintf("the cassette has %d answers to %s, but this is request number %d", n, q.describe(), n+1),
		Advice:  "if the prompt, the model or a setting was meant to change, record the missing answers (mode record-missing)",
	}
}

func (c *Cassette) record(req *http.Request, q cassetteRequest) (*http.Response, error) {
	began := time.Now()
	res, err := c.next.Do(req)
	secrets := secretsOf(req)
	e := &cassetteEntry{V: cassetteVersion, Req: q, used: true}
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
	return res, err
}

// write appends an entry as the next answer to its request, in a single write.
func (c *Cassette) write(e *cassetteEntry, secrets secrets) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.fail("it is closed")
	}
	id := e.Req.id()
	n := 0
	for c.byKey[requestKey(id, n)] != nil {
		n++
	}
	e.Key = requestKey(id, n)
	e.Req.Body = secrets.redactJSON(e.Req.Body)
	line, err := document.Marshal(e)
	if err == nil {
		_, err = c.file.Write(append(line, '\n'))
	}
	if err != nil {
		return c.fail("it cannot be written: " + quoteForeign(err.Error()))
	}
	c.add(e)
	c.asked[id] = max(c.asked[id], n+1)
	return nil
}

func (c *Cassette) fail(why string) *Error {
	return &Error{Class: ClassConfig, Message: "cassette " + quoteForeign(c.path) + ": " + why}
}

// Unused describes the entries that were never replayed.
func (c *Cassette) Unused() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var unused []string
	for i, e := range c.entries {
		if !e.used {
			unused = append(unused, fmt.Sprintf("line %d: %s", i+1, e.Req.describe()))
		}
	}
	return unused
}

// HoldsSystem reports whether the cassette has a request whose system message begins with text.
func (c *Cassette) HoldsSystem(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.entries, func(e *cassetteEntry) bool {
		return strings.HasPrefix(document.ReadTrusted(e.Req.Body).At("messages", "0", "content").Text(), text)
	})
}

// Close ends the recording. All later requests fail.
func (c *Cassette) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	file := c.file
	c.file, c.closed = nil, true
	if file == nil {
		return nil
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("cassette %s: %w", c.path, err)
	}
	return nil
}

func (r cassetteRequest) id() string {
	id := r.Method + "\n" + r.Path + "\n" + string(r.Body)
	if r.Try > 0 {
		id += "\ntry " + strconv.Itoa(r.Try)
	}
	return id
}

// requestKey identifies the n-th occurrence, from 0, of a request.
func requestKey(id string, n int) string {
	sum := sha256.Sum256([]byte(id + "\n" + strconv.Itoa(n)))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// describe describes a request without quoting its prompt.
func (r cassetteRequest) describe() string {
	model := cmp.Or(document.ReadTrusted(r.Body).Get("model").Text(), "no model")
	return fmt.Sprintf("%s %s (%s)", quoteForeign(r.Method), quoteForeign(r.Path), quoteForeign(model))
}

func answerOf(res *http.Response, raw []byte, secrets secrets) cassetteAnswer {
	a := cassetteAnswer{Status: res.StatusCode, Headers: map[string]string{}}
	for name, values := range res.Header {
		// Keep only headers that are needed to read an answer and cannot identify an account or a session.
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
	body := slices.Concat([]byte(a.Body), a.Body64)
	return &http.Response{
		StatusCode: a.Status, Header: headerOf(a.Headers), Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}
