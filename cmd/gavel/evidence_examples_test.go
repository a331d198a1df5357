package main

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/testdata"
)

// openShop copies an example. edit holds replacements in gavel.yaml.
func openShop(t *testing.T, example string, edit ...string) *shop {
	t.Helper()
	root := t.TempDir()
	s := &shop{t: t, gate: filepath.Join(root, "gate"), repository: filepath.Join(root, "repository"), store: filepath.Join(root, "gate", "gavel.db")}
	files, err := fs.Glob(testdata.Evidence, "evidence/"+example+"/*")
	if err != nil || len(files) < 2 {
		t.Fatalf("the example %s has files %v, %v", example, files, err)
	}
	for _, name := range files {
		text, err := testdata.Evidence.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if path.Base(name) == "gavel.yaml" {
			changed := strings.NewReplacer(edit...).Replace(string(text))
			if len(edit) > 0 && changed == string(text) {
				t.Fatal("nothing was changed in gavel.yaml")
			}
			text = []byte(changed)
		}
		s.write(filepath.Join(s.gate, path.Base(name)), string(text))
	}
	return s
}

func (s *shop) write(file, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// config returns the flag that every command of the operator gets.
func (s *shop) config() []string { return []string{"--config", filepath.Join(s.gate, "gavel.yaml")} }

// definition returns the path of the example's definition.
func (s *shop) definition() string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.gate, "*.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range files {
		if filepath.Base(f) != "gavel.yaml" {
			return f
		}
	}
	s.t.Fatal("no definition")
	return ""
}

// serve starts a server for a role.
func (s *shop) serve(role, principal string) *server {
	s.t.Helper()
	return launch(s.t, append(s.config(), "--store", s.store, "--definitions", s.definition(), "--role", role, "--principal", principal)...)
}

// git runs git in the repository and returns its output.
func (s *shop) git(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "git", args...)
	cmd.Dir = s.repository
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_DATE=2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z", // for reproducible commits
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// The agent's project, with a correct or a wrong function.
const (
	projectTest = "package price\n\nimport \"testing\"\n\nfunc TestTotal(t *testing.T) {\n\tif got := Total(20, 2); got != 18 {\n\t\tt.Errorf(\"total is %d, want 18\", got)\n\t}\n}\n"
	wrongTotal  = "package price\n\nfunc Total(price, discount int) int { return price }\n"
	rightTotal  = "package price\n\nfunc Total(price, discount int) int { return price - discount }\n"
)

// openRepository creates the project with its first commit on main. It skips the test if that is not possible.
func (s *shop) openRepository(total string) (commit string) {
	s.t.Helper()
	for _, program := range []string{"git", "go", "sh"} {
		if _, err := exec.LookPath(program); err != nil {
			s.t.Skipf("%s is not installed, and the example runs it", program)
		}
	}
	for name, text := range map[string]string{"go.mod": "module example.com/price\n\ngo 1.26\n", "price.go": total, "price_test.go": projectTest} {
		s.write(filepath.Join(s.repository, name), text)
	}
	s.git("init", "--quiet", "--initial-branch=main")
	return s.commit()
}

func (s *shop) commit() string {
	s.t.Helper()
	s.git("add", "--all")
	s.git("commit", "--quiet", "--message=work")
	return s.git("rev-parse", "HEAD")
}

// refusedFor checks that a layer refused a move for a reason that contains words.
func refusedFor(t *testing.T, r toolResult, layer string, words ...string) {
	t.Helper()
	decision, _ := r.Body["decision"].(object)
	if !r.IsError || decision["decidedBy"] != layer || decision["outcome"] != "reject" {
		t.Errorf("not refused by the layer %s: %s", layer, r.text())
	}
	for _, word := range words {
		if !strings.Contains(fmt.Sprint(decision["findings"]), word) {
			t.Errorf("the findings do not name %q: %v", word, decision["findings"])
		}
	}
}

// With --strict, lint fails on warnings too.
func TestExamplesWithEvidenceAreClean(t *testing.T) {
	t.Setenv("TICKETS_TOKEN", "secret")
	for _, example := range []string{"code-review", "deployment", "incident"} {
		s := openShop(t, example)
		if out := runGavel(t, append([]string{"lint", "--strict", s.definition()}, s.config()...)...); len(out) > 0 {
			t.Errorf("%s: %s", example, out)
		}
	}
}

// In the code review example, an agent claims that its tests pass.
func TestExampleCodeReview(t *testing.T) {
	t.Parallel()
	s := openShop(t, "code-review")
	wrong := s.openRepository(wrongTotal)
	agent := s.serve("agent", "ada")
	id := agent.must("workflow.start", object{"type": "change-review"}).field("id")
	submit := func(data object) toolResult {
		data["summary"] = "The discount is in, and all tests pass: 1 of 1."
		return agent.call("workflow.advance", object{"id": id, "action": "submit", "data": data})
	}

	refusedFor(t, submit(object{"commit": wrong}), "script", "The tests do not pass", "TestTotal")
	refusedFor(t, submit(object{"commit": wrong, "evidence": object{"tests": object{"exitCode": 0}}}), "script", "TestTotal")
	refusedFor(t, submit(object{"commit": "HEAD"}), "schema")
	refusedFor(t, submit(object{"commit": "--output=/tmp/owned"}), "schema")
	refusedFor(t, submit(object{"commit": strings.Repeat("0", 40)}), "script", "has no commit")
	refusedFor(t, submit(object{"commit": s.git("rev-parse", "HEAD^{tree}")}), "script", "is no commit")

	// Neither the checked-out files nor uncommitted changes count.
	s.write(filepath.Join(s.repository, "price.go"), rightTotal)
	refusedFor(t, submit(object{"commit": wrong, "mended": true}), "script", "TestTotal")
	right := s.commit()
	s.write(filepath.Join(s.repository, "price.go"), "no Go\n")
	if r := submit(object{"commit": right}); r.IsError || r.field("state") != "submitted" {
		t.Fatalf("the honest agent: %s", r.text())
	}

	// The reviewer reads the commit. The agent cannot decide for the reviewer or substitute another commit.
	merge := func(by *server, commit string) toolResult {
		return by.call("workflow.advance", object{"id": id, "action": "merge", "data": object{"reviewed": commit, "notes": "read both files"}})
	}
	refusedFor(t, merge(agent, right), "transition")
	reviewer := s.serve("reviewer", "rob")
	s.write(filepath.Join(s.repository, "price.go"), rightTotal+"\n// and more\n")
	refusedFor(t, merge(reviewer, s.commit()), "script", "Handed in and tested was "+right)
	if r := merge(reviewer, right); r.IsError || r.field("state") != "merged" {
		t.Errorf("the reviewer: %s", r.text())
	}
}

// In the deployment example, a commit moves to production.
func TestExampleDeployment(t *testing.T) {
	t.Parallel()
	s := openShop(t, "deployment")
	wrong := s.openRepository(wrongTotal)
	// The agent excludes the test from archives and fixes nothing.
	s.write(filepath.Join(s.repository, ".gitattributes"), "price_test.go export-ignore\n")
	hidden := s.commit()
	s.write(filepath.Join(s.repository, "price.go"), rightTotal)
	right := s.commit()
	s.git("switch", "--quiet", "--create", "side")
	s.write(filepath.Join(s.repository, "side.go"), "package price\n")
	side := s.commit()

	agent := s.serve("agent", "ada")
	propose := func(commit string) (string, toolResult) {
		id := agent.must("workflow.start", object{"type": "production-deployment"}).field("id")
		return id, agent.call("workflow.advance", object{"id": id, "action": "propose", "data": object{"commit": commit, "summary": "All tests of it pass, I have seen it."}})
	}
	act := func(by *server, id, action string, data object) toolResult {
		return by.call("workflow.advance", object{"id": id, "action": action, "data": data})
	}

	for commit, why := range map[string]string{strings.Repeat("a", 40): "has no commit", side: "not a part of main"} {
		_, r := propose(commit)
		refusedFor(t, r, "script", why)
	}
	for _, commit := range []string{wrong, hidden} {
		id, r := propose(commit)
		if r.IsError {
			t.Fatal(r.text())
		}
		refusedFor(t, act(agent, id, "stage", object{}), "script", "The tests fail", "TestTotal")
		refusedFor(t, act(agent, id, "stage", object{"commit": right}), "script", "TestTotal") // the frozen commit is the one tested
	}

	id, r := propose(right)
	if r.IsError {
		t.Fatal(r.text())
	}
	refusedFor(t, act(agent, id, "stage", object{"commit": side}), "state", "commit")
	if r := act(agent, id, "stage", object{}); r.IsError {
		t.Fatal(r.text())
	}
	refusedFor(t, act(agent, id, "signOff", object{"notes": "looked at it"}), "transition")
	reviewer := s.serve("reviewer", "rob")
	if r := act(reviewer, id, "signOff", object{"notes": "looked at it on staging"}); r.IsError {
		t.Fatal(r.text())
	}
	s.release(agent, reviewer, id)
}

// release parks the release and has an authorised reviewer decide it once.
func (s *shop) release(agent, reviewer *server, id string) {
	s.t.Helper()
	release := object{"id": id, "action": "release", "data": object{}}
	parked := agent.call("workflow.advance", release)
	review, _ := parked.Body["review"].(object)
	if !parked.IsError || parked.outcome() != "escalate" || review["priority"] != "high" {
		s.t.Fatalf("not parked: %s", parked.text())
	}
	name := fmt.Sprint(review["reviewId"])
	for who, by := range map[string]*server{"the agent": agent, "who signed off": reviewer} {
		r := by.call("workflow.review.resolve", object{"reviewId": name, "decision": "approve", "reason": "it is fine"})
		if !r.IsError {
			s.t.Fatalf("%s decided the release: %s", who, r.text())
		}
	}
	page := s.say("review", "list") + s.say("review", "show", name)
	page += s.say("review", "approve", name, "--reason", "'Announced for tonight.'", "--config", "gavel.yaml", "--principal", "people:ann")
	page += s.say("instances", "show", id)
	shows(s.t, "../../docs/reviews.md", steadyEvidence(strings.TrimSuffix(page, "\n")))
	if r := agent.must("workflow.status", object{"id": id}); r.field("state") != "released" {
		s.t.Errorf("the agent sees %s", r.field("state"))
	}
}

// exitedWithZero is the digest of a command's result that contains only exit code 0.
const exitedWithZero = "6041df3e9b345d68be886f995c452395674ea950cd3ca9992c13b64f3aa9cbd0"

// steadyEvidence replaces values that differ between two runs of the same tests: durations, and the digests and
// sizes that depend on them.
func steadyEvidence(s string) string {
	s = regexp.MustCompile(`price \d+\.\d+s( \(cached\))?`).ReplaceAllString(s, "price 0.002s")
	s = regexp.MustCompile(`sha256:[0-9a-f]{64}`).ReplaceAllStringFunc(s, func(digest string) string {
		if digest == "sha256:"+exitedWithZero {
			return digest
		}
		return "sha256:35f3b7eb928538e82890e8c4e4c9e390303b1d79acd76136ae4a3f380006426b"
	})
	s = regexp.MustCompile(`(?m)( {2})[0-9.]+[nµm]?s( {2}|$)`).ReplaceAllString(s, "${1}20ms$2")
	return regexp.MustCompile(`\d+((?: bytes)?\s+(?:digest\s+)?sha256:35f3)`).ReplaceAllString(s, "59$1")
}

// ticketSystem is a local server for tickets.
type ticketSystem struct {
	*httptest.Server
	mu     sync.Mutex
	states map[string]string
	asked  []string // the raw paths
	tokens map[string]bool
}

func openTickets(t *testing.T) *ticketSystem {
	s := &ticketSystem{states: map[string]string{}, tokens: map[string]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, r.URL.EscapedPath())
		s.tokens[r.Header.Get("Authorization")] = true
		id := strings.TrimPrefix(r.URL.Path, "/api/tickets/")
		w.Header().Set("Content-Type", "application/json")
		state, ok := s.states[id]
		switch {
		case state == "down":
			w.WriteHeader(http.StatusBadGateway)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":"no such ticket"}`)
		case state == "resolved":
			fmt.Fprintf(w, `{"id":%q,"state":"resolved","resolvedBy":"eve","reporter":"carol@example.com"}`, id)
		default:
			fmt.Fprintf(w, `{"id":%q,"state":%q,"resolvedBy":null,"reporter":"carol@example.com"}`, id, state)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *ticketSystem) set(id, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[id] = state
}

// In the incident example, an incident is over when the ticket system says so.
func TestExampleIncident(t *testing.T) {
	t.Parallel()
	tickets := openTickets(t)
	tickets.set("OPS-1", "open")
	tickets.set("OPS-2", "resolved")
	s := openShop(t, "incident",
		"https://tickets.example.com/", tickets.URL+"/",
		"      headers:", "      privateNetwork: true\n      headers:", "${TICKETS_TOKEN}", "secret")
	agent := s.serve("agent", "ada")
	id := agent.must("workflow.start", object{"type": "incident-closure"}).field("id")
	act := func(action string, data object) toolResult {
		return agent.call("workflow.advance", object{"id": id, "action": action, "data": data})
	}

	refusedFor(t, act("open", object{"ticket": "OPS-2"}), "script", "is resolved, not open") // already resolved
	refusedFor(t, act("open", object{"ticket": "OPS-9"}), "script", "no ticket OPS-9")
	refusedFor(t, act("open", object{"ticket": "OPS-1/../../admin"}), "schema")
	if r := act("open", object{"ticket": "OPS-1"}); r.IsError {
		t.Fatal(r.text())
	}
	done := object{"summary": "Resolved; the ticket says so too, I have checked."}
	refusedFor(t, act("close", done), "script", "is open, not resolved")
	refusedFor(t, act("close", object{"summary": "x", "ticket": "OPS-2"}), "script", "OPS-1 is open") // the query uses the frozen ticket
	refusedFor(t, act("close", object{"summary": "x", "evidence": object{"ticket": object{"status": 200}}}), "script", "OPS-1 is open")

	// The system is down: a person may decide, the agent may not.
	tickets.set("OPS-1", "down")
	parked := act("close", done)
	if !parked.IsError || parked.outcome() != "escalate" {
		t.Errorf("not parked: %s", parked.text())
	}
	tickets.set("OPS-1", "resolved")
	if r := act("close", object{"summary": "Disk replaced and the ticket resolved by eve."}); r.IsError || r.field("state") != "closed" {
		t.Errorf("the honest agent: %s", r.text())
	}

	tickets.mu.Lock()
	defer tickets.mu.Unlock()
	for _, p := range tickets.asked {
		if !strings.HasPrefix(p, "/api/tickets/OPS-") || strings.Count(p, "/") != 3 {
			t.Errorf("an address that nobody declared was asked: %s", p)
		}
	}
	if len(tickets.tokens) != 1 || !tickets.tokens["Bearer secret"] {
		t.Errorf("the server was shown %v", tickets.tokens)
	}
	history := string(runGavel(t, "instances", "history", id, "--json", "--store", s.store))
	if strings.Contains(history, "carol@example.com") || !strings.Contains(history, "resolvedBy") {
		t.Error("the reporter is recorded, or the ticket is not")
	}
}
