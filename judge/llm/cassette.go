package llm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// CassetteMode says what a Cassette does with a request.
type CassetteMode string

// The modes of a Cassette.
const (
	// CassetteReplay answers from the file; what is not in it is an error, and nothing
	// is sent.
	CassetteReplay CassetteMode = "replay"
	// CassetteRecord sends everything and begins the file anew.
	CassetteRecord CassetteMode = "record"
	// CassetteRecordMissing answers from the file, and sends and adds what is not in it.
	CassetteRecordMissing CassetteMode = "record-missing"
	// CassetteLive sends everything and touches no file.
	CassetteLive CassetteMode = "live"
)

// ErrCassetteMiss is what a request comes to that a cassette does not hold.
var ErrCassetteMiss = errors.New("the cassette does not hold this request")

// maxRecorded bounds an answer that can be recorded.
const maxRecorded = 8 << 20

// Cassette is a Doer that records exchanges in a file and answers from it, so that
// what a model once said can be judged again without it.
//
// A request is known by its method, its path, its body (as canonical JSON) and by how
// often it was asked before: the n-th time, it gets the n-th answer recorded for it,
// and a time more than was recorded is a miss, not the last answer once more. The
// host does not count, nor do headers. Error answers are recorded like others, and so
// are failures without an answer, as the class that they were; a caller who went away
// is not.
//
// The file never contains request headers. What looks like a key in a body, and the
// key that the request carried, are replaced before anything is written. Only a few
// answer headers are kept. It is safe for concurrent use.
type Cassette struct {
	path string
	mode CassetteMode
	next Doer

	mu     sync.Mutex
	file   *os.File // nil when nothing is written
	tape   []tapeEntry
	byKey  map[string]int // index into tape
	asked  map[string]int // by question: how often it was answered from the tape
	used   []bool         // like tape
	closed bool
}

// OpenCassette opens the file at path. It must exist to replay; recording creates it,
// readable for its owner only. next sends what is not replayed; replay needs none,
// and live needs no path.
func OpenCassette(path string, mode CassetteMode, next Doer) (*Cassette, error) {
	modes := []CassetteMode{CassetteReplay, CassetteRecord, CassetteRecordMissing, CassetteLive}
	if !slices.Contains(modes, mode) {
		return nil, fmt.Errorf("cassette mode %q is not known; use replay, record, record-missing or live", mode)
	}
	if next == nil && mode != CassetteReplay {
		return nil, fmt.Errorf("cassette mode %s needs a client to send requests with", mode)
	}
	c := &Cassette{path: path, mode: mode, next: next, byKey: map[string]int{}, asked: map[string]int{}}
	if mode == CassetteLive {
		return c, nil
	}
	if mode != CassetteRecord {
		if err := c.load(); err != nil {
			return nil, fmt.Errorf("cassette %s: %w", path, err)
		}
	}
	if mode != CassetteReplay {
		if err := c.create(); err != nil {
			return nil, fmt.Errorf("cassette: %w", err)
		}
	}
	return c, nil
}

// load reads the file; recording what is missing may begin without one.
func (c *Cassette) load() error {
	f, err := os.Open(c.path)
	if errors.Is(err, os.ErrNotExist) {
		if c.mode == CassetteRecordMissing {
			return nil
		}
		return errors.New("there is no such file; record it first")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if c.tape, err = readTape(f); err != nil {
		return err
	}
	for i, e := range c.tape {
		c.byKey[e.Key] = i
	}
	c.used = make([]bool, len(c.tape))
	return nil
}

func (c *Cassette) create() error {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if c.mode == CassetteRecord {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(c.path, flags, 0o600)
	if err != nil {
		return err
	}
	if err := f.Chmod(0o600); err != nil {
		return errors.Join(err, f.Close())
	}
	c.file = f
	return nil
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
	body, err := takeBody(req)
	if err != nil {
		return nil, err
	}
	q := questionOf(req, body)
	if c.mode != CassetteRecord {
		e, found, err := c.find(q)
		if err != nil {
			return nil, err
		}
		if found {
			return e.Res.replay(req)
		}
	}
	return c.record(req, q)
}

// find looks a question up. Not found is an error when replaying.
func (c *Cassette) find(q tapeQuestion) (tapeEntry, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return tapeEntry{}, false, c.unusable("it is closed")
	}
	id := q.id()
	n := c.asked[id]
	if i, ok := c.byKey[q.key(n)]; ok {
		c.asked[id], c.used[i] = n+1, true
		return c.tape[i], true, nil
	}
	if c.mode == CassetteReplay {
		return tapeEntry{}, false, &Error{
			Class: ClassConfig, Err: ErrCassetteMiss,
			Message: "the cassette holds no answer to " + q.Method + " " + printable(q.Path) + ": " + missed(q, n, c.tape),
			Advice:  "record what is missing (mode record-missing) if the question was meant to change",
		}
	}
	return tapeEntry{}, false, nil
}

// record sends a request and writes down what came of it.
func (c *Cassette) record(req *http.Request, q tapeQuestion) (*http.Response, error) {
	began := time.Now()
	res, err := c.next.Do(req)
	e := tapeEntry{V: tapeVersion, Req: q, Rec: recording{At: began.UTC().Truncate(time.Millisecond)}}
	secrets := secretsOf(req)
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(io.LimitReader(res.Body, maxRecorded+1))
		err = errors.Join(err, res.Body.Close())
	}
	switch {
	case err != nil:
		failed, ok := failure(req.Context(), err, req.URL.Host)
		if !ok {
			return nil, err
		}
		e.Res = tapeAnswer{Class: failed.Class, Message: secrets.redact(failed.Message)}
	case len(raw) > maxRecorded:
		return nil, c.unusable(fmt.Sprintf("the answer is longer than %d bytes and cannot be recorded", maxRecorded))
	default:
		e.Res = answerOf(res, raw, secrets)
		e.Rec.Model, e.Rec.Fingerprint = reportedIn(raw, secrets)
		res.Body = io.NopCloser(bytes.NewReader(raw))
	}
	e.Rec.Millis = time.Since(began).Milliseconds()
	if werr := c.write(e, secrets); werr != nil {
		return nil, werr
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// failure is what of a failure is worth keeping: everything but that the caller went
// away. Our own clocks count; they end the context with an *Error.
func failure(ctx context.Context, err error, host string) (*Error, bool) {
	var fail *Error
	ok := errors.As(transportError(ctx, err, host), &fail)
	return fail, ok
}

// write appends an entry as the next answer to its question, in one write of one line.
func (c *Cassette) write(e tapeEntry, secrets secrets) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.unusable("it is closed")
	}
	id := e.Req.id()
	n := 0
	for ; ; n++ {
		e.Key = e.Req.key(n)
		if _, taken := c.byKey[e.Key]; !taken {
			break
		}
	}
	e.Req.Body = secrets.redactJSON(e.Req.Body)
	line, err := marshal(e)
	if err != nil {
		return c.unusable("an exchange cannot be written as JSON")
	}
	if _, err := c.file.Write(append(line, '\n')); err != nil {
		return c.unusable("it cannot be written: " + printable(err.Error()))
	}
	c.byKey[e.Key] = len(c.tape)
	c.tape = append(c.tape, e)
	c.used = append(c.used, true)
	c.asked[id] = max(c.asked[id], n+1)
	return nil
}

func (c *Cassette) unusable(why string) *Error {
	return &Error{Class: ClassConfig, Message: "cassette " + printable(c.path) + ": " + why}
}

// Unused describes the entries that were read from the file and answered nothing, in
// their order: questions that nobody asks any more.
func (c *Cassette) Unused() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var unused []string
	for i, e := range c.tape {
		if !c.used[i] {
			unused = append(unused, e.describe(i+1))
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

// takeBody reads a request's body and puts it back.
func takeBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(req.Body)
	if err = errors.Join(err, req.Body.Close()); err != nil {
		return nil, err
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// answerOf is the record of an answer.
func answerOf(res *http.Response, raw []byte, secrets secrets) tapeAnswer {
	a := tapeAnswer{Status: res.StatusCode, Headers: map[string]string{}}
	for name, values := range res.Header {
		name = strings.ToLower(name)
		if value := strings.Join(values, ", "); keptHeader(name) {
			a.Headers[name] = secrets.redact(value)
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

// keptHeader reports whether an answer's header is written down: what the reading of an
// answer needs, and nothing that could name an account or a session.
func keptHeader(name string) bool {
	switch name {
	case "content-type", "date", "retry-after", "retry-after-ms", "x-should-retry":
		return true
	}
	return strings.HasPrefix(name, "x-ratelimit-")
}
