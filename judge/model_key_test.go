package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
)

// requestFor returns the request to a model about a case.
func requestFor(t testing.TB, cfg ModelConfig, c Case) llm.Request {
	t.Helper()
	m := tells(approving(idsOf(t, c)))
	cfg.Completer = m
	opine(t, newModel(t, cfg), c)
	return m.asked[0]
}

// Two questions have the same key only if an answer to one answers the other, for
// the same instance and principal.
func TestCacheKey(t *testing.T) {
	t.Parallel()
	base := requestFor(t, ModelConfig{}, reviewCase())
	if base.Key == "" {
		t.Fatal("no key")
	}
	same := map[string]func(*Case){
		"another time":      func(c *Case) { c.Now = c.Now.Add(time.Hour) },
		"a pre-check":       func(c *Case) { c.Precheck = true },
		"another guard":     func(c *Case) { c.Guard = "x" },
		"other policy":      func(c *Case) { c.ReviewPath = true },
		"another seed":      func(c *Case) { c.Seed++ },
		"nothing at all":    func(*Case) {},
		"what is not shown": func(c *Case) { c.Data = document.ReadTrusted([]byte(`{"plain":1}`)) },
	}
	for name, change := range same {
		req := requestFor(t, ModelConfig{}, reviewCase(change))
		if req.Key != base.Key {
			t.Errorf("%s: another key", name)
		}
		if req.Nonce == base.Nonce || len(req.Nonce) < 16 {
			t.Errorf("%s: nonce %q", name, req.Nonce)
		}
	}
	other := map[string]func(*Case){
		"instance":     func(c *Case) { c.Instance = "wf-2" },
		"principal":    func(c *Case) { c.Principal = "bob" },
		"identity":     func(c *Case) { c.Identity = "x" },
		"definition":   func(c *Case) { c.DefinitionHash = "x" },
		"judge config": func(c *Case) { c.JudgeConfigHash = "x" },
		"model":        func(c *Case) { c.Rubric.Model = "second" },
		"criteria":     func(c *Case) { c.Rubric.Criteria[0] += "?" },
		"data":         func(c *Case) { c.MaskedData = document.ReadTrusted([]byte(`{"comments":"` + quote + `!"}`)) },
		"prompt":       func(c *Case) { c.Rubric.Prompt = "v3" },
		"role":         func(c *Case) { c.Role = "operator" },
		"path":         func(c *Case) { c.Path.States = []string{"draft"} },
		"context":      func(c *Case) { c.MaskedContext = document.ReadTrusted([]byte(`{"a":1}`)) },
		// The boundary between two parts matters.
		"parts": func(c *Case) { c.Instance, c.Principal = "wf-1a", "nn" },
	}
	seen := map[string]string{base.Key: "the base"}
	for name, change := range other {
		key := requestFor(t, ModelConfig{}, reviewCase(change)).Key
		if seen[key] != "" {
			t.Errorf("%s has the key of %s", name, seen[key])
		}
		seen[key] = name
	}
	fitted, err := NewCalibrations([]Calibration{{Model: "x", PromptDigest: "x", CriteriaDigest: "x", Platt: Platt{A: -1}, N: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if requestFor(t, ModelConfig{Calibrations: fitted}, reviewCase()).Key == base.Key {
		t.Error("calibrations: the same key")
	}
	for name, change := range map[string]func(*Case){
		"instance": func(c *Case) { c.Instance = "" },
		"identity": func(c *Case) { c.Identity = "" },
	} {
		if key := requestFor(t, ModelConfig{}, reviewCase(change)).Key; key != "" {
			t.Errorf("without %s: the key %q", name, key)
		}
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	c := reviewCase(func(c *Case) { c.Rubric.Model = "second" })
	n := 0
	req := requestFor(t, ModelConfig{Random: func() string { n++; return strings.Repeat(string(rune('A'+n)), 20) }}, c)
	marker, nonce := strings.Repeat("B", 20), strings.Repeat("C", 20)
	q, err := askQuestion(c, prompts.TransitionV4, marker, nonce)
	if err != nil {
		t.Fatal(err)
	}
	if req.System != q.prompt.System || req.User != q.prompt.User || req.Shape != q.prompt.Shape || string(req.Schema) != string(q.prompt.Schema) {
		t.Errorf("not the question: %+v", req)
	}
	if req.Nonce != nonce || req.Model != "second" || req.Caller != "ann" || req.Check == nil || !strings.Contains(req.User, marker) {
		t.Errorf("%+v", req)
	}
}

// The memory keeps answers that are not approvals until they are cleared; no cache may return them after that.
func TestKeep(t *testing.T) {
	t.Parallel()
	yes := approving(idsOf(t, reviewCase()))
	no := yes
	no.InjectionSuspected = true
	for _, memory := range []Memory{nil, &ledger{}} {
		keep := requestFor(t, ModelConfig{Memory: memory}, reviewCase()).Keep
		if !keep(yes) || keep(no) != (memory == nil) {
			t.Errorf("with %v: an approval %v, a refusal %v", memory, keep(yes), keep(no))
		}
	}
}

// With cassettes the same case makes the same request, and a different case a different one.
func TestStable(t *testing.T) {
	t.Parallel()
	cfg := ModelConfig{Stable: true, Untimed: true, Random: func() string { t.Error("random"); return "XXXXXXXXXXXXXXXXXXXX" }}
	base := requestFor(t, cfg, reviewCase())
	same := requestFor(t, cfg, reviewCase(func(c *Case) {
		c.Instance, c.Principal, c.Now, c.Seed, c.Guard = "wf-2", "bob", c.Now.Add(time.Hour), 7, "x"
	}))
	if base.User != same.User || base.System != same.System || base.Nonce != same.Nonce {
		t.Error("the same case makes another request")
	}
	if strings.Contains(base.User, base.Nonce) || len(base.Nonce) < 16 {
		t.Errorf("nonce %q", base.Nonce)
	}
	for name, change := range map[string]func(*Case){
		"data":     func(c *Case) { c.MaskedData = document.ReadTrusted([]byte(`{"comments":"` + quote + `!"}`)) },
		"criteria": func(c *Case) { c.Rubric.Criteria[0] += "?" },
		"target":   func(c *Case) { c.Candidates[0].Target = "x" },
	} {
		if other := requestFor(t, cfg, reviewCase(change)); other.Nonce == base.Nonce {
			t.Errorf("other %s, the same nonce", name)
		}
	}
}
