package llm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/validators/document"
)

// doFunc is a function that implements Doer.
type doFunc func(*http.Request) (*http.Response, error)

func (f doFunc) Do(req *http.Request) (*http.Response, error) { return f(req) }

// respond returns a Doer's response.
func respond(req *http.Request, status int, body string) (*http.Response, error) {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: req,
	}, nil
}

// completion returns a provider's answer with the given text.
func completion(t testing.TB, text string) string {
	t.Helper()
	quoted, err := document.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return `{"id":"c1","object":"chat.completion","created":1,"model":"m-2026","system_fingerprint":"fp_1",` +
		`"choices":[{"index":0,"message":{"role":"assistant","content":` + string(quoted) + `},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":1000,"completion_tokens":100,"total_tokens":1100}}`
}

const plainVerdict = `{"approved":true,"confidence":0.9}`

func TestCompleteIsOneRequest(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	seen := make(chan *http.Request, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		seen <- r.Clone(context.Background())
		io.WriteString(w, completion(t, plainVerdict))
	}))
	defer srv.Close()
	prompt, answer := 2.0, 10.0
	e := mustEndpoint(t, Model{
		Name: "judge", ID: "m", BaseURL: srv.URL, APIKey: "sk-test \n", PromptUSD: &prompt, CompletionUSD: &answer,
	}, Config{})

	got, err := e.Complete(t.Context(), testRequest())
	if err != nil {
		t.Fatal(err)
	}
	if calls.Load() != 1 {
		t.Errorf("made %d requests, want 1", calls.Load())
	}
	r := <-seen
	if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" {
		t.Errorf("called %s %s", r.Method, r.URL.Path)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer sk-test", "User-Agent": "gavel", "Content-Type": "application/json", "Accept": "application/json",
	} {
		if r.Header.Get(name) != want {
			t.Errorf("header %s = %q, want %q", name, r.Header.Get(name), want)
		}
	}
	if got.Took <= 0 {
		t.Errorf("took %v", got.Took)
	}
	got.Took = 0
	usd := 0.003
	want := Reply{
		Answer: Answer{Approved: true, Confidence: 0.9, NoCriteria: true}, Model: "judge", Reported: "m-2026", Fingerprint: "fp_1",
		Endpoint: strings.TrimPrefix(srv.URL, "http://"), Rung: RungJSONSchema,
		Usage: &Usage{Prompt: 1000, Completion: 100}, CostUSD: &usd, Calls: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
}

func TestNoKeyNoHeader(t *testing.T) {
	t.Parallel()
	e := mustEndpoint(t, Model{ID: "m"}, Config{Doer: doFunc(func(r *http.Request) (*http.Response, error) {
		if v, ok := r.Header["Authorization"]; ok {
			t.Errorf("Authorization is sent without a key: %q", v)
		}
		return respond(r, 200, completion(t, plainVerdict))
	})})
	got, err := e.Complete(t.Context(), testRequest())
	if err != nil {
		t.Fatal(err)
	}
	if got.Model != "m" {
		t.Errorf("model = %q, want its ID where it has no name", got.Model)
	}
	if got.CostUSD != nil {
		t.Errorf("cost = %v without prices, want unknown", *got.CostUSD)
	}
}

func TestCostIsUnknownUnlessAllIsKnown(t *testing.T) {
	t.Parallel()
	p := 1.0
	usage := &Usage{Prompt: 1}
	for name, got := range map[string]*float64{
		"no usage":            Model{PromptUSD: &p, CompletionUSD: &p}.costOf(nil),
		"no prompt price":     Model{CompletionUSD: &p}.costOf(usage),
		"no completion price": Model{PromptUSD: &p}.costOf(usage),
	} {
		if got != nil {
			t.Errorf("%s: cost = %v", name, *got)
		}
	}
}

// The nonce is required only in rungs in which the model was given it.
func TestNonceIsRequiredOnlyIfGiven(t *testing.T) {
	t.Parallel()
	for rung, demanded := range map[Rung]bool{RungJSONSchema: false, RungTool: false, RungJSONObject: true, RungPrompt: true} {
		for verdict, has := range map[string]bool{plainVerdict: false, `{"approved":true,"confidence":0.9,"nonce":"n0nce"}`: true} {
			e := mustEndpoint(t, Model{ID: "m", Rung: rung}, Config{Doer: doFunc(func(r *http.Request) (*http.Response, error) {
				return respond(r, 200, completion(t, verdict))
			})})
			_, err := e.Complete(t.Context(), testRequest())
			if demanded && !has && ClassOf(err) != ClassMalformed {
				t.Errorf("%s, answer without nonce: %v, want %s", rung, err, ClassMalformed)
			}
			if (!demanded || has) && err != nil {
				t.Errorf("%s, nonce in the answer %v: %v", rung, has, err)
			}
		}
	}
}

// A server may report a finished tool call although it was cut off; the token count reveals that.
func TestCutOffByItsTokens(t *testing.T) {
	t.Parallel()
	for most, class := range map[int]Class{100: ClassTruncated, 101: ClassMalformed} { // completion reports 100
		e := mustEndpoint(t, Model{ID: "m", Rung: RungTool}, Config{MaxTokens: most, Doer: doFunc(func(r *http.Request) (*http.Response, error) {
			return respond(r, 200, strings.Replace(completion(t, ""), `"content":""`, `"content":null,"tool_calls":[{"function":{"name":"submit_verdict","arguments":"{\"criteria\":["}}]`, 1))
		})})
		if _, err := e.Complete(t.Context(), testRequest()); ClassOf(err) != class || asError(err).Usage == nil {
			t.Errorf("of %d tokens: %v, want %s", most, err, class)
		}
	}
}

func TestErrorsNameModelAndEndpoint(t *testing.T) {
	t.Parallel()
	for status, class := range map[int]Class{
		401: ClassAuth, 404: ClassNotFound, 429: ClassRateLimited, 500: ClassUpstream,
	} {
		e := mustEndpoint(t, Model{Name: "judge", ID: "m"}, Config{Doer: doFunc(func(r *http.Request) (*http.Response, error) {
			return respond(r, status, `{"error":{"message":"no","type":"x","code":null}}`)
		})})
		_, err := e.Complete(t.Context(), testRequest())
		var fail *Error
		if !errors.As(err, &fail) {
			t.Fatalf("HTTP %d: %v", status, err)
		}
		if fail.Class != class || fail.Status != status || fail.Model != "judge" || fail.Endpoint != "llm.example" || fail.Calls != 1 {
			t.Errorf("HTTP %d: %+v", status, fail)
		}
	}
}

func TestNotFoundNamesURLAndAlternatives(t *testing.T) {
	t.Parallel()
	cases := []struct {
		base, called string
		try          []string
	}{
		{"https://gw.example/llm", "https://gw.example/llm/chat/completions", []string{"https://gw.example/llm/v1", "https://gw.example/v1"}},
		{"https://openrouter.ai/v1", "https://openrouter.ai/v1/chat/completions", []string{"https://openrouter.ai/api/v1"}},
		{"https://api.deepseek.com/api", "https://api.deepseek.com/api/chat/completions", []string{"https://api.deepseek.com"}},
		{"https://gw.example", "https://gw.example/v1/chat/completions", []string{"https://gw.example/chat/completions"}},
		{"https://gw.example/llm/v1", "https://gw.example/llm/v1/chat/completions", []string{"https://gw.example/llm,"}},
		{"https://gw.example/chat/completions", "(called was https://gw.example/chat/completions)", []string{"https://gw.example/v1"}},
		{"https://api.openai.com", "https://api.openai.com/v1/chat/completions", nil},
	}
	for _, c := range cases {
		e := mustEndpoint(t, Model{ID: "some-model", BaseURL: c.base}, Config{Doer: doFunc(func(r *http.Request) (*http.Response, error) {
			return respond(r, 404, "{}")
		})})
		_, err := e.Complete(t.Context(), testRequest())
		var fail *Error
		if !errors.As(err, &fail) || fail.Class != ClassNotFound {
			t.Fatalf("%s: %v", c.base, err)
		}
		if !strings.Contains(fail.Message, c.called) {
			t.Errorf("%s: message %q does not say that %s was called", c.base, fail.Message, c.called)
		}
		if !strings.Contains(fail.Advice, "some-model") {
			t.Errorf("%s: advice %q does not name the model", c.base, fail.Advice)
		}
		for _, try := range c.try {
			if !strings.Contains(fail.Advice, "try LLM_BASE_URL=") || !strings.Contains(fail.Advice, try) {
				t.Errorf("%s: advice %q does not say to try %s", c.base, fail.Advice, try)
			}
		}
		if c.try == nil && strings.Contains(fail.Advice, "try LLM_BASE_URL") {
			t.Errorf("%s: advice %q guesses", c.base, fail.Advice)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	defer other.Close()
	cases := []struct{ name, location, want, not string }{
		{"elsewhere", other.URL + "/v1/chat/completions?key=hunter2", other.URL + "/v1", "hunter2"},
		{"to another path", "/openai/v1/chat/completions", "/openai/v1", "completions"},
		{"to nothing", "", "without a target", "LLM_BASE_URL"},
		{"to a script", "javascript:alert(1)", "without a target", "javascript"},
	}
	for _, c := range cases {
		for _, status := range []int{301, 302, 307, 308} {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.location != "" {
					w.Header().Set("Location", c.location)
				}
				w.WriteHeader(status)
			}))
			e := mustEndpoint(t, Model{ID: "m", BaseURL: srv.URL, APIKey: "sk-secret"}, Config{})
			_, err := e.Complete(t.Context(), testRequest())
			srv.Close()
			var fail *Error
			if !errors.As(err, &fail) || fail.Class != ClassConfig || fail.Status != status || fail.Calls != 1 {
				t.Fatalf("%s, %d: %v", c.name, status, err)
			}
			told := fail.Message + " " + fail.Advice
			if !strings.Contains(told, c.want) || strings.Contains(told, c.not) {
				t.Errorf("%s, %d: %q, want it with %q and without %q", c.name, status, told, c.want, c.not)
			}
		}
	}
}

func TestLongBodiesAreCut(t *testing.T) {
	t.Parallel()
	exact := completion(t, plainVerdict)
	for _, c := range []struct {
		max  int
		tail string
		want Class
	}{{len(exact), "", ""}, {len(exact) - 1, strings.Repeat(" ", 1<<20), ClassUpstream}} {
		read := 0
		e := mustEndpoint(t, Model{ID: "m"}, Config{MaxBody: int64(c.max), Doer: doFunc(func(r *http.Request) (*http.Response, error) {
			res, err := respond(r, 200, "")
			res.Body = io.NopCloser(io.TeeReader(strings.NewReader(exact+c.tail), counter{&read}))
			return res, err
		})})
		_, err := e.Complete(t.Context(), testRequest())
		if ClassOf(err) != c.want {
			t.Errorf("a body of %d bytes where %d are allowed: %v, want class %q", len(exact), c.max, err, c.want)
		}
		if read > c.max+1 {
			t.Errorf("read %d bytes where %d are allowed", read, c.max)
		}
	}
}

type counter struct{ n *int }

func (c counter) Write(p []byte) (int, error) { *c.n += len(p); return len(p), nil }

func TestTransportErrors(t *testing.T) {
	t.Parallel()
	inURL := func(err error) error {
		return &url.Error{Op: "Post", URL: "https://llm.example/v1?key=hunter2", Err: err}
	}
	cases := []struct {
		name string
		err  error
		want Class
		says string
	}{
		{"DNS", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "hunter2", IsNotFound: true}}, ClassNetwork, "cannot be found"},
		{"refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, ClassNetwork, "refuses"},
		{"reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, ClassNetwork, "closed the connection"},
		{"end", io.EOF, ClassNetwork, "closed the connection"},
		{"no route", &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, ClassNetwork, "no route"},
		{"plain for TLS", tls.RecordHeaderError{Msg: "hunter2"}, ClassNetwork, "TLS"},
		{"plain for TLS, as http says it", http.ErrSchemeMismatch, ClassNetwork, "http://"},
		{"certificate", &tls.CertificateVerificationError{Err: errors.New("hunter2")}, ClassNetwork, "certificate"},
		{"proxy", &net.OpError{Op: "proxyconnect", Err: syscall.ECONNREFUSED}, ClassNetwork, "proxy"},
		{"timeout of the connection", &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}, ClassNetwork, "in time"},
		{"timeout of DNS", &net.DNSError{Err: "hunter2", IsTimeout: true}, ClassNetwork, "in time"},
		{"a deadline of somebody below", context.DeadlineExceeded, ClassNetwork, "in time"},
		{"anything", errors.New("hunter2"), ClassNetwork, "failed"},
		{"one of ours", &Error{Class: ClassConfig, Message: "the cassette says no"}, ClassConfig, "cassette"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := mustEndpoint(t, Model{Name: "judge", ID: "m", APIKey: "hunter2"}, Config{Doer: doFunc(func(*http.Request) (*http.Response, error) {
				return nil, inURL(c.err)
			})})
			_, err := e.Complete(t.Context(), testRequest())
			var fail *Error
			if !errors.As(err, &fail) {
				t.Fatalf("error = %v", err)
			}
			if fail.Class != c.want || fail.Model != "judge" || fail.Endpoint != "llm.example" || fail.Calls != 1 {
				t.Errorf("error = %+v, want class %s", fail, c.want)
			}
			if !strings.Contains(fail.Error()+fail.Advice, c.says) {
				t.Errorf("error = %v (%s), want it to say %q", fail, fail.Advice, c.says)
			}
			if strings.Contains(fail.Error()+fail.Advice, "hunter2") {
				t.Errorf("the error gives a secret away: %v (%s)", fail, fail.Advice)
			}
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				t.Errorf("error = %v looks like the caller's context", err)
			}
		})
	}
}

func TestRealTransportErrors(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	secure.StartTLS()
	defer secure.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	breaks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, `{"choices":`)
	}))
	defer breaks.Close()
	for _, c := range []struct{ name, base, says string }{
		{"refused", gone.URL, "refuses"},
		{"TLS to a plain server", strings.Replace(plain.URL, "http", "https", 1), "does not speak TLS"},
		{"a certificate that nobody knows", secure.URL, "certificate"},
		{"half an answer", breaks.URL, "closed the connection"},
	} {
		e := mustEndpoint(t, Model{ID: "m", BaseURL: c.base}, Config{})
		_, err := e.Complete(t.Context(), testRequest())
		if ClassOf(err) != ClassNetwork || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s that says %q", c.name, err, ClassNetwork, c.says)
		}
	}
}

// If the body of an error breaks off, the error has its HTTP status; it is not a network failure.
func TestStatusCountsWhereTheBodyBreaks(t *testing.T) {
	t.Parallel()
	e := mustEndpoint(t, Model{ID: "m"}, Config{Doer: doFunc(func(r *http.Request) (*http.Response, error) {
		res, err := respond(r, 503, "")
		res.Body = io.NopCloser(io.MultiReader(strings.NewReader("{}"), broken{}))
		return res, err
	})})
	_, err := e.Complete(t.Context(), testRequest())
	var fail *Error
	if !errors.As(err, &fail) || fail.Status != 503 || fail.Class == ClassNetwork {
		t.Errorf("error = %v, want that of HTTP 503", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Cancellation by the caller is not mistaken for a slow endpoint, but our own time limits count.
func TestContextErrorNamesItsSource(t *testing.T) {
	t.Parallel()
	ours := &Error{Class: ClassTimeout, Message: "no answer within 10s"}
	cases := []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want func(error) bool
	}{
		{"the caller cancelled", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, func(err error) bool { return errors.Is(err, context.Canceled) && ClassOf(err) == "" }},
		{"the caller's deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) && ClassOf(err) == "" }},
		{"the caller's deadline with a cause of his own", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, errors.New("lunch"))
		}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) && ClassOf(err) == "" }},
		{"our attempt", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, ours)
		}, func(err error) bool {
			var fail *Error
			return errors.As(err, &fail) && fail.Class == ClassTimeout && fail.Calls == 1 && fail.Model == "m" &&
				!errors.Is(err, context.DeadlineExceeded)
		}},
	}
	t.Cleanup(func() {
		if ours.Calls != 0 || ours.Model != "" {
			t.Errorf("the cause of the context was written to: %+v", ours)
		}
	})
	for _, c := range cases {
		for _, inBody := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in the body: %v", c.name, inBody), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					e := mustEndpoint(t, Model{ID: "m"}, Config{Doer: doFunc(func(r *http.Request) (*http.Response, error) {
						if inBody {
							res, err := respond(r, 200, "")
							res.Body = io.NopCloser(until{r.Context()})
							return res, err
						}
						<-r.Context().Done()
						return nil, &url.Error{Op: "Post", URL: "x", Err: context.Cause(r.Context())}
					})})
					ctx, cancel := c.ctx(t.Context())
					defer cancel()
					if _, err := e.Complete(ctx, testRequest()); !c.want(err) {
						t.Errorf("error = %#v", err)
					}
				})
			})
		}
	}
}

// until is a body that blocks until its context ends.
type until struct{ ctx context.Context } //nolint:containedctx // it is the request's, and as short-lived

func (u until) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}

func TestDoerFollowsNothingAndKeepsTheProxy(t *testing.T) {
	t.Parallel()
	client, ok := NewHTTPDoer().(*http.Client)
	if !ok {
		t.Fatal("the doer is no http.Client")
	}
	if err := client.CheckRedirect(nil, nil); !errors.Is(err, http.ErrUseLastResponse) {
		t.Errorf("CheckRedirect = %v", err)
	}
	tr, ok := client.Transport.(*http.Transport)
	if !ok || tr.Proxy == nil || tr.MaxResponseHeaderBytes <= 0 || tr.MaxIdleConnsPerHost < 8 || tr.TLSHandshakeTimeout <= 0 {
		t.Errorf("transport = %+v", tr)
	}
	if tr == http.DefaultTransport {
		t.Error("the transport is everybody's")
	}
}

func TestLongHeadersAreRefused(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("a", 1<<20))
		io.WriteString(w, completion(t, plainVerdict))
	}))
	defer srv.Close()
	e := mustEndpoint(t, Model{ID: "m", BaseURL: srv.URL}, Config{})
	if _, err := e.Complete(t.Context(), testRequest()); ClassOf(err) != ClassNetwork {
		t.Errorf("error = %v, want %s", err, ClassNetwork)
	}
}
