package llmtest_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
	"github.com/gavel-mcp/gavel/prompts"
)

// request returns a question in the form that the judge sends.
func request(t testing.TB) llm.Request {
	t.Helper()
	p, err := prompts.Render(prompts.TransitionV3, prompts.Input{
		Workflow: "w", From: "a", Action: "go", To: "b", Marker: "Mark7", Nonce: "N0nce7",
		Criteria:  []prompts.Criterion{{ID: "c1", Text: "names what was read"}, {ID: "c2", Text: "says what was checked"}},
		Documents: []prompts.Document{{Name: "context", Text: `{}`}, {Name: "data", Text: `{"comments":"Read sections 1 to 4."}`}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return llm.Request{System: p.System, User: p.User, Shape: p.Shape, Schema: p.Schema, Nonce: "N0nce7"}
}

func client(t testing.TB, d llm.Doer) *llm.Client {
	t.Helper()
	return clientAt(t, d, "")
}

func clientAt(t testing.TB, d llm.Doer, rung llm.Rung) *llm.Client {
	t.Helper()
	c, err := llm.New(llm.Config{Models: []llm.Model{{Name: "m", ID: "m", BaseURL: "http://localhost:9", APIKey: "k", Rung: rung}}, Doer: d})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// With every provider, the client gets the model's answer and remembers what it learned, so the second
// question takes only one request.
func TestProvidersThroughTheClient(t *testing.T) {
	t.Parallel()
	for _, p := range llmtest.Providers() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // retries wait in fake time
				for _, brain := range []llmtest.Brain{llmtest.Approver, llmtest.Rejecter} {
					provider := llmtest.New(p.Personality, brain)
					c := client(t, provider)
					reply, err := c.Complete(t.Context(), request(t))
					if err != nil {
						t.Fatal(err)
					}
					want := brain(provider.Requests()[provider.Count()-1].Question).Answer
					if reply.Answer.Approved != want.Approved || reply.Answer.Confidence != want.Confidence || !slices.Equal(reply.Answer.Criteria, want.Criteria) {
						t.Errorf("got %+v, the model said %+v", reply.Answer, want)
					}
					if provider.Count() != p.Requests || reply.Calls != p.Requests || reply.Rung != p.Rung {
						t.Errorf("%d requests (%d said), answered by %s; want %d, %s", provider.Count(), reply.Calls, reply.Rung, p.Requests, p.Rung)
					}
					found := c.Stats().Models[0].Capabilities
					if found.Rung != p.Rung || !slices.Equal(slices.Sorted(slices.Values(found.Dropped)), slices.Sorted(slices.Values(p.Dropped))) {
						t.Errorf("found out %s, dropped %v; want %s, %v", found.Rung, found.Dropped, p.Rung, p.Dropped)
					}
					if _, err := c.Complete(t.Context(), request(t)); err != nil || provider.Count() != p.Requests+1 {
						t.Errorf("the second question: %v after %d requests", err, provider.Count()-p.Requests)
					}
					for _, r := range provider.Requests() {
						if r.Authorization != "Bearer k" || r.Path != "/v1/chat/completions" {
							t.Errorf("%s with %q", r.Path, r.Authorization)
						}
					}
				}
			})
		})
	}
}

// In all rungs, the client reads the documented bodies of three servers like plain ones, and ignores the
// model's thinking.
func TestDocumentedBodiesAtEveryRung(t *testing.T) {
	t.Parallel()
	for name, personality := range map[string]llmtest.Personality{"vLLM": llmtest.VLLMParsed(), "Ollama": llmtest.Ollama(), "LiteLLM": llmtest.LiteLLMProxy()} {
		for _, rung := range []llm.Rung{llm.RungJSONSchema, llm.RungTool, llm.RungJSONObject, llm.RungPrompt} {
			for _, brain := range []llmtest.Brain{llmtest.Approver, llmtest.Rejecter} {
				provider := llmtest.New(personality, brain)
				c := clientAt(t, provider, rung)
				reply, err := c.Complete(t.Context(), request(t))
				if err != nil {
					t.Errorf("%s, %s: %v", name, rung, err)
					continue
				}
				want := brain(provider.Requests()[0].Question).Answer
				if reply.Lenient || reply.Calls != 1 || reply.Rung != rung || reply.Answer.Approved != want.Approved || !slices.Equal(reply.Answer.Criteria, want.Criteria) {
					t.Errorf("%s, %s: %+v, the model said %+v", name, rung, reply, want)
				}
				if reply.Usage == nil || reply.Usage.Prompt != 800 || reply.Usage.Completion != 100 {
					t.Errorf("%s, %s: usage %+v", name, rung, reply.Usage)
				}
			}
		}
	}
}

// Through the whole client, every fault gives its class in time and after few requests.
func TestFaultsThroughTheClient(t *testing.T) {
	t.Parallel()
	for _, f := range llmtest.Faults() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				provider := llmtest.New(f.Personality, llmtest.Approver)
				began := time.Now()
				_, err := client(t, provider).Complete(t.Context(), request(t))
				var fail *llm.Error
				if !errors.As(err, &fail) || fail.Class != f.Class {
					t.Fatalf("%v; want %s", err, f.Class)
				}
				most := 3
				if f.Name == "500" {
					most++ // a 500 may mean that the form is not supported
				}
				if fail.Message == "" || fail.Model != "m" || fail.Calls != provider.Count() || provider.Count() > most || time.Since(began) > 20*time.Second {
					t.Errorf("%+v after %d requests and %v", fail, provider.Count(), time.Since(began))
				}
			})
		})
	}
}

// A body that stops in the middle costs at most the time of one attempt.
func TestBodiesThatStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		personality llmtest.Personality
		class       llm.Class
	}{
		"stalls": {llmtest.Stall(), llm.ClassTimeout},
		"breaks": {llmtest.CutBody(), llm.ClassNetwork},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				provider := llmtest.New(c.personality, llmtest.Approver)
				began := time.Now()
				if _, err := client(t, provider).Complete(t.Context(), request(t)); llm.ClassOf(err) != c.class || time.Since(began) > 20*time.Second {
					t.Errorf("%v after %d requests and %v; want %s", err, provider.Count(), time.Since(began), c.class)
				}
			})
		})
	}
}
