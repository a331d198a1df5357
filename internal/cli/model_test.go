package cli

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
)

func TestCutModel(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][2]string{
		"gpt-5-mini":                      {"gpt-5-mini", ""},
		"small@https://other.example/v1":  {"small", "https://other.example/v1"},
		"org/model@2026-01-01":            {"org/model@2026-01-01", ""},
		"org/m@v1@http://localhost:11434": {"org/m@v1", "http://localhost:11434"},
		"@https://other.example":          {"@https://other.example", ""},
	} {
		name, base, elsewhere := CutModel(spec)
		if name != want[0] || base != want[1] || elsewhere != (want[1] != "") {
			t.Errorf("%s: %q, %q, %t", spec, name, base, elsewhere)
		}
	}
}

func TestLocalURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		"http://localhost:11434": true, "localhost:1234": true, "127.0.0.1": true, "http://[::1]:8000/v1": true,
		"https://api.openai.com": false, "http://localhost.example.com": false, "http://10.0.0.7": false, "::not a url": false,
	} {
		if got := localURL(raw); got != want {
			t.Errorf("%s: %t", raw, got)
		}
	}
}

// The key of the first endpoint is never sent to another endpoint.
func TestKeysStayWithTheirEndpoints(t *testing.T) {
	t.Setenv(KeyVariable, "first-key")
	t.Setenv(FallbackKeyVariable, "other-key")
	f := ModelFlags{
		Model: "a", BaseURL: "https://one.example", Also: []string{"b", "e@https://three.example/v1"}, Structured: "tool", Window: time.Hour,
		Fallbacks: []string{"c", "d@https://two.example/v1"},
	}
	cfg, err := f.BuildConfig(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]string{
		"a": {"https://one.example", "first-key"}, "b": {"https://one.example", "first-key"},
		"c": {"https://one.example", "first-key"}, "d": {"https://two.example/v1", "other-key"}, "e": {"https://three.example/v1", "other-key"},
	}
	if len(cfg.Models) != len(want) || strings.Join(cfg.Fallbacks, " ") != "c d" {
		t.Fatalf("%+v", cfg)
	}
	for _, m := range cfg.Models {
		if got := [2]string{m.BaseURL, m.APIKey}; got != want[m.Name] || m.Rung != llm.RungTool {
			t.Errorf("%s: %v, rung %s", m.Name, got, m.Rung)
		}
	}
}

// Per-model settings apply to that model only.
func TestSettingsOfAModel(t *testing.T) {
	t.Parallel()
	f := func(settings ...string) ModelFlags {
		return ModelFlags{Model: "qwen3:8b", BaseURL: "http://localhost:1", Also: []string{"b"}, Thinking: "low", Structured: "tool", Parallel: 3, For: settings}
	}
	one := f("qwen3:8b timeout=45s  thinking=high structured=auto price-in=0.5", "b timeout=5s price-out=2")
	cfg, err := one.BuildConfig(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a, b := cfg.Models[0], cfg.Models[1]
	if a.Timeout != 45*time.Second || a.Thinking != "high" || a.Rung != "" || *a.PromptUSD != 0.5 || a.CompletionUSD != nil ||
		b.Timeout != 5*time.Second || b.Thinking != "low" || b.Rung != llm.RungTool || *b.CompletionUSD != 2 || cfg.Parallel != 3 {
		t.Errorf("%+v", cfg)
	}
	for settings, says := range map[string]string{
		"": "give the name", "b": "give the name", "c timeout=5s": `no model "c"`, "b timeout=5": "timeout: ", "b timeout=-5s": "more than 0", "b timeout": "timeout: ",
		"b thinking=hard": "thinking mode", "b price-in=free": "not a price", "b price-out=-1": "not a price", "b time=5s": "time: unknown; use timeout",
	} {
		wrong := f(settings)
		if _, err := wrong.BuildConfig(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", settings, err, says)
		}
	}
}

// The log line at the end of an outage has its duration and the number of decisions made during it. The default
// log level includes the line.
func TestOutageLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	m := &Model{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	m.countOutage(judge.Opinion{Trouble: judge.TroubleUnavailable})
	m.countOutage(judge.Opinion{Trouble: judge.TroubleUnreadable, Model: &judge.ModelRecord{Calls: 1}})
	m.countOutage(judge.Opinion{Trouble: judge.TroubleUnavailable})
	m.logOutage(llm.Outage{Model: "m", Endpoint: "host", Since: time.Now().Add(-time.Minute), Over: true})
	if line := out.String(); !strings.Contains(line, "answers again") || !strings.Contains(line, "model=m endpoint=host after=1m0s decisionsWithout=2") {
		t.Error(line)
	}
	if m.countOutage(judge.Opinion{Model: &judge.ModelRecord{Calls: 1}}); m.unjudged.Load() != 0 {
		t.Errorf("%d after a judgement", m.unjudged.Load())
	}
}

func TestKeyFile(t *testing.T) {
	t.Setenv(KeyVariable, "from the environment")
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("  from-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := (&ModelFlags{KeyFile: path}).key(); err != nil || key != "from-the-file" {
		t.Errorf("%q, %v", key, err)
	}
	if _, err := (&ModelFlags{}).key(); err == nil || strings.Contains(err.Error(), "environment") {
		t.Errorf("a key with spaces: %v", err)
	}
	if _, err := (&ModelFlags{KeyFile: path + "x"}).key(); err == nil {
		t.Error("a missing file is no key")
	}
}

// Settings without a model are reported.
func TestHalfConfiguredModel(t *testing.T) {
	t.Setenv(KeyVariable, "k")
	t.Setenv("LLM_BASE_URL", "")
	var out bytes.Buffer
	m, err := (&ModelFlags{Window: time.Hour, Thinking: "auto", Structured: "auto"}).Open(slog.New(slog.NewTextHandler(&out, nil)))
	if m != nil || err != nil || !strings.Contains(out.String(), "LLM_JUDGE_MODEL is not set") {
		t.Errorf("%v, %v, %s", m, err, out.String())
	}
	if _, err := (&ModelFlags{Window: time.Hour, Thinking: "auto", Fallbacks: []string{"x"}}).Open(slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a fallback without a first model")
	}
}
