package upstream_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// parse parses the section "upstreams" of a configuration file.
func parse(t testing.TB, text string) (upstream.Config, error) {
	t.Helper()
	root, err := document.Parse("gavel.yaml", []byte("upstreams:\n"+text), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return upstream.ParseConfig(root.Get("upstreams"))
}

func mustParse(t testing.TB, text string) upstream.Config {
	t.Helper()
	cfg, err := parse(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestParseConfig(t *testing.T) {
	cfg := mustParse(t, `
  git:
    command: [mcp-server-git, --repository, .]
    environment: [PATH]
    set: {GIT_PAGER: cat}
    callTimeout: 2m
    allow:
      - {tools: ["git_*"], roles: [agent], principals: ["ci:*"]}
  docs:
    url: https://docs.example.com/mcp
    headers: {Authorization: "Bearer ${DOCS_TOKEN}"}
    hosts: [eu.docs.example.com]
    session: principal
    protocol: "2026-07-28"
`)
	git, docs := cfg.Servers["git"], cfg.Servers["docs"]
	if git.CallTimeout != 2*time.Minute || git.IdleTimeout != upstream.DefaultIdleTimeout || git.Allow[0].Roles[0] != engine.RoleAgent {
		t.Errorf("git is %+v", git)
	}
	if docs.Session != upstream.SessionPrincipal || docs.Protocol != upstream.ProtocolModern || cfg.Dir != "." {
		t.Errorf("docs is %+v in %q", docs, cfg.Dir)
	}
}

func TestConfigIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":     {"  a: {command: [x], alow: []}\n", `gavel.yaml:2:21: /upstreams/a/alow: unknown key "alow"; did you mean "allow"?`},
		"double dash":     {"  a__b: {command: [x]}\n", "gavel.yaml:2:9: /upstreams/a__b: the name of an upstream is 1 to 24 letters and digits"},
		"case":            {"  Git: {command: [x]}\n  git: {command: [x]}\n", `gavel.yaml:3:8: /upstreams/git: the name differs from "Git" only in case`},
		"neither":         {"  a: {session: shared}\n", `/upstreams/a: an upstream needs either "command" or "url"`},
		"both":            {"  a: {command: [x], url: https://x.example}\n", `either "command" or "url"`},
		"no program":      {"  a: {command: []}\n", "a command begins with a program"},
		"foreign key":     {"  a: {command: [x], hosts: [h]}\n", `/upstreams/a/hosts: "hosts" applies only to URLs`},
		"variable":        {"  a: {command: [x], set: {A=B: c}}\n", `a variable has a name, without "="`},
		"plain http":      {"  a: {url: 'http://h.example/mcp'}\n", "http:// is not encrypted"},
		"credentials":     {"  a: {url: 'https://u:p@h.example/'}\n", "the URL has credentials or a fragment"},
		"not a URL":       {"  a: {url: 'ftp://h.example/'}\n", "the URL must begin with https://"},
		"host":            {"  a: {url: 'https://h.example/', hosts: ['*.example']}\n", "/upstreams/a/hosts/0: a host must be a name"},
		"header":          {"  a: {url: 'https://h.example/', headers: {Host: x}}\n", "this header cannot be set"},
		"header variable": {"  a: {url: 'https://h.example/', headers: {A: '${'}}\n", "write an environment variable as ${NAME}"},
		"role":            {"  a: {command: [x], allow: [{tools: ['*'], roles: [agnet]}]}\n", `unknown role "agnet"; the roles are agent, reviewer`},
		"empty rule":      {"  a: {command: [x], allow: [{roles: [agent]}]}\n", "the rule allows nothing"},
		"empty pattern":   {"  a: {command: [x], allow: [{tools: ['']}]}\n", "an empty pattern matches nothing"},
		"timeout":         {"  a: {command: [x], callTimeout: 2h}\n", "at most 1h"},
		"session":         {"  a: {command: [x], session: each}\n", `/upstreams/a/session`},
		"type":            {"  a: {command: x}\n", "/upstreams/a/command"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
