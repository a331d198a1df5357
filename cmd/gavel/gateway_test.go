package main

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/judge"
)

// The upstream server is another gavel.
const gavelBehind = `upstreams:
  inner:
    command: [gavel, mcp, --store, memory, --tool-names, dotted]
    allow: [{tools: ["workflow.define", "workflow.li*"], resources: ["workflow://definitions"], prompts: ["*"]}]
`

// putPinned writes a configuration file, and pins everything that its upstreams offer.
func putPinned(t *testing.T, text string) (path string) {
	t.Helper()
	needsProgram(t)
	path = filepath.Join(t.TempDir(), "gavel.yaml")
	put(t, path, text)
	pinAll(t, path)
	return path
}

func TestGatewayOverStdio(t *testing.T) {
	t.Parallel()
	s := launch(t, "--config", putPinned(t, gavelBehind), "--store", gavel.Memory, "--tool-names", "dotted")
	for method, want := range map[string][]string{
		"tools/list":     {`"workflow.advance"`, `"inner__workflow_define"`, `"inner__workflow_list"`},
		"resources/list": {`"workflow://definitions"`, `"inner+workflow://definitions"`},
		"prompts/list":   {`"follow-workflow"`, `"inner__follow-workflow"`},
	} {
		list := string(s.rpc(method, object{}).Result)
		for _, name := range want {
			if !strings.Contains(list, name) {
				t.Errorf("%s lacks %s: %.300s", method, name, list)
			}
		}
		for _, name := range []string{"inner__workflow_advance", "inner+workflow://instances"} {
			if strings.Contains(list, name) {
				t.Errorf("%s has %s", method, name)
			}
		}
	}
	s.must("inner__workflow_define", object{"name": "behind", "initialState": "a", "states": object{"a": object{"final": true}}})
	if own, theirs := s.must("workflow.list", object{}).text(), s.must("inner__workflow_list", object{}).text(); strings.Contains(own, "behind") || !strings.Contains(theirs, "behind") {
		t.Errorf("own: %s\ntheirs: %s", own, theirs)
	}
	if got := string(s.rpc("resources/read", object{"uri": "inner+workflow://definitions"}).Result); !strings.Contains(got, "behind") || !strings.Contains(got, `"uri":"inner+workflow://definitions"`) {
		t.Errorf("read: %s", got)
	}
	for _, name := range []string{"inner__workflow_advance", "inner__workflow_nothing"} { // one denied, one missing
		if got := s.call(name, object{}).text(); !strings.HasPrefix(got, `There is no tool "`+name+`"`) || strings.Contains(got, "inner__workflow_define") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, err := s.finish(); err != nil {
		t.Error(err)
	}
}

// openServing opens a system like a server, with a store in memory.
func openServing(t *testing.T, log *slog.Logger, with cli.SystemOptions) *cli.System {
	t.Helper()
	with.Serves = true
	sys, err := cli.OpenSystem(t.Context(), log, cli.StoreLocation{Path: gavel.Memory}, with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
	return sys
}

// A changed section of a running server is applied completely or not at all.
func TestChangedUpstreams(t *testing.T) {
	t.Parallel()
	path := putPinned(t, gavelBehind)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	sys := openServing(t, logger, cli.SystemOptions{File: path})
	g := sys.Extensions().Foreign()
	w := serve.NewConfigWatch(logger, path, serve.Services(nil).Watch(sys.Extensions())...)
	agent := engine.Principal{ID: "local:agent", Role: engine.RoleAgent}
	for _, c := range []struct{ name, text, said, listed string }{
		{"nothing changed", gavelBehind, "", "inner__workflow_define inner__workflow_list inner__workflow_listCheckpoints"},
		{"another setting", gavelBehind + "logLevel: debug\n", "", "inner__workflow_define inner__workflow_list inner__workflow_listCheckpoints"},
		{"less is allowed", strings.Replace(gavelBehind, `"workflow.define", `, "", 1), "the changed section is in force", "inner__workflow_list inner__workflow_listCheckpoints"},
		{"a mistake", strings.Replace(gavelBehind, "allow", "alow", 1), `unknown key \"alow\"; did you mean \"allow\"?`, "inner__workflow_list inner__workflow_listCheckpoints"},
		{"a pattern without a match", strings.Replace(gavelBehind, "workflow.define", "workflow.defin", 1), `did you mean \"workflow.define\"?`, "inner__workflow_list inner__workflow_listCheckpoints"},
		{"none", "logLevel: debug\n", "the changed section is in force", ""},
		{"again", gavelBehind, "the changed section is in force", "inner__workflow_define inner__workflow_list inner__workflow_listCheckpoints"},
	} {
		log.Reset()
		changed := g.Changed(agent, wire.Tool)
		put(t, path, c.text)
		w.Look(t.Context(), true)
		var names []string
		for _, item := range g.List(agent, wire.Tool) {
			names = append(names, item.Name)
		}
		if got := strings.Join(names, " "); got != c.listed || (c.said == "") != (log.Len() == 0) || !strings.Contains(log.String(), c.said) {
			t.Errorf("%s: %s lists %s", c.name, log.String(), got)
		}
		select {
		case <-changed:
			if !strings.Contains(c.said, "in force") {
				t.Errorf("%s: a change is announced", c.name)
			}
		default:
			if strings.Contains(c.said, "in force") {
				t.Errorf("%s: no change is announced", c.name)
			}
		}
	}
}

// Evidence comes from the upstreams in force. An upstream that evidence needs cannot be removed.
func TestEvidenceFromChangedUpstreams(t *testing.T) {
	t.Parallel()
	const source = gavelBehind + "evidence: {sources: {flows: {upstream: {server: inner, tool: workflow.list}, readOnly: true}}}\n"
	path := putPinned(t, source)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	sources, err := cli.ConfigFlag{Config: path}.Open(logger)
	if err != nil {
		t.Fatal(err)
	}
	sys := openServing(t, logger, cli.SystemOptions{File: path, Sources: sources})
	w := serve.NewConfigWatch(logger, path, serve.Services(nil).Watch(sys.Extensions())...)
	for _, c := range []struct {
		name, text, said string
		want             judge.EvidenceFailure
	}{
		{"as it began", source, "", ""},
		{"for others only", strings.Replace(source, "{tools", "{roles: [operator], tools", 1), "the changed section is in force", judge.FailureRefused},
		{"for all again", source, "the changed section is in force", ""},
		{"without the tool", strings.Replace(source, `, "workflow.li*"`, "", 1), `no rule of \"inner\" allows the tool \"workflow.list\"`, ""},
		{"without the server", source[strings.Index(source, "evidence"):], `declares no server \"inner\"`, ""},
	} {
		log.Reset()
		put(t, path, c.text)
		w.Look(t.Context(), true)
		f, err := sources.Fetch(t.Context(), judge.EvidenceRequest{Source: "flows", Principal: "local:agent", Role: "agent"}, true)
		if err != nil || f.Failure != c.want || !strings.Contains(log.String(), c.said) {
			t.Errorf("%s: %+v, %v, %s", c.name, f, err, log.String())
		}
	}
}
