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
	"strconv"
	"strings"
	"time"
)

const (
	tapeVersion = 1
	// maxLine bounds a line of the file: an answer, its request, and escapes.
	maxLine = 64 << 20
)

// tapeEntry is a line of the file.
type tapeEntry struct {
	V   int          `json:"v"`
	Key string       `json:"key"`
	Req tapeQuestion `json:"req"`
	Res tapeAnswer   `json:"res"`
	Rec recording    `json:"rec"`
}

// tapeQuestion is a request as far as it counts.
type tapeQuestion struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Host   string `json:"host"` // does not count
	// Body is canonical JSON; a body that is no JSON is a JSON string.
	Body json.RawMessage `json:"body"`
}

// tapeAnswer is what came back: a status with a body, or the class of a failure.
type tapeAnswer struct {
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // lower-case names
	Body    string            `json:"body,omitempty"`
	Body64  []byte            `json:"body64,omitempty"` // a body that is no UTF-8
	Class   Class             `json:"class,omitempty"`
	Message string            `json:"message,omitempty"`
}

// recording is what a reader wants to know of a recording; nothing depends on it.
type recording struct {
	At          time.Time `json:"at"`
	Millis      int64     `json:"ms"`
	Model       string    `json:"model,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"`
}

// questionOf is the question that a request puts.
func questionOf(req *http.Request, body []byte) tapeQuestion {
	return tapeQuestion{Method: req.Method, Path: req.URL.EscapedPath(), Host: req.URL.Host, Body: canonical(body)}
}

// canonical is a body as JSON with sorted keys, without spaces, with numbers as they
// were written.
func canonical(body []byte) json.RawMessage {
	v, err := decodeJSON(body)
	if err != nil {
		v = string(body)
	}
	return encodedJSON(v)
}

// encodedJSON is a value that was JSON as JSON again; nothing of that can fail.
func encodedJSON(v any) json.RawMessage {
	out, err := marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return out
}

// decodeJSON decodes exactly one JSON value and keeps the literals of numbers.
func decodeJSON(body []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

// id is what two askings of the same question have in common.
func (q tapeQuestion) id() string {
	return q.Method + "\n" + q.Path + "\n" + string(q.Body)
}

// key identifies the n-th asking, counted from 0.
func (q tapeQuestion) key(n int) string {
	sum := sha256.Sum256([]byte(q.id() + "\n" + strconv.Itoa(n)))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// describe names an entry for a reader.
func (e tapeEntry) describe(line int) string {
	return fmt.Sprintf("line %d: %s %s (%s, %s)", line, printable(e.Req.Method), printable(e.Req.Path), printable(modelOf(e.Req.Body)), shortKey(e.Key))
}

func shortKey(key string) string { return key[:min(len(key), len("sha256:")+12)] }

// modelOf is the model that a question is put to.
func modelOf(body json.RawMessage) string {
	var b struct {
		Model string `json:"model"`
	}
	if err := json.Unmarshal(body, &b); err != nil || b.Model == "" {
		return "no model"
	}
	return b.Model
}

// reportedIn is what an endpoint says of itself in an answer, as far as it can be read.
func reportedIn(raw []byte, secrets secrets) (model, fingerprint string) {
	var b struct {
		Model       any `json:"model"`
		Fingerprint any `json:"system_fingerprint"`
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return "", ""
	}
	model, _ = b.Model.(string)
	fingerprint, _ = b.Fingerprint.(string)
	return secrets.redact(model), secrets.redact(fingerprint)
}

// replay is the answer as it came.
func (a tapeAnswer) replay(req *http.Request) (*http.Response, error) {
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

// readTape reads a file of entries. Its error names the line and says what to do.
func readTape(r io.Reader) ([]tapeEntry, error) {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, maxLine)
	var tape []tapeEntry
	keys := map[string]int{}
	line := 0
	for scan.Scan() {
		line++
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			return nil, fmt.Errorf("line %d is empty; delete it", line)
		}
		e, err := readEntry(scan.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if first, twice := keys[e.Key]; twice {
			return nil, fmt.Errorf("line %d has the key of line %d; delete one of them", line, first)
		}
		keys[e.Key] = line
		tape = append(tape, e)
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("line %d cannot be read: %w", line+1, err)
	}
	return tape, verify(tape)
}

func readEntry(line []byte) (tapeEntry, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	var e tapeEntry
	if err := dec.Decode(&e); err != nil {
		return tapeEntry{}, errors.New("it is no entry of a cassette, or was not written to its end; delete it and record what is missing")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return tapeEntry{}, errors.New("something follows the entry; put it on a line of its own")
	}
	switch {
	case e.V != tapeVersion:
		return tapeEntry{}, fmt.Errorf("version %d is not known to this program, only %d", e.V, tapeVersion)
	case !isKey(e.Key):
		return tapeEntry{}, errors.New("its key is not sha256: and 64 hex digits")
	case len(e.Req.Body) == 0:
		return tapeEntry{}, errors.New("its request has no body")
	case e.Res.Class == "" && (e.Res.Status < 100 || e.Res.Status > 999):
		return tapeEntry{}, fmt.Errorf("its answer has the status %d, which no HTTP answer has", e.Res.Status)
	case e.Res.Class != "" && e.Res.Status != 0:
		return tapeEntry{}, errors.New("its answer has both a status and the class of a failure")
	}
	return e, nil
}

func isKey(key string) bool {
	digits, ok := strings.CutPrefix(key, "sha256:")
	_, err := hex.DecodeString(digits)
	return ok && err == nil && len(digits) == 64
}

// verify checks that keys belong to their requests, so that a request edited by hand
// is not taken for the one that was asked. Requests that had a secret in them cannot
// be checked: the key is that of what was asked, and the secret is gone.
func verify(tape []tapeEntry) error {
	asked := map[string]int{}
	for i, e := range tape {
		if bytes.Contains(e.Req.Body, []byte(redacted)) {
			continue
		}
		q := e.Req
		q.Body = canonical(e.Req.Body)
		id := q.id()
		if e.Key != q.key(asked[id]) {
			return fmt.Errorf("line %d: the key is not that of its request; it was edited or moved: record it again", i+1)
		}
		asked[id]++
	}
	return nil
}
