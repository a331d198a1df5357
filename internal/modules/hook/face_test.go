package hook

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/fairshare"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
)

// parse reads the rules of a configuration file.
func parse(t *testing.T, text string) agent.Rules {
	t.Helper()
	file, err := config.Parse("gavel.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := parseRules(file)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// Queued command lines of one caller do not delay other callers: a caller that arrives later is served before the
// second line of the caller that has used the only permit.
func TestHookAnalysisIsShared(t *testing.T) {
	t.Parallel()
	rules := parse(t, "gates: [{tool: 'builtin:shell', name: push, workflow: release, states: tested, when: [{program: git, args: [push]}]}]")
	synctest.Test(t, func(t *testing.T) {
		var reading atomic.Int32
		held := make(chan struct{}) // closed when the first line has been read
		var order []string          // the callers in order of decision; decisions do not overlap
		f := &face{log: slog.New(slog.DiscardHandler), answered: func(string, agent.Verdict) {}, analysis: fairshare.New(fairshare.Config{Permits: 1, Wait: time.Minute})}
		f.decider = agent.NewDecider(agent.DeciderConfig{
			Logger: f.log,
			Rules: func() agent.Rules { // called by each event that has a permit
				reading.Add(1)
				<-held
				return rules
			},
			Engine: func(ctx context.Context) (agent.Engine, error) {
				who, _ := auth.FromContext(ctx)
				order = append(order, who.ID)
				return nil, io.EOF
			},
		})
		var requests sync.WaitGroup
		for _, who := range []string{"a", "a", "a", "b"} {
			requests.Go(func() {
				ctx := auth.NewContext(t.Context(), auth.Identity{Principal: engine.Principal{ID: who, Role: engine.RoleAgent}, Events: "/"})
				req := httptest.NewRequestWithContext(ctx, http.MethodPost, facePath+"claude-code", bytes.NewReader(agent.Sample("claude-code", "/repo", "git push")))
				req.SetPathValue("client", "claude-code")
				f.ServeHTTP(httptest.NewRecorder(), req)
			})
			synctest.Wait()
		}
		if n := reading.Load(); n != 1 {
			t.Errorf("%d lines are read at once, with one place", n)
		}
		<-time.After(time.Second) // a has used its permit for that long
		close(held)
		requests.Wait()
		if got := strings.Join(order, ""); got != "abaa" {
			t.Errorf("the order is %s", got)
		}
	})
}

// An event that gets no permit in time is denied, and the denial says when to retry.
func TestHookBusy(t *testing.T) {
	t.Parallel()
	f := &face{log: slog.New(slog.DiscardHandler), answered: func(string, agent.Verdict) {}, analysis: fairshare.New(fairshare.Config{Permits: 1, Waiting: 1, Wait: time.Millisecond})}
	release, err := f.analysis.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, client := range agent.InstallClients() {
		req := httptest.NewRequestWithContext(auth.NewContext(t.Context(), auth.Identity{Principal: engine.Principal{ID: "b"}}), http.MethodPost, facePath+client, bytes.NewReader(agent.Sample(client, "/repo", "ls")))
		req.SetPathValue("client", client)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, req)
		if agent.ReadAnswer(client, 0, w.Body.Bytes()) != agent.ReadDeny && w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "do the same again") {
			t.Errorf("%s: %d %s", client, w.Code, w.Body)
		}
	}
}
