package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// picky is an endpoint that rejects parameters by name, or by name=value; like real endpoints, it reports one
// at a time.
type picky struct {
	t       testing.TB
	refuses []string
	// named maps a parameter to the name that its rejection uses instead.
	named map[string]string
	// after delays every answer.
	after time.Duration
	// text is the model's answer without a schema.
	text string

	mu   sync.Mutex
	seen []string // rung of each request, with the parameter that was rejected
}

func (p *picky) Do(req *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(raw, &sent); err != nil {
		p.t.Errorf("the body is no JSON: %v", err)
	}
	select {
	case <-time.After(p.after):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	rung := rungOf(sent)
	for _, r := range p.refuses {
		name, value, isValue := strings.Cut(r, "=")
		got, ok := sent[name]
		if ok && (!isValue || string(got) == value || strings.Contains(string(got), value)) {
			p.seen = append(p.seen, fmt.Sprintf("%s -%s", rung, r))
			if other, ok := p.named[name]; ok {
				name = other
			}
			return respond(req, 400, fmt.Sprintf(
				`{"error":{"message":"Unsupported parameter: '%s' is not supported with this model.","type":"invalid_request_error","param":%q,"code":"unsupported_parameter"}}`, name, name))
		}
	}
	p.seen = append(p.seen, string(rung))
	text := p.text
	if text == "" {
		text = `{"approved":true,"confidence":0.9,"nonce":"n0nce"}`
	}
	return respond(req, 200, completion(p.t, text))
}

func (p *picky) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// upgrade replaces the rejected parameters.
func (p *picky) upgrade(refuses ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses, p.seen = refuses, nil
}

func rungOf(sent map[string]json.RawMessage) Rung {
	format := string(sent["response_format"])
	switch {
	case strings.Contains(format, "json_schema"):
		return RungJSONSchema
	case strings.Contains(format, "json_object"):
		return RungJSONObject
	case sent["tools"] != nil:
		return RungTool
	}
	return RungPrompt
}

func TestNegotiation(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		model   Model
		refuses []string
		named   map[string]string
		seen    []string
		dropped []string
	}{
		{name: "nothing to negotiate", seen: []string{"json_schema"}},
		{
			name: "no schemas", refuses: []string{"response_format=json_schema"},
			seen: []string{"json_schema -response_format=json_schema", "tool"},
		},
		{
			name: "no schemas and no tools", refuses: []string{"response_format=json_schema", "tool_choice"},
			seen: []string{"json_schema -response_format=json_schema", "tool -tool_choice", "json_object"},
		},
		{
			name: "nothing at all", refuses: []string{"response_format", "tools"},
			seen: []string{"json_schema -response_format", "tool -tools", "json_object -response_format", "prompt"},
		},
		{
			name: "something that is not ours to drop", refuses: []string{"response_format"}, named: map[string]string{"response_format": "strict"},
			seen: []string{"json_schema -response_format", "tool"},
		},
		{
			name: "a part by its name", refuses: []string{"response_format"}, named: map[string]string{"response_format": "response_format.json_schema.strict"},
			seen: []string{"json_schema -response_format", "tool"},
		},
		{
			name: "temperature", refuses: []string{"temperature"}, seen: []string{"json_schema -temperature", "json_schema"},
			dropped: []string{"temperature"},
		},
		{
			name: "seed, then temperature", refuses: []string{"seed", "temperature"},
			seen: []string{"json_schema -seed", "json_schema -temperature", "json_schema"}, dropped: []string{"seed", "temperature"},
		},
		{
			name: "the bound under its other name", refuses: []string{"max_tokens"},
			seen: []string{"json_schema -max_tokens", "json_schema"}, dropped: []string{"max_tokens"},
		},
		{
			name: "no bound under either name", refuses: []string{"max_tokens", "max_completion_tokens"},
			seen:    []string{"json_schema -max_tokens", "json_schema -max_completion_tokens", "json_schema"},
			dropped: []string{"max_completion_tokens", "max_tokens"},
		},
		{
			name: "a gateway that calls the bound otherwise", refuses: []string{"max_tokens"}, named: map[string]string{"max_tokens": "max_output_tokens"},
			seen: []string{"json_schema -max_tokens", "json_schema"}, dropped: []string{"max_tokens"},
		},
		{
			name: "a schema, and parallel calls of its tool", refuses: []string{"response_format", "parallel_tool_calls"},
			seen:    []string{"json_schema -response_format", "tool -parallel_tool_calls", "tool"},
			dropped: []string{"parallel_tool_calls"},
		},
		{
			name: "an effort that the model lacks", model: Model{Thinking: "max", BaseURL: "https://api.openai.com"},
			refuses: []string{`reasoning_effort="max"`},
			seen:    []string{`json_schema -reasoning_effort="max"`, "json_schema"}, dropped: []string{"reasoning_effort=max"},
		},
		{
			name: "no effort at all", model: Model{Thinking: "off", BaseURL: "https://api.openai.com"},
			refuses: []string{"reasoning_effort"},
			seen:    []string{"json_schema -reasoning_effort", "json_schema -reasoning_effort", "json_schema"},
			dropped: []string{"reasoning_effort", "reasoning_effort=none"},
		},
		{
			name: "a template's switch, by its own name", model: Model{Thinking: "off"},
			refuses: []string{"chat_template_kwargs"}, named: map[string]string{"chat_template_kwargs": "enable_thinking"},
			seen: []string{"json_schema -chat_template_kwargs", "json_schema"}, dropped: []string{"chat_template_kwargs"},
		},
		{name: "known to have no schemas", model: Model{BaseURL: "https://api.deepseek.com"}, seen: []string{"json_object"}},
		{name: "known to ignore schemas", model: Model{BaseURL: "https://api.anthropic.com"}, seen: []string{"tool"}},
		{name: "known to refuse the seed", model: Model{BaseURL: "https://api.mistral.ai"}, refuses: []string{"seed"}, seen: []string{"json_schema"}, dropped: []string{"seed"}},
		{
			name: "a fixed rung gives up parameters", model: Model{Rung: RungTool}, refuses: []string{"seed", "parallel_tool_calls"},
			seen: []string{"tool -seed", "tool -parallel_tool_calls", "tool"}, dropped: []string{"parallel_tool_calls", "seed"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := &picky{t: t, refuses: c.refuses, named: c.named}
			c.model.ID = "m"
			e := mustEndpoint(t, c.model, Config{Doer: p})
			client := e.wrapNegotiate(e)
			reply, err := client.Complete(t.Context(), testRequest())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.seen, p.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if reply.Calls != len(c.seen) {
				t.Errorf("calls = %d, want %d", reply.Calls, len(c.seen))
			}
			caps := e.Capabilities()
			if diff := cmp.Diff(c.dropped, caps.Dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			if string(caps.Rung) != c.seen[len(c.seen)-1] || reply.Rung != caps.Rung || caps.Fixed != (c.model.Rung != "") || caps.Since.IsZero() {
				t.Errorf("capabilities = %+v, reply's rung %s", caps, reply.Rung)
			}

			// The result of the negotiation is remembered.
			if again, err := client.Complete(t.Context(), testRequest()); err != nil || again.Calls != 1 {
				t.Errorf("the second time: %d calls, %v", again.Calls, err)
			}
		})
	}
}

func TestCapabilitiesBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	got := mustEndpoint(t, Model{ID: "m", BaseURL: "api.openai.com"}, Config{}).Capabilities()
	want := Capabilities{URL: "https://api.openai.com/v1/chat/completions", Rung: RungJSONSchema}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
}

func TestFixedRungIsNeverLeft(t *testing.T) {
	t.Parallel()
	p := &picky{t: t, refuses: []string{"response_format"}}
	e := mustEndpoint(t, Model{Name: "judge", ID: "m", Rung: RungJSONObject}, Config{Doer: p})
	_, err := e.wrapNegotiate(e).Complete(t.Context(), testRequest())
	var fail *Error
	if !errors.As(err, &fail) || fail.Class != ClassConfig || fail.Calls != 1 || !strings.Contains(fail.Message, "json_object") || fail.Advice == "" {
		t.Errorf("error = %+v", err)
	}
	if got := p.requests(); len(got) != 1 {
		t.Errorf("requests: %v", got)
	}
}

func TestNothingLeftToDrop(t *testing.T) {
	t.Parallel()
	p := &picky{t: t, refuses: []string{"stream"}}
	e := mustEndpoint(t, Model{Name: "judge", ID: "m"}, Config{Doer: p})
	_, err := e.wrapNegotiate(e).Complete(t.Context(), testRequest())
	var fail *Error
	if !errors.As(err, &fail) || fail.Class != ClassCapability || fail.Calls != 4 || fail.Model != "judge" || !strings.Contains(fail.Advice, "no parameter is left") {
		t.Errorf("error = %+v", err)
	}
	if got := e.Capabilities().Rung; got != RungPrompt {
		t.Errorf("rung = %s", got)
	}
}

func TestNegotiationIsBoundedAndResumes(t *testing.T) {
	t.Parallel()
	p := &picky{t: t, refuses: []string{"response_format", "tools", "temperature", "seed", "max_tokens"}}
	e := mustEndpoint(t, Model{ID: "m"}, Config{Doer: p})
	client := e.wrapNegotiate(e)
	_, err := client.Complete(t.Context(), testRequest())
	var fail *Error
	if !errors.As(err, &fail) || fail.Class != ClassCapability || fail.Calls != 1+maxNegotiation || !strings.Contains(fail.Advice, "ask again") {
		t.Fatalf("error = %+v", err)
	}
	if n := len(p.requests()); n != 1+maxNegotiation {
		t.Fatalf("%d requests", n)
	}
	if reply, err := client.Complete(t.Context(), testRequest()); err != nil || reply.Rung != RungPrompt {
		t.Errorf("the second time: %+v, %v", reply, err)
	}
}

// Failures of a failing or slow endpoint are not rejections.
func TestFailuresChangeNothing(t *testing.T) {
	t.Parallel()
	for _, class := range []Class{
		ClassTimeout, ClassNetwork, ClassUpstream, ClassOverloaded, ClassNoChoices, ClassRateLimited, ClassQuota, ClassAuth, ClassNotFound,
		ClassConfig, ClassTooLong, ClassFilter, ClassRefusal, ClassTruncated, ClassAmbiguous, ClassInconsistent, ClassBreakerOpen, ClassNotBefore, ClassBusy, ClassQuality,
	} {
		e := mustEndpoint(t, Model{ID: "m"}, Config{})
		before := e.Capabilities()
		asked := 0
		client := e.wrapNegotiate(CompleterFunc(func(context.Context, Request) (Reply, error) {
			asked++
			return Reply{}, &Error{Class: class, Calls: 1}
		}))
		for range 3 {
			if _, err := client.Complete(t.Context(), testRequest()); ClassOf(err) != class {
				t.Errorf("%s became %v", class, err)
			}
		}
		if asked != 3 {
			t.Errorf("%s: asked %d times, want 3", class, asked)
		}
		if diff := cmp.Diff(before, e.Capabilities()); diff != "" {
			t.Errorf("%s changed the manner:\n%s", class, diff)
		}
	}
}

// Unusable answers reveal an endpoint that accepts a rung but ignores it.
func TestPoorAnswersStepDown(t *testing.T) {
	t.Parallel()
	const good, malformed, empty, other = "", ClassMalformed, ClassEmpty, ClassRefusal
	cases := []struct {
		name    string
		model   Model
		answers []Class
		want    Rung
	}{
		{"one is chance", Model{}, []Class{malformed}, RungJSONSchema},
		{"two in a row are not", Model{}, []Class{malformed, empty}, RungTool},
		{"an answer between", Model{}, []Class{malformed, good, empty}, RungJSONSchema},
		{"others say nothing", Model{}, []Class{malformed, other, empty}, RungTool},
		{"each rung anew", Model{}, []Class{empty, empty, empty}, RungTool},
		{"down to the last", Model{}, []Class{empty, empty, empty, empty, empty, empty, empty, empty, empty}, RungPrompt},
		{"a fixed rung", Model{Rung: RungTool}, []Class{empty, empty, empty}, RungTool},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.model.ID = "m"
			e := mustEndpoint(t, c.model, Config{})
			var class Class
			calls := 0
			client := e.wrapNegotiate(CompleterFunc(func(context.Context, Request) (Reply, error) {
				calls++
				if class == good {
					return Reply{Calls: 1}, nil
				}
				return Reply{}, &Error{Class: class, Calls: 1}
			}))
			for _, class = range c.answers {
				if _, err := client.Complete(t.Context(), testRequest()); ClassOf(err) != class {
					t.Errorf("%s became %v", class, err)
				}
			}
			if got := e.Capabilities().Rung; got != c.want {
				t.Errorf("rung = %s, want %s", got, c.want)
			}
			if calls != len(c.answers) {
				t.Errorf("asked %d times, want %d: the step is for the next question", calls, len(c.answers))
			}
		})
	}
}

// Results for an outdated manner change nothing.
func TestLateReplyDoesNotChangeTheLadder(t *testing.T) {
	t.Parallel()
	lower := func(at manner) (manner, bool) { return at.nextLower() }
	l := newLadder(manner{rung: RungJSONSchema}, false)
	_, old := l.current()
	if leads, ok := l.noteRefusal(old, false, lower); !leads || !ok {
		t.Fatalf("the first refused: leads %v, ok %v", leads, ok)
	}
	_, now := l.current()
	for _, c := range []struct {
		name    string
		version int
	}{{"somebody negotiates", now}, {"somebody negotiates, and the news are old", old}} {
		if leads, ok := l.noteRefusal(c.version, false, lower); leads || !ok {
			t.Errorf("%s: leads %v, ok %v", c.name, leads, ok)
		}
	}
	l.leave()
	if leads, ok := l.noteRefusal(old, false, lower); leads || !ok {
		t.Errorf("somebody has negotiated: leads %v, ok %v", leads, ok)
	}
	for range poorAnswers {
		l.noteAnswer(old, &Error{Class: ClassMalformed})
	}
	if at, version := l.current(); at.rung != RungTool || version != now {
		t.Errorf("old news led to %s", at.rung)
	}
}

func TestOneNegotiatesForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &picky{t: t, refuses: []string{"response_format", "tools", "seed"}, after: time.Second}
		e := mustEndpoint(t, Model{ID: "m"}, Config{Doer: p})
		client := e.wrapNegotiate(e)
		var wg sync.WaitGroup
		var answered atomic.Int32
		call := func() {
			wg.Go(func() {
				if _, err := client.Complete(t.Context(), testRequest()); err != nil {
					t.Error(err)
					return
				}
				answered.Add(1)
			})
		}
		// 20 concurrent calls are rejected together; 30 arrive while one of them negotiates.
		for range 20 {
			call()
		}
		time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // the bubble's clock
		for range 30 {
			call()
		}
		wg.Wait()
		refused := 0
		for _, s := range p.requests() {
			if strings.Contains(s, " -") {
				refused++
			}
		}
		// The first 20, and the negotiator's three: tool, json_object, seed.
		if answered.Load() != 50 || refused != 20+3 {
			t.Errorf("%d answered, %d requests refused; want 50 and 23", answered.Load(), refused)
		}
	})
}

func TestWaitingHonoursTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &picky{t: t, refuses: []string{"response_format=json_schema"}, after: 10 * time.Second}
		e := mustEndpoint(t, Model{Name: "judge", ID: "m"}, Config{Doer: p})
		client := e.wrapNegotiate(e)
		done := make(chan error, 1)
		go func() {
			_, err := client.Complete(t.Context(), testRequest())
			done <- err
		}()
		time.Sleep(11 * time.Second) //nolint:forbidigo // the bubble's clock: he negotiates now
		began := time.Now()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := client.Complete(ctx, testRequest()); !errors.Is(err, context.DeadlineExceeded) || ClassOf(err) != "" {
			t.Errorf("a caller's own deadline: %v", err)
		}
		ours, cancel := context.WithTimeoutCause(t.Context(), time.Second, &Error{Class: ClassTimeout})
		defer cancel()
		var fail *Error
		if _, err := client.Complete(ours, testRequest()); !errors.As(err, &fail) || fail.Class != ClassTimeout || fail.Model != "judge" || fail.Calls != 0 {
			t.Errorf("our deadline: %v", err)
		}
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("waited %v, want until each deadline", waited)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// If the negotiating caller cancels or panics, the others continue.
func TestNegotiatorLost(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := mustEndpoint(t, Model{ID: "m"}, Config{})
			var calls atomic.Int32
			client := e.wrapNegotiate(CompleterFunc(func(ctx context.Context, _ Request) (Reply, error) {
				switch calls.Add(1) {
				case 1:
					return Reply{}, &Error{Class: ClassCapability, Param: "response_format", Calls: 1}
				case 2:
					<-ctx.Done()
					if panics {
						panic("lost")
					}
					return Reply{}, ctx.Err()
				}
				return Reply{Calls: 1}, nil
			}))
			ctx, cancel := context.WithCancel(t.Context())
			first := make(chan error, 1)
			go func() {
				defer func() {
					if r := recover(); r != nil {
						first <- fmt.Errorf("%v", r)
					}
				}()
				_, err := client.Complete(ctx, testRequest())
				first <- err
			}()
			synctest.Wait()
			second := make(chan error, 1)
			go func() {
				_, err := client.Complete(t.Context(), testRequest())
				second <- err
			}()
			synctest.Wait()
			if n := calls.Load(); n != 2 {
				t.Fatalf("%d calls while one negotiates, want 2", n)
			}
			cancel()
			if err := <-first; err == nil {
				t.Error("the first call did not fail")
			}
			if err := <-second; err != nil {
				t.Error(err)
			}
			if got := e.Capabilities().Rung; got != RungTool {
				t.Errorf("rung = %s: what was found out is lost", got)
			}
		})
	}
}

func TestStaleCapabilitiesAreRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &picky{t: t, refuses: []string{"response_format", "seed"}, after: time.Second}
		e := mustEndpoint(t, Model{ID: "m"}, Config{Doer: p})
		client := e.wrapNegotiate(e)
		complete := func() Reply {
			t.Helper()
			reply, err := client.Complete(t.Context(), testRequest())
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		complete()
		settled := e.Capabilities()
		if settled.Rung != RungTool || settled.Since != time.Now() {
			t.Fatalf("capabilities = %+v", settled)
		}

		time.Sleep(ladderTTL - 2*time.Second) //nolint:forbidigo // the bubble's clock
		if r := complete(); r.Calls != 1 || r.Rung != RungTool {
			t.Errorf("before the day is over: %d calls, %s", r.Calls, r.Rung)
		}
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
		if r := complete(); r.Calls != 3 || r.Rung != RungTool {
			t.Errorf("after a day, unchanged: %d calls, %s; want 3 and tool", r.Calls, r.Rung)
		}
		if r := complete(); r.Calls != 1 {
			t.Errorf("after that: %d calls", r.Calls)
		}

		p.upgrade()
		time.Sleep(ladderTTL) //nolint:forbidigo // the bubble's clock
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if r, err := client.Complete(t.Context(), testRequest()); err != nil || r.Calls != 1 || r.Rung != RungJSONSchema {
					t.Errorf("after an upgrade: %+v, %v", r, err)
				}
			})
		}
		wg.Wait()
		if caps := e.Capabilities(); caps.Rung != RungJSONSchema || caps.Dropped != nil {
			t.Errorf("capabilities = %+v", caps)
		}
		// The best manner is never renegotiated.
		time.Sleep(3 * ladderTTL) //nolint:forbidigo // the bubble's clock
		before := e.Capabilities().Since
		complete()
		if got := e.Capabilities().Since; got != before {
			t.Errorf("since = %v, was %v", got, before)
		}
	})
}

// Whatever an endpoint rejects, a question takes at most five requests, and later ones take one, or the error
// reports that the endpoint cannot be used.
func TestNegotiationProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		all := []string{
			"response_format", "response_format=json_schema", "response_format=json_object", "tools", "tool_choice", "parallel_tool_calls",
			"temperature", "seed", "max_tokens", "max_completion_tokens", "reasoning_effort", `reasoning_effort="low"`,
			"thinking", "reasoning", "chat_template_kwargs", "enable_thinking", "stream",
		}
		p := &picky{t: t, refuses: rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID[string]).Draw(rt, "refuses")}
		if rapid.Bool().Draw(rt, "renamed") {
			p.named = map[string]string{"response_format": "strict", "tools": "strict"}
		}
		e := mustEndpoint(t, Model{
			ID:       "m",
			Rung:     rapid.SampledFrom([]Rung{"", "", RungJSONSchema, RungTool, RungJSONObject, RungPrompt}).Draw(rt, "rung"),
			Thinking: rapid.SampledFrom(append(efforts, "", "off")).Draw(rt, "thinking"),
			BaseURL:  rapid.SampledFrom([]string{"api.openai.com", "api.anthropic.com", "api.deepseek.com", "openrouter.ai", "localhost:8000", "dashscope.aliyuncs.com"}).Draw(rt, "base"),
		}, Config{Doer: p})
		client := e.wrapNegotiate(e)
		var last Reply
		var err error
		for range 4 {
			before := len(p.requests())
			last, err = client.Complete(rt.Context(), testRequest())
			made := len(p.requests()) - before
			calls := last.Calls
			var fail *Error
			if errors.As(err, &fail) {
				calls = fail.Calls
				if fail.Class != ClassCapability && fail.Class != ClassConfig {
					rt.Fatalf("error = %v", err)
				}
			}
			if made > 1+maxNegotiation || made != calls {
				rt.Fatalf("%d requests, of which it says %d", made, calls)
			}
		}
		if err == nil && last.Calls != 1 {
			rt.Fatalf("the fourth question still takes %d calls", last.Calls)
		}
		if err != nil && e.model.Rung == "" && !slices.Contains(p.refuses, "stream") {
			rt.Fatalf("an endpoint that takes a bare question cannot be asked: %v", err)
		}
	})
}
