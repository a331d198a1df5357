package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// until waits for a condition.
func (s *served) until(what string, done func() bool) {
	s.t.Helper()
	tick, late := time.NewTicker(20*time.Millisecond), time.After(2*patience)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-s.ended:
			s.t.Fatalf("the server ended before %s: %v\n%s", what, s.problem, s.stderr)
		case <-late:
			s.t.Fatalf("the server never came to this: %s\n%s", what, s.stderr)
		}
	}
}

// sees waits until the server has logged a text.
func (s *served) sees(text string) {
	s.t.Helper()
	s.until(text, func() bool { return strings.Contains(s.stderr.String(), text) })
}

// hangUp makes the server reload its configuration, and waits until it has.
func (s *served) hangUp() {
	s.t.Helper()
	const said = "the configuration was read"
	before := strings.Count(s.stderr.String(), said)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatal(err)
	}
	s.until(said, func() bool { return strings.Count(s.stderr.String(), said) > before })
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// strict and loose are two versions of a workflow.
const (
	strict = `{"name":"guarded","initialState":"a","states":{"a":{"transitions":{"go":{"target":"b","requiredFields":["proof"]}}},"b":{"final":true}}}`
	loose  = `{"name":"guarded","initialState":"a","states":{"a":{"transitions":{"go":{"target":"b"}}},"b":{"final":true}}}`
)

// TestReloadOfDefinitions: changed files create new versions for new instances, rejected ones change nothing, and an
// instance stays pinned to its version.
func TestReloadOfDefinitions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "guarded.json")
	put(t, file, strict)
	s := serveGavel(t, "--definitions", dir, "--definitions", filepath.Join(dir, "*"), "--log-level", "info")
	old := s.begin(s.agent, "guarded")

	put(t, file, loose)
	s.sees("a changed definition is in force for new instances")
	if got := s.move(old); got != "reject" {
		t.Errorf("an instance of the strict version: %s", got)
	}
	if got := s.move(s.begin(s.agent, "guarded")); got != "approve" {
		t.Errorf("an instance of the loose version: %s", got)
	}

	put(t, file, strings.Replace(loose, `"final":true`, `"finale":true`, 1))
	s.sees("a changed definition was refused")
	s.sees("finale")
	s.until("the part definitions is not well, and the server is ready", func() bool {
		status, ready := s.ask("", http.MethodGet, "/readyz", "")
		return status == http.StatusOK && strings.Contains(fmt.Sprint(ready), "name:definitions ok:false")
	})
	s.until("the metrics say so too", func() bool {
		_, text := s.figures(s.owner)
		return strings.Contains(text, `gavel_health{part="definitions"} 0`) && strings.Contains(text, `gavel_health{part="store"} 1`)
	})
	if got := s.move(s.begin(s.agent, "guarded")); got != "approve" {
		t.Errorf("after a refused file: %s", got)
	}

	put(t, filepath.Join(dir, "more.yaml"), "name: more\ninitialState: a\nstates: {a: {transitions: {go: b}}, b: {final: true}}\n")
	s.hangUp()
	s.begin(s.agent, "more")
	if err := os.Remove(filepath.Join(dir, "more.yaml")); err != nil {
		t.Fatal(err)
	}
	s.sees("its workflow stays defined")
	s.begin(s.agent, "more")

	t.Run("a file that a definition names", func(t *testing.T) {
		named := strings.Replace(loose, `"target":"b"`, `"target":"b","validator":{"file":"checks/go.js"}`, 1)
		if status, answer := s.ask(s.owner, http.MethodPost, "/v1/definitions", named); status != http.StatusUnprocessableEntity || !strings.Contains(fmt.Sprint(answer), "only a definition that an operator loads from disk") {
			t.Errorf("over REST, as an operator: %d %v", status, answer)
		}
		put(t, filepath.Join(dir, "checks", "go.js"), "() => false")
		put(t, filepath.Join(dir, "guarded.test.yaml"), "workflow: guarded.json\ntests: []\n") // this is not a definition
		put(t, file, named)
		s.hangUp()
		if got := s.move(s.begin(s.agent, "guarded")); got != "reject" {
			t.Errorf("with the file: %s", got)
		}
		known := strings.Count(s.stderr.String(), "in force for new instances")
		put(t, filepath.Join(dir, "checks", "go.js"), "() => true")
		s.until("the changed file is in force", func() bool { return strings.Count(s.stderr.String(), "in force for new instances") > known })
		if got := s.move(s.begin(s.agent, "guarded")); got != "approve" {
			t.Errorf("with the changed file: %s", got)
		}
		s.hangUp()
		if again := strings.Count(s.stderr.String(), "in force for new instances"); again != known+1 {
			t.Errorf("nothing was changed, and %d definitions are in force anew", again-known-1)
		}
		if strings.Contains(s.stderr.String(), "guarded.test.yaml") {
			t.Error("a file of tests was taken for a definition")
		}
	})
}

// move requests the move of the workflow guarded, and returns the outcome.
func (s *served) move(id string) string {
	s.t.Helper()
	answer := s.must(s.agent, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"go"}`)
	outcome, _ := answer["outcome"].(string)
	if d, ok := answer["decision"].(object); ok && outcome == "" {
		outcome, _ = d["outcome"].(string)
	}
	return outcome
}

// TestReloadOfSettings: a running server applies the settings that it can, and logs the others. A file with a mistake
// changes nothing.
func TestReloadOfSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "gavel.yaml")
	put(t, filepath.Join(dir, "flows", "guarded.json"), loose)
	base := "logLevel: info\ndefinitions: flows\n"
	put(t, file, base)
	s := serveGavel(t, "--config", file, "--quota-definitions", "50")
	s.begin(s.agent, "guarded")
	s.begin(s.agent, "guarded")

	put(t, file, base+"quotas: {instances: 1, definitions: 1}\nserve: {maxConns: 7}\n")
	s.sees("key=quotas.instances value=1")
	s.sees(`level=WARN msg="a changed setting takes effect only after a restart" key=serve.maxConns`)
	status, problem := s.ask(s.agent, http.MethodPost, "/v1/instances", `{"type":"guarded"}`)
	if status != http.StatusConflict || problem["code"] != "too_many_instances" {
		t.Errorf("%d %v", status, problem)
	}
	if strings.Contains(s.stderr.String(), "key=quotas.definitions") {
		t.Error("the file counts more than a flag")
	}

	put(t, file, base+"quotas: {instances: 0, bites: 1}\n")
	s.sees(`level=ERROR msg="the changed configuration was refused`)
	s.sees("did you mean")
	if status, problem := s.ask(s.agent, http.MethodPost, "/v1/instances", `{"type":"guarded"}`); status != http.StatusConflict {
		t.Errorf("a refused file is in force: %d %v", status, problem)
	}

	put(t, file, base+"quotas: {instances: 0}\nevidence: {sorces: {}}\n") // neither valid nor accepted
	s.sees("sorces")
	if status, problem := s.ask(s.agent, http.MethodPost, "/v1/instances", `{"type":"guarded"}`); status != http.StatusConflict {
		t.Errorf("a half of a refused file is in force: %d %v", status, problem)
	}

	put(t, file, base+"quotas: {instances: 0}\n")
	s.hangUp()
	s.begin(s.agent, "guarded")

	put(t, filepath.Join(dir, "others", "other.json"), strings.Replace(loose, "guarded", "other", 1))
	put(t, file, "logLevel: info\ndefinitions: [flows, others]\nserve: {rate: 0.001, rateBurst: 2}\n")
	s.hangUp()
	s.begin(s.agent, "other")
	s.must(s.agent, http.MethodGet, "/v1/whoami", "")
	if status, problem := s.ask(s.agent, http.MethodGet, "/v1/whoami", ""); status != http.StatusTooManyRequests || problem["code"] != "rate_limited" {
		t.Errorf("%d %v", status, problem)
	}
	s.must(s.owner, http.MethodGet, "/v1/whoami", "") // operators are not limited
}

// TestFolderThatFills: a server can start before its definitions exist.
func TestFolderThatFills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serveGavel(t, "--definitions", dir, "--log-level", "info")
	put(t, filepath.Join(dir, "guarded.json"), loose)
	s.sees("a changed definition is in force for new instances")
	s.begin(s.agent, "guarded")
}
