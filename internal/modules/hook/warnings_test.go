package hook_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/judge"
)

// A server warns of rules that no person approved, or that changed since.
func TestWarnsOfUntrustedRules(t *testing.T) {
	t.Parallel()
	var db store.Store
	e := enginetest.New(t, judge.Config{}, func(cfg *engine.Config) { db = cfg.Store })
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "gavel.yaml")
	find := func(text string) string {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		x := module.All()[0].Extend(module.Setup{File: file, Log: slog.New(slog.DiscardHandler)})
		if err := x.Connect(module.System{Engine: e, Store: db}); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, w := range x.Warnings(t.Context()) {
			if !strings.Contains(w.Next, "gavel hook trust --config "+path) {
				t.Errorf("the warning does not say what to do: %q", w.Next)
			}
			all = append(all, w.Text)
		}
		return strings.Join(all, "\n")
	}
	const rules, changed = "hooks: {onFailure: deny}\n", "hooks: {onFailure: allow}\n"
	if got := find("{}\n"); got != "" {
		t.Errorf("a file without rules: %s", got)
	}
	if got := find(rules); !strings.HasPrefix(got, "No person approved the rules") {
		t.Errorf("never approved: %q", got)
	}
	operator := engine.Principal{ID: "local:cli", Role: engine.RoleOperator}
	if _, err := e.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(`{"name":"gavel.hook-rules","initialState":"approved","states":{"approved":{"transitions":{"retire":"retired"}},"retired":{"final":true}}}`)}); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(rules))
	settings := filepath.Join(dir, "settings.json")
	approved, err := json.Marshal(map[string]any{
		"config": rules, "files": map[string]string{path: hex.EncodeToString(sum[:])}, "noticed": "",
		"hooks": []map[string]any{{"client": "claude-code", "file": settings, "events": []string{"PreToolUse"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Start(t.Context(), operator, engine.StartRequest{Type: "gavel.hook-rules", Subject: "file:" + path, Context: approved}); err != nil {
		t.Fatal(err)
	}
	if got := find(rules); !strings.Contains(got, "are gone: PreToolUse") || strings.Contains(got, "changed since") {
		t.Errorf("approved, without the hooks that were installed: %q", got)
	}
	if got := find(changed); !strings.Contains(got, "changed since a person approved them: "+path) {
		t.Errorf("changed since the approval: %q", got)
	}
}
