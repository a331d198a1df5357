package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/validators/document"
)

func openTape(t testing.TB, path string, mode CassetteMode, next Doer) *Cassette {
	t.Helper()
	c, err := OpenCassette(path, mode, next)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// got is an answer that has been read.
type got struct {
	status int
	header http.Header
	body   string
}

// send sends a request to d and reads the answer.
func send(t testing.TB, ctx context.Context, d Doer, method, path, body string) (got, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "https://llm.example"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer correct-horse-battery")
	res, err := d.Do(req)
	if err != nil {
		return got{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got{res.StatusCode, res.Header, string(b)}, nil
}

// post sends a request and returns "status body".
func post(t testing.TB, d Doer, body string) (string, error) {
	t.Helper()
	res, err := send(t, t.Context(), d, http.MethodPost, "/v1/chat/completions", body)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %s", res.status, res.body), nil
}

func mustPost(t testing.TB, d Doer, body, want string) {
	t.Helper()
	if got, err := post(t, d, body); err != nil || got != want {
		t.Errorf("%s: %q, %v; want %q", body, got, err, want)
	}
}

// numbered returns a Doer whose answers count its requests.
func numbered() (Doer, *atomic.Int32) {
	var n atomic.Int32
	return doFunc(func(r *http.Request) (*http.Response, error) {
		return respond(r, 200, fmt.Sprintf(`{"answer":%d}`, n.Add(1)))
	}), &n
}

// never returns a Doer that must not be used.
func never(t testing.TB) Doer {
	return doFunc(func(*http.Request) (*http.Response, error) {
		t.Error("a request was sent")
		return nil, errors.New("not here")
	})
}

func tapePath(t testing.TB) string { return filepath.Join(t.TempDir(), "tape.jsonl") }

func TestRecordAndReplay(t *testing.T) {
	t.Parallel()
	path := tapePath(t)
	next, sent := numbered()
	rec := openTape(t, path, CassetteRecord, next)
	mustPost(t, rec, `{"model":"m","a":1}`, `200 {"answer":1}`)
	mustPost(t, rec, `{"model":"m","a":2}`, `200 {"answer":2}`)
	mustPost(t, rec, `{"model":"m","a":1}`, `200 {"answer":3}`)
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	if sent.Load() != 3 {
		t.Errorf("recording sent %d requests, want 3", sent.Load())
	}

	play := openTape(t, path, CassetteReplay, nil)
	// Spaces and the order of keys do not distinguish questions; the number of earlier identical requests
	// does.
	mustPost(t, play, `{"a": 1, "model": "m"}`, `200 {"answer":1}`)
	if got := play.Unused(); len(got) != 2 || !strings.HasPrefix(got[0], "line 2: POST /v1/chat/completions (m)") {
		t.Errorf("unused: %q", got)
	}
	mustPost(t, play, `{"model":"m","a":1}`, `200 {"answer":3}`)
	mustPost(t, play, `{"model":"m","a":2}`, `200 {"answer":2}`)
	if got := play.Unused(); len(got) != 0 {
		t.Errorf("unused: %q", got)
	}
	for range 2 {
		_, err := post(t, play, `{"model":"m","a":1}`)
		if !errors.Is(err, ErrCassetteMiss) || ClassOf(err) != ClassConfig || !strings.Contains(err.Error(), "has 2 answers to POST /v1/chat/completions (m), but this is request number 3") {
			t.Errorf("the third time: %v, want a miss that says so", err)
		}
	}
}

func TestFileIsOwnersAlone(t *testing.T) {
	t.Parallel()
	for _, mode := range []CassetteMode{CassetteRecord, CassetteRecordMissing} {
		path := tapePath(t)
		if mode == CassetteRecordMissing {
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		openTape(t, path, mode, never(t))
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, want 0600", mode, info.Mode().Perm())
		}
	}
}

func TestRecordBeginsAnew(t *testing.T) {
	t.Parallel()
	path := tapePath(t)
	for range 2 {
		next, _ := numbered()
		c := openTape(t, path, CassetteRecord, next)
		mustPost(t, c, `{"a":1}`, `200 {"answer":1}`)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
}

func TestRecordMissing(t *testing.T) {
	t.Parallel()
	path := tapePath(t)
	next, sent := numbered()
	first := openTape(t, path, CassetteRecordMissing, next)
	mustPost(t, first, `{"a":1}`, `200 {"answer":1}`)
	mustPost(t, first, `{"a":1}`, `200 {"answer":2}`)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	second := openTape(t, path, CassetteRecordMissing, next)
	mustPost(t, second, `{"a":1}`, `200 {"answer":1}`)
	mustPost(t, second, `{"a":2}`, `200 {"answer":3}`)
	if got := second.Unused(); len(got) != 1 || !strings.HasPrefix(got[0], "line 2:") {
		t.Errorf("unused: %q, want line 2 only: what was recorded now was used", got)
	}
	mustPost(t, second, `{"a":1}`, `200 {"answer":2}`)
	mustPost(t, second, `{"a":1}`, `200 {"answer":4}`)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if sent.Load() != 4 {
		t.Errorf("sent %d requests, want 4", sent.Load())
	}

	play := openTape(t, path, CassetteReplay, nil)
	for _, want := range []string{"1", "2", "4"} {
		mustPost(t, play, `{"a":1}`, `200 {"answer":`+want+`}`)
	}
}

func TestOpenCassetteRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		name, path string
		mode       CassetteMode
		next       Doer
		want       string
	}{
		{"unknown mode", filepath.Join(dir, "a"), "rewind", never(t), "record-missing"},
		{"no mode", filepath.Join(dir, "a"), "", never(t), "replay"},
		{"nothing to replay", filepath.Join(dir, "a"), CassetteReplay, nil, "record it first"},
		{"nobody to send", filepath.Join(dir, "a"), CassetteRecord, nil, "client"},
		{"no folder", filepath.Join(dir, "b", "c"), CassetteRecord, never(t), "no such file"},
		{"a folder", dir, CassetteReplay, nil, "cassette"},
	} {
		if _, err := OpenCassette(c.path, c.mode, c.next); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("files were made: %v, %v", entries, err)
	}
}

func TestErrorRepliesAndFailuresAreRecorded(t *testing.T) {
	t.Parallel()
	path := tapePath(t)
	slow, late := context.WithCancelCause(t.Context())
	gone, leave := context.WithCancel(t.Context())
	rec := openTape(t, path, CassetteRecord, doFunc(func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case bytes.Contains(body, []byte("busy")):
			res, err := respond(r, 429, `{"error":{"message":"slow down"}}`)
			res.Header.Set("Retry-After", "7")
			res.Header.Set("X-RateLimit-Reset-Requests", "6s")
			res.Header.Set("Set-Cookie", "session=hunter2")
			res.Header.Set("OpenAI-Organization", "org-hunter2")
			res.Header.Set("X-Request-Id", "req_hunter2")
			return res, err
		case bytes.Contains(body, []byte("moved")):
			res, err := respond(r, 308, "")
			res.Header.Set("Location", "https://user:hunter2@other.example/v1/chat/completions?key=hunter2")
			return res, err
		case bytes.Contains(body, []byte("binary")):
			return respond(r, 200, "\xff\xfe\x00")
		case bytes.Contains(body, []byte("refused")):
			return nil, syscall.ECONNREFUSED
		case bytes.Contains(body, []byte("half")):
			res, err := respond(r, 200, "")
			res.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), broken{}))
			return res, err
		case bytes.Contains(body, []byte("slow")):
			late(&Error{Class: ClassTimeout, Message: "no answer within 10s"})
		case bytes.Contains(body, []byte("gone")):
			leave()
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	}))
	ask := func(d Doer, ctx context.Context, body string) (got, error) {
		return send(t, ctx, d, http.MethodPost, "/v1/chat/completions", body)
	}
	if _, err := ask(rec, gone, `"gone"`); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who went away: %v", err)
	}
	for _, body := range []string{`"busy"`, `"moved"`, `"binary"`} {
		if _, err := ask(rec, t.Context(), body); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{`"refused"`, `"half"`} {
		if _, err := ask(rec, t.Context(), body); err == nil {
			t.Errorf("%s: no error", body)
		}
	}
	if _, err := ask(rec, slow, `"slow"`); err == nil {
		t.Error("slow: no error")
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(written, []byte("hunter2")) {
		t.Errorf("the file has what it should not:\n%s", written)
	}

	play := openTape(t, path, CassetteReplay, nil)
	res, err := ask(play, t.Context(), `"busy"`)
	if err != nil {
		t.Fatal(err)
	}
	if res.status != 429 || res.header.Get("Retry-After") != "7" || res.header.Get("x-ratelimit-reset-requests") != "6s" || len(res.header) != 3 {
		t.Errorf("replayed %d with %v", res.status, res.header)
	}
	if res, err = ask(play, t.Context(), `"moved"`); err != nil || res.header.Get("Location") != "https://other.example/v1/chat/completions" {
		t.Errorf("replayed %v, %v", res.header, err)
	}
	if res, err = ask(play, t.Context(), `"binary"`); err != nil || res.body != "\xff\xfe\x00" {
		t.Errorf("replayed %q, %v", res.body, err)
	}
	for body, want := range map[string]Class{`"refused"`: ClassNetwork, `"half"`: ClassNetwork, `"slow"`: ClassTimeout} {
		if _, err := ask(play, t.Context(), body); ClassOf(err) != want {
			t.Errorf("%s replayed as %v, want %s", body, err, want)
		}
	}
	if _, err := ask(play, t.Context(), `"gone"`); !errors.Is(err, ErrCassetteMiss) {
		t.Errorf("a caller who went away was recorded: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ask(play, ended, `"busy"`); !errors.Is(err, context.Canceled) {
		t.Errorf("replay for an ended context: %v", err)
	}
}

func TestKeysNeverReachTheFile(t *testing.T) {
	t.Parallel()
	keys := []string{
		"sk-proj-abcdefghijklmnop1234", "sk-ant-api03-abcdefghijkl_mno", "sk-abcdefgh********wxyz", "AIzaSyA1234567890abcdefghijklmnopqrstu",
		"gsk_abcdefghijklmnopqrstuvwx", "xai-abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwx", "Bearer abc.def-ghi_jkl+mno/pqr==",
		"correct-horse-battery", // the key of the request
	}
	for _, key := range keys {
		path := tapePath(t)
		said, err := document.Marshal(map[string]string{"echo": "line\n" + key + "\tand (" + key + ")", "model": "m " + key})
		if err != nil {
			t.Fatal(err)
		}
		rec := openTape(t, path, CassetteRecord, doFunc(func(r *http.Request) (*http.Response, error) {
			res, err := respond(r, 401, string(said))
			res.Header.Set("Content-Type", "text/"+key)
			return res, err
		}))
		question, err := document.Marshal(map[string]any{"model": "m", key: []any{"a " + key, map[string]string{"b": "\n" + key}}})
		if err != nil {
			t.Fatal(err)
		}
		// The caller gets the answer unchanged.
		mustPost(t, rec, string(question), "401 "+string(said))
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		written, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bare := strings.TrimPrefix(key, "Bearer ")
		if bytes.Contains(written, []byte(bare)) || bytes.Contains(written, []byte("battery")) {
			t.Errorf("%s is in the file:\n%s", key, written)
		}
		// The question is still found.
		play := openTape(t, path, CassetteReplay, nil)
		got, err := post(t, play, string(question))
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if body := strings.TrimPrefix(got, "401 "); !json.Valid([]byte(body)) || !strings.Contains(body, `line\n`+redacted) {
			t.Errorf("%s: replayed %s", key, body)
		}
	}
}

// Redacted JSON remains valid JSON, and redacting it again changes nothing.
func TestRedactionProperty(t *testing.T) {
	t.Parallel()
	parts := rapid.SampledFrom([]string{
		"sk-", "abcdefghijklmnop", "Bearer ", "\n", "\\", `"`, "é", "/", "AIza", "hf_", "\u2028", " ", "n", "task-force-of-people", "<&>", "correct-horse/battery",
	})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(parts).Draw(t, "text"), "")
		s := secretsOf(&http.Request{Header: http.Header{"Authorization": {"Bearer " + rapid.SampledFrom([]string{"correct-horse/battery", "nnnnnnnn", "none"}).Draw(t, "key")}}})
		for _, escape := range []func(any) ([]byte, error){json.Marshal, document.Marshal} {
			raw, err := escape([]string{text, "end"})
			if err != nil {
				t.Fatal(err)
			}
			out := s.redactAnswer(raw)
			var got []string
			if err := json.Unmarshal(out, &got); err != nil || len(got) != 2 || got[1] != "end" {
				t.Fatalf("%s became %s, %v", raw, out, err)
			}
			if slices.ContainsFunc(s, func(secret string) bool { return strings.Contains(got[0], secret) }) {
				t.Fatalf("%s became %s, with a secret of %q", raw, out, s)
			}
			if again := s.redactAnswer(out); !bytes.Equal(again, out) {
				t.Fatalf("%s became %s, and that %s", raw, out, again)
			}
		}
	})
}

// A key that consists of letters used in JSON escapes must not break an escape.
func TestRedactionAcrossAnEscape(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"a":"\nnnnnnnnn","b":1.50}`)
	if got, want := string(secrets{"nnnnnnnn"}.redactAnswer(raw)), `{"a":"\n[redacted]","b":1.50}`; got != want {
		t.Errorf("%s became %s, want %s", raw, got, want)
	}
}

func TestWordsThatOnlyLookLikeKeys(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"the task-force-of-people met", "risk-assessment-report-2026", "sk-learn", "a bearer of news", "chf_amount_in_thousands", "hf_x",
	} {
		if got := secrets(nil).redact(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestMissNamesTheRequest(t *testing.T) {
	t.Parallel()
	path := tapePath(t)
	next, _ := numbered()
	rec := openTape(t, path, CassetteRecord, next)
	mustPost(t, rec, `{"model":"m-1","messages":[{"role":"user","content":"The secret prompt."}]}`, `200 {"answer":1}`)
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := post(t, openTape(t, path, CassetteReplay, never(t)), `{"model":"m-2","messages":[{"role":"user","content":"The secret prompt."}]}`)
	if !errors.Is(err, ErrCassetteMiss) || !strings.Contains(err.Error(), "has 0 answers to POST /v1/chat/completions (m-2)") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

// loaded reads cassette entries from a text.
func loaded(text string) (*Cassette, error) {
	c := &Cassette{byKey: map[string]*cassetteEntry{}}
	return c, c.load(strings.NewReader(text))
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	q := cassetteRequest{Method: "POST", Path: "/v1", Host: "h", Body: json.RawMessage(`{"a":1}`)}
	line := func(change func(*cassetteEntry)) string {
		e := cassetteEntry{V: 1, Key: requestKey(q.id(), 0), Req: q, Res: cassetteAnswer{Status: 200, Body: "x"}}
		change(&e)
		b, err := document.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	good := line(func(*cassetteEntry) {})
	second := line(func(e *cassetteEntry) { e.Key = requestKey(q.id(), 1) })
	const broken, wrong = "is not a complete cassette entry", "the key is a duplicate or not that of the request"
	for name, tt := range map[string]struct{ text, want string }{
		"torn":               {good + good[:len(good)/2], "line 2 " + broken},
		"empty line":         {"\n" + good, "line 1 " + broken},
		"two on a line":      {strings.TrimSpace(good) + good, "line 1 " + broken},
		"version":            {line(func(e *cassetteEntry) { e.V = 2 }), "line 1: unknown version 2"},
		"unknown field":      {strings.Replace(good, `{"v"`, `{"x":1,"v"`, 1), broken},
		"key":                {line(func(e *cassetteEntry) { e.Key = "sha256:12" }), wrong},
		"no status":          {line(func(e *cassetteEntry) { e.Res.Status = 0 }), broken},
		"status and failure": {line(func(e *cassetteEntry) { e.Res.Class = ClassNetwork }), broken},
		"twice":              {good + good, "line 2: " + wrong},
		"edited request":     {line(func(e *cassetteEntry) { e.Req.Body = json.RawMessage(`{"a":2}`) }), wrong},
		"out of order":       {second, wrong},
		"no body":            {line(func(e *cassetteEntry) { e.Req.Body = nil }), wrong},
	} {
		if c, err := loaded(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d entries, %v; want an error with %q", name, len(c.entries), err, tt.want)
		}
	}
	if c, err := loaded(good + second); err != nil || len(c.entries) != 2 {
		t.Errorf("a good one: %d entries, %v", len(c.entries), err)
	}
	// The hash of a request with a redacted secret differs from its key.
	if _, err := loaded(line(func(e *cassetteEntry) { e.Req.Body = json.RawMessage(`{"a":"[redacted]"}`) })); err != nil {
		t.Errorf("redacted: %v", err)
	}
}

func TestManyRecordAtOnce(t *testing.T) {
	t.Parallel()
	path := tapePath(t)
	next, _ := numbered()
	rec := openTape(t, path, CassetteRecord, next)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			if _, err := post(t, rec, fmt.Sprintf(`{"a":%d}`, i%4)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	play := openTape(t, path, CassetteReplay, nil)
	var mu sync.Mutex
	seen := map[string]bool{}
	for i := range 32 {
		wg.Go(func() {
			got, err := post(t, play, fmt.Sprintf(`{"a":%d}`, i%4))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[got] = true
		})
	}
	wg.Wait()
	if len(seen) != 32 || len(play.Unused()) != 0 {
		t.Errorf("replayed %d different answers of 32, unused %q", len(seen), play.Unused())
	}
}

func TestClosedCassetteAnswersNothing(t *testing.T) {
	t.Parallel()
	next, _ := numbered()
	for _, mode := range []CassetteMode{CassetteRecord, CassetteRecordMissing} {
		c := openTape(t, tapePath(t), mode, next)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := post(t, c, "{}"); ClassOf(err) != ClassConfig {
			t.Errorf("%s, closed: %v", mode, err)
		}
	}
}

// An endpoint can use a cassette as its Doer. A replay repeats the live results, including negotiation.
func TestCassetteUnderAnEndpoint(t *testing.T) {
	t.Parallel()
	path := tapePath(t)
	run := func(d Doer) Reply {
		t.Helper()
		e := mustEndpoint(t, Model{ID: "m", APIKey: "correct-horse-battery"}, Config{Doer: d})
		reply, err := e.wrapNegotiate(e).Complete(t.Context(), testRequest())
		if err != nil {
			t.Fatal(err)
		}
		reply.Took = 0
		return reply
	}
	rec := openTape(t, path, CassetteRecord, &picky{t: t, refuses: []string{"response_format", "seed"}})
	live := run(rec)
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	play := openTape(t, path, CassetteReplay, never(t))
	if diff := cmp.Diff(live, run(play)); diff != "" {
		t.Errorf("replayed (-live +replayed):\n%s", diff)
	}
	if live.Calls != 3 || len(play.Unused()) != 0 {
		t.Errorf("%d calls, unused %q", live.Calls, play.Unused())
	}
	e2 := mustEndpoint(t, Model{Name: "judge", ID: "other"}, Config{Doer: play})
	_, err := e2.Complete(t.Context(), testRequest())
	var fail *Error
	if !errors.Is(err, ErrCassetteMiss) || !errors.As(err, &fail) || fail.Model != "judge" {
		t.Errorf("a miss through an endpoint: %v", err)
	}
}

func FuzzLoadCassette(f *testing.F) {
	q := cassetteRequest{Method: "POST", Path: "/v1/chat/completions", Host: "h", Body: json.RawMessage(`{"model":"m"}`)}
	for _, e := range []cassetteEntry{
		{V: 1, Key: requestKey(q.id(), 0), Req: q, Res: cassetteAnswer{Status: 200, Headers: map[string]string{"date": "x"}, Body: "{}"}},
		{V: 1, Key: requestKey(q.id(), 0), Req: q, Res: cassetteAnswer{Class: ClassTimeout, Message: "late"}},
		{V: 1, Key: requestKey(q.id(), 0), Req: q, Res: cassetteAnswer{Status: 999, Body64: []byte{255}}},
	} {
		b, err := document.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
		f.Add(string(b) + "\n" + string(b))
	}
	f.Add(`{"v":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := loaded(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "line ") {
				t.Errorf("an error without a line: %v", err)
			}
			return
		}
		req, err := http.NewRequest(http.MethodPost, "https://h/v1", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		var again strings.Builder
		for _, e := range c.entries {
			res, err := e.Res.response(req)
			if (err == nil) == (res == nil) {
				t.Errorf("an entry replays as %v, %v", res, err)
			}
			if res != nil {
				res.Body.Close()
			}
			b, err := document.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			again.WriteString(string(b) + "\n")
		}
		for _, unused := range c.Unused() {
			if strings.ContainsAny(unused, "\n\r\x1b") {
				t.Errorf("an entry is described as %q", unused)
			}
		}
		if second, err := loaded(again.String()); err != nil || len(second.entries) != len(c.entries) {
			t.Errorf("written anew: %d entries of %d, %v", len(second.entries), len(c.entries), err)
		}
	})
}

// Callers can tell which edition of a prompt was recorded, because System begins the message and Shape may
// follow it.
func TestCassetteHoldsSystem(t *testing.T) {
	t.Parallel()
	next, _ := numbered()
	c := openTape(t, tapePath(t), CassetteRecord, next)
	mustPost(t, c, `{"model":"m","messages":[{"role":"system","content":"Judge this.\n\nAnswer with JSON."},{"role":"user","content":"You audit."}]}`, `200 {"answer":1}`)
	mustPost(t, c, `not JSON`, `200 {"answer":2}`)
	for text, want := range map[string]bool{"Judge this.": true, "You audit.": false, "Answer": false} {
		if c.HoldsSystem(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}
