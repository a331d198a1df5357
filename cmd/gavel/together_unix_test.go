//go:build unix

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// humanShipping is a workflow with a move that needs a person.
const humanShipping = `{"name":"shipping","initialState":"built","states":{
	"built":{"transitions":{"ship":{"target":"shipped","requireAssurance":"human","requiredFields":["to"]}}},
	"shipped":{"final":true}}}`

// together is two servers over one database.
type together struct {
	*testing.T
	a, b  *served
	store []string // flags
}

func serveTogether(t *testing.T, args ...string) *together {
	t.Helper()
	database, dir := pgtest.Shared(t).NewDatabase(t), t.TempDir()
	w := &together{T: t, store: []string{"--store", database, "--store-key", filepath.Join(dir, "store.key")}}
	flow := filepath.Join(dir, "flow.json")
	if err := os.WriteFile(flow, []byte(humanShipping), 0o600); err != nil {
		t.Fatal(err)
	}
	runGavel(t, append([]string{"store", "init"}, w.store...)...)
	args = append(append(args, w.store[2:]...), "--definitions", flow)
	first := w.token("ops", "--role", "operator") // without a token no one could call, so the server would not start
	w.a, w.b = serveStore(t, database, args...), serveStore(t, database, args...)
	for _, s := range []*served{w.a, w.b} {
		s.owner = first
	}
	return w
}

func (w *together) token(args ...string) string {
	w.Helper()
	file := filepath.Join(w.TempDir(), "token")
	runGavel(w.T, append(append([]string{"token", "create", "--out", file}, args...), w.store...)...)
	token, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// ship requests the move that needs a person, from a client without sessions that supports forms. more are
// additional members of params.
func (w *together) ship(s *served, token, id, more string) object {
	w.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":%q,"action":"ship","data":{"to":"all"}},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}%s}}`, id, more)
	_, answer, err := s.tryWith(token, http.MethodPost, "/mcp", body, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "workflow.advance")
	result, ok := answer["result"].(object)
	if err != nil || !ok {
		w.Fatal(answer, err)
	}
	return result
}

// TestServersTogether shows that servers over one database share tokens. A question asked through one server can
// be answered through another, once.
func TestServersTogether(t *testing.T) {
	t.Parallel()
	w := serveTogether(t, "--elicit")
	t.Run("tokens", w.shareTokens)
	t.Run("forms", w.shareForms)
	t.Run("reviews", w.shareReviews)
}

func (w *together) shareTokens(t *testing.T) {
	token := w.token("ci")
	w.a.must(token, http.MethodGet, "/v1/whoami", "")
	w.b.must(token, http.MethodGet, "/v1/whoami", "")
	runGavel(t, append([]string{"token", "revoke", strings.Split(token, "_")[1]}, w.store...)...)
	for _, s := range []*served{w.a, w.b} { // sequential: a server answers 30 bad credentials in a row, and then 429
		for began := time.Now(); ; {
			status, _ := s.ask(token, http.MethodGet, "/v1/whoami", "")
			if status == http.StatusUnauthorized {
				break
			}
			if took := time.Since(began); took > 10*time.Second { // about a second on an idle machine
				t.Fatalf("revoked %v ago, and the answer is %d", took, status)
			}
		}
	}
}

func (w *together) shareForms(t *testing.T) {
	agent := w.token("agent")
	id := w.a.begin(agent, "shipping")
	asked := w.ship(w.a, agent, id, "")
	state, _ := asked["requestState"].(string)
	if state == "" {
		t.Fatalf("no form: %v", asked)
	}
	answer := fmt.Sprintf(`,"requestState":%q,"inputResponses":{"review":{"action":"accept","content":{"decision":"approve","reason":"fine"}}}`, state)
	var won int
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, s := range []*served{w.b, w.a, w.b, w.a} {
		group.Go(func() {
			result := w.ship(s, agent, id, answer)
			mu.Lock()
			defer mu.Unlock()
			// The loser may also find the move made. Only the person's decision must be taken once.
			if strings.Contains(fmt.Sprint(result["content"]), `"decidedBy":"reviewer"`) {
				won++
			}
		})
	}
	group.Wait()
	if now := w.a.must(agent, http.MethodGet, "/v1/instances/"+id, ""); won != 1 || now["state"] != "shipped" || now["revision"] != 2.0 {
		t.Errorf("%d answers counted: %v", won, now)
	}
}

func (w *together) shareReviews(t *testing.T) {
	agent, reviewers := w.token("agent"), []string{w.token("ann", "--role", "reviewer"), w.token("bob", "--role", "reviewer")}
	for range 5 {
		id := w.a.begin(agent, "shipping")
		parked := w.b.must(agent, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"ship","data":{"to":"all"}}`)
		review, _ := parked["review"].(object)["reviewId"].(string)
		if review == "" {
			t.Fatalf("not parked: %v", parked)
		}
		var codes [2]int
		var answers [2]object
		var group sync.WaitGroup
		for i, s := range []*served{w.a, w.b} {
			decision := []string{"approve", "reject"}[i]
			group.Go(func() {
				codes[i], answers[i] = s.ask(reviewers[i], http.MethodPost, "/v1/reviews/"+review+"/resolve", fmt.Sprintf(`{"decision":%q,"reason":"it is"}`, decision))
			})
		}
		group.Wait()
		is := w.a.must(reviewers[0], http.MethodGet, "/v1/reviews/"+review, "")
		if (codes[0] == 200) == (codes[1] == 200) {
			t.Fatalf("%v %v\n%v", codes, answers, is)
		}
		if by := is["by"]; (codes[0] == 200) != (by == "token:ann") || is["status"] != "resolved" {
			t.Errorf("%v, and it is resolved by %v: %v", codes, by, is)
		}
	}
}
