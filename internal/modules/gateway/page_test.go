package gateway_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/gateway"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// page is the page Servers of a gateway for a file in which the server "fake" runs in the given mode.
type page struct {
	*module.Extension
	t    *testing.T
	path string
}

func openPage(t *testing.T, mode string) page {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gavel.yaml")
	if mode == "" {
		mode = "fresh"
	}
	p := page{t: t, path: path}
	p.open(mode)
	return p
}

// open opens the gateway again, with the server in another mode.
func (p *page) open(mode string) {
	p.t.Helper()
	text := "upstreams:\n  fake:\n    command: [" + quote(os.Args[0]) + "]\n    set: {" + serverVariable + ": " + mode + "}\n    allow: [{tools: [\"*\"]}]\n"
	if err := os.WriteFile(p.path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	file, err := config.Load(p.path)
	if err != nil {
		p.t.Fatal(err)
	}
	p.Extension = gateway.ExtendForTest(p.t, file)
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, `\`, `\\`) + `"` }

func (p *page) servers() []gateway.ServerRow {
	p.t.Helper()
	data, err := p.Pages[0].Load(p.t.Context(), p.visit(engine.RoleOperator, nil))
	if err != nil {
		p.t.Fatal(err)
	}
	return data.([]gateway.ServerRow) //nolint:forcetypeassert // what the page loads
}

func (p *page) visit(role engine.Role, values url.Values) module.Visit {
	return module.Visit{
		Call: operation.Call{Caller: auth.Identity{Principal: engine.Principal{ID: "who:" + string(role), Role: role}}}, Path: func(string) string { return "" }, Values: values,
	}
}

func (p *page) act(role engine.Role, action string, values url.Values) error {
	_, _, err := p.Pages[0].Actions[action](p.t.Context(), p.visit(role, values))
	return err
}

func (p *page) warnings() string {
	var all []string
	for _, w := range p.Warnings(p.t.Context()) {
		all = append(all, w.Name+": "+w.Text)
	}
	return strings.Join(all, "\n")
}

func TestTheServersPageShowsDriftAndAcceptsIt(t *testing.T) {
	p := openPage(t, "fresh")
	if s := p.servers(); len(s) != 1 || s[0].Status != "never pinned" || s[0].Last != nil || !strings.Contains(p.warnings(), "unpinned: Never pinned, so their tools are not listed: fake.") {
		t.Fatalf("before the first check: %+v\n%s", s, p.warnings())
	}
	for _, role := range []engine.Role{engine.RoleAuditor, engine.RoleReviewer, engine.RoleAgent} {
		for _, action := range []string{"check", "accept"} {
			if err := p.act(role, action, url.Values{"server": {"fake"}, "item": {"x"}}); engine.CodeOf(err) != engine.CodeForbidden {
				t.Errorf("%s by a %s: %v", action, role, err)
			}
		}
	}
	if err := p.act(engine.RoleOperator, "check", nil); err != nil {
		t.Fatal(err)
	}
	all := url.Values{"server": {"fake"}}
	s := p.servers()[0]
	for _, d := range s.Drift {
		if d.Change != upstream.ChangeAdded {
			t.Errorf("%s of a fresh server is %s", d.Name, d.Change)
		}
		all.Add("item", d.Item)
	}
	if len(s.Drift) != len(toolAnswers) || s.Last.Server != "fake 1" || s.Last.Protocol != "2025-11-25" {
		t.Fatalf("a fresh server: %+v", s)
	}
	if err := p.act(engine.RoleOperator, "accept", all); err != nil {
		t.Fatal(err)
	}
	if s := p.servers()[0]; s.Status != "as pinned" || s.Tools != len(toolAnswers) || p.warnings() != "" {
		t.Errorf("after acceptance: %s, %d tools\n%s", s.Status, s.Tools, p.warnings())
	}

	p.open("drifted")
	if err := p.act(engine.RoleOperator, "check", nil); err != nil {
		t.Fatal(err)
	}
	s = p.servers()[0]
	if s.Status != "differs from its pins" || len(s.Drift) != len(toolAnswers) || s.Drift[0].Change != upstream.ChangeChanged || !strings.Contains(p.warnings(), "drifted: ") {
		t.Fatalf("a drifted server: %+v\n%s", s, p.warnings())
	}
	first := s.Drift[0]
	if err := p.act(engine.RoleOperator, "accept", url.Values{"server": {"fake"}, "item": {first.Item, strings.Repeat("0", 64)}}); engine.CodeOf(err) != engine.CodeConflict {
		t.Errorf("something that was not shown: %v", err)
	}
	if got := len(p.servers()[0].Drift); got != len(toolAnswers) {
		t.Errorf("a refused acceptance left %d differences", got)
	}
	if err := p.act(engine.RoleOperator, "accept", url.Values{"server": {"fake"}, "item": {first.Item}}); err != nil {
		t.Fatal(err)
	}
	if got := len(p.servers()[0].Drift); got != len(toolAnswers)-1 {
		t.Errorf("after one acceptance: %d differences", got)
	}
	pins, err := upstream.LoadPins(upstream.PinsPath(p.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range must(pins.Of("fake")) {
		if drifted := strings.Contains(string(item.Raw), `"ddrifted"`); drifted != (item.Name == first.Name) {
			t.Errorf("the pin of %s: %s", item.Name, item.Raw)
		}
	}

	p.open("drifted-again") // since the page was shown
	if err := p.act(engine.RoleOperator, "accept", url.Values{"server": {"fake"}, "item": {s.Drift[1].Item}}); engine.CodeOf(err) != engine.CodeConflict {
		t.Errorf("another definition than the one shown: %v", err)
	}
	p.open("crash")
	if err := p.act(engine.RoleOperator, "check", nil); err != nil {
		t.Fatal(err)
	}
	if s := p.servers()[0]; s.Status != "cannot be asked" || s.Last.Problem == "" {
		t.Errorf("a server that ends: %+v", s)
	}
	if err := p.act(engine.RoleOperator, "accept", url.Values{"server": {"fake"}, "item": {first.Item}}); engine.CodeOf(err) != engine.CodeUnavailable {
		t.Errorf("accept without an answer: %v", err)
	}
}

func must[T any](value T, ok bool) T {
	if !ok {
		panic("missing")
	}
	return value
}
