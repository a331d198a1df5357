package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// fadingPaper is a workflow that keeps histories for 30 days.
const fadingPaper = `{"name":"paper","initialState":"draft","retention":{"events":"30d"},"states":{
	"draft":{"transitions":{"submit":{"target":"reviewing","requiredFields":["summary"]}}},
	"reviewing":{"transitions":{"publish":"published","reject":"draft"}},
	"published":{"final":true}}}`

// agedStore creates a store whose events are a hundred days old.
func agedStore(t *testing.T, path string) {
	t.Helper()
	now := time.Now().Add(-100 * 24 * time.Hour)
	sys, err := gavel.Open(t.Context(), gavel.Config{Store: path, Configure: func(c *engine.Config) {
		c.Now = func() time.Time { now = now.Add(time.Second); return now }
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	e := sys.Engine
	agent := engine.Principal{ID: "local:agent", Role: engine.RoleAgent}
	if _, err := e.Define(t.Context(), gavel.Operator, engine.DefineRequest{Document: []byte(fadingPaper)}); err != nil {
		t.Fatal(err)
	}
	move := func(id, action, data string) {
		t.Helper()
		if _, err := e.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(data))}); err != nil {
			t.Fatal(err)
		}
	}
	start := func() string {
		t.Helper()
		s, err := e.Start(t.Context(), agent, engine.StartRequest{Type: "paper", Context: json.RawMessage(`{"title":"On gates"}`)})
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	published, pinned, running := start(), start(), start()
	for _, id := range []string{published, pinned, running} {
		move(id, "submit", `{}`) // refused
		move(id, "submit", `{"summary":"how gates are built"}`)
	}
	if _, err := e.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: pinned, Description: "before it was published"}); err != nil {
		t.Fatal(err)
	}
	move(published, "publish", `{}`)
	move(pinned, "publish", `{}`)
}

// The records page shows the actual output.
func TestRecoveryPageShowsTheOutput(t *testing.T) {
	t.Parallel()
	const page = "../../docs/records.md"
	dir := t.TempDir()
	s := &shop{t: t, gate: dir, store: filepath.Join(dir, "gavel.db")}
	agedStore(t, s.store)

	printed := body(s.say("backup", "monday.db") + s.say("restore", "monday.db", "--force"))
	showsAt(t, page, "backup", regexp.MustCompile(`before-restore-\w+`).ReplaceAllString(printed, "before-restore-20260102T030405Z"))

	harmed, err := os.ReadFile(filepath.Join(dir, "monday.db"))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(harmed, []byte(`"patch":{"summary":"how gates are built"`))
	if at < 0 {
		t.Fatal("no event to harm")
	}
	harmed[at+len(`"patch":{"summary":"`)] = 'H'
	if err := os.WriteFile(filepath.Join(dir, "harmed.db"), harmed, 0o600); err != nil {
		t.Fatal(err)
	}
	showsAt(t, page, "repair", body(s.bad("repair", "--store", "harmed.db", "--out", "saved.db")))

	showsAt(t, page, "retain", body(s.say("retain", "--dry-run")+s.say("retain")+s.say("verify")))
	if out := s.say("retain"); !bytes.Contains([]byte(out), []byte("removed 0 events of 0 histories")) {
		t.Errorf("the second time: %s", out)
	}
}
