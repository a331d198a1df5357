package chain

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/module"
)

// TestRightsOfRuns: the rights of a run depend on the current tokens and configuration.
func TestRightsOfRuns(t *testing.T) {
	t.Parallel()
	tokens, err := auth.OpenTokens(filepath.Join(t.TempDir(), "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	_, made, err := tokens.Create(
		auth.NewToken{Name: "ann", Principal: "ann", Role: engine.RoleAgent, Workflows: "a"}, auth.NewToken{Name: "ben", Principal: "ben", Role: engine.RoleAgent},
		auth.NewToken{Name: "eve", Principal: "old:eve", Role: engine.RoleAgent},
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Revoke(made[1].ID); err != nil {
		t.Fatal(err)
	}
	c := &chains{tokens: func() (*auth.Tokens, error) { return tokens, nil }}
	agent := func(id, workflows string) engine.Principal {
		return engine.Principal{ID: id, Role: engine.RoleAgent, Workflows: workflows}
	}
	nightly := agent("nightly", "b")
	tick := TickRun("c", time.Unix(1_800_000_000, 0))
	for _, row := range []struct {
		name, run string
		acts      engine.Principal
		named     *engine.Principal
		want      string // "" means that it is allowed
	}{
		{"a token", "run-1", agent("ann", "a"), nil, ""},
		{"a token for something else", "run-1", agent("ann", ""), nil, "its token has been revoked or has expired"},
		{"a revoked token", "run-1", agent("ben", ""), nil, "its token has been revoked or has expired"},
		{"a program of this machine", "run-1", agent("cy", ""), nil, ""},
		{"the command line", "run-1", agent("local:cli", ""), nil, ""},
		{"a token that was removed", "run-1", agent("token:cy", ""), nil, "its token has been removed"},
		{"a token of an issuer", "run-1", agent("corp:dan", ""), nil, ""},
		{"a token of an issuer that is gone", "run-1", agent("old:dan", ""), nil, `the configuration has no issuer "old", and the principal has no token`},
		{"a token for whom an issuer named that is gone", "run-1", agent("old:eve", ""), nil, ""},
		{"a schedule", tick, agent("nightly", "everything"), &nightly, ""},
		{"a schedule of nobody", tick, nightly, nil, "chains.runAs no longer names it"},
		{"a schedule of another", tick, agent("ann", "a"), &nightly, "chains.runAs no longer names it"},
		{"a chain that acts for it", "open run-1", agent("nightly", "everything"), &nightly, ""},
		{"a chain that acts for nobody", "open run-1", nightly, nil, "chains.runAs no longer names it"},
		{"a chain that acts for another", "open run-1", agent("ann", "a"), &nightly, "chains.runAs no longer names it"},
		{"a chain that no longer acts for it", "shut run-1", nightly, &nightly, "chains.runAs no longer names it"},
	} {
		c.section.Store(&chainSection{Settings: &Settings{RunAs: row.named, ActingChains: []string{"open"}}, issuers: []string{"corp"}})
		acting, run, has := strings.Cut(row.run, " ")
		if !has {
			acting, run = "", row.run
		}
		now, err := c.rights(t.Context(), Command{Run: run, Principal: row.acts, Chain: acting})
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, and not %q", row.name, err, row.want)
		}
		if row.named != nil && err == nil && now != nightly {
			t.Errorf("%s: acts as %+v", row.name, now)
		}
	}
}

// gates is a gateway with a gate in front of one tool.
type gates struct{}

func (gates) IsGated(_, tool string) bool { return tool == "workflow.list" }

// TestGatedToolsAreRepeatable: the gate's own record prevents a second call of a gated tool. Other tools
// are repeatable only if the operator declared it.
func TestGatedToolsAreRepeatable(t *testing.T) {
	t.Parallel()
	c := &chains{sys: module.System{Extensions: module.Extensions{{Provides: gates{}}}}}
	c.section.Store(&chainSection{Settings: &Settings{Repeatable: []string{"inner/workflow.define"}}})
	for tool, want := range map[string]bool{"workflow.list": true, "workflow.define": true, "workflow.listCheckpoints": false} {
		if got := c.isRepeatable("inner", tool); got != want {
			t.Errorf("%s: %v", tool, got)
		}
	}
}

// TestChainsOfStatesActForOwners: the chain of a state runs with the rights of a token of the instance's
// owner.
func TestChainsOfStatesActForOwners(t *testing.T) {
	t.Parallel()
	tokens, err := auth.OpenTokens(filepath.Join(t.TempDir(), "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	_, made, err := tokens.Create(
		auth.NewToken{Name: "ann", Principal: "ann", Role: engine.RoleAgent, Workflows: "job chain.*"}, auth.NewToken{Name: "ben", Principal: "ben", Role: engine.RoleAgent},
		auth.NewToken{Name: "olga", Principal: "olga", Role: engine.RoleOperator}, auth.NewToken{Name: "cy", Principal: "cy", Role: engine.RoleAgent, Workflows: "other"},
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Revoke(made[1].ID); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ owner, want string }{
		{"ann", "{ann agent job chain.* }"},
		{"olga", "{olga operator  }"},
		{"local:agent", "{local:agent agent  }"},
		{"https://issuer dan", "{https://issuer dan agent job chain.clean }"},
		{"ben", "ben, the owner of the instance, no longer has a valid token for the workflow job"},
		{"cy", "cy, the owner of the instance, no longer has a valid token for the workflow job"},
	} {
		c := &chains{tokens: func() (*auth.Tokens, error) { return tokens, nil }}
		p, err := c.actsForOwner(t.Context(), Entry{Owner: row.owner, Workflow: "job", OnEnter: &OnEnter{Chain: "clean"}})
		if got := fmt.Sprint(p); err == nil && got != row.want || err != nil && err.Error() != row.want {
			t.Errorf("%s: %s, %v", row.owner, got, err)
		}
	}
	c := &chains{}
	if p, err := c.actsForOwner(t.Context(), Entry{Owner: "bob", Workflow: "job"}); err != nil || p.Workflows != "" {
		t.Errorf("without tokens: %+v, %v", p, err)
	}
}
