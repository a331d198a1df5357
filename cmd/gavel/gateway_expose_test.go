package main

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
)

// A changed section is applied completely or not at all. A removed section exposes nothing.
func TestChangedExposure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "gavel.yaml")
	var definitions []string
	for _, name := range []string{"release.v2", "release_v2", "render"} {
		definitions = append(definitions, filepath.Join(dir, name+".yaml"))
		put(t, definitions[len(definitions)-1], "{name: "+name+", initialState: a, states: {a: {final: true}}}")
	}
	put(t, path, "logLevel: info\n")
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	sys, err := gavel.Open(t.Context(), gavel.Config{File: path, Definitions: definitions, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	w := serve.NewConfigWatch(logger, path, serve.Services(nil).Watch(sys.Extensions())...)
	for _, c := range []struct{ text, said, listed string }{
		{"logLevel: debug\n", "", ""},
		{"expose: {workflows: [render]}\n", "the changed section is in force", "render"},
		{"expose: {workflows: [render, release.v2]}\n", "the changed section is in force", "release_v2 render"},
		{"expose: {tagKey: mcp}\n", `\"tagKey\" alone is an incomplete filter, so nothing is exposed; add \"tagValue\"`, ""},
		{"expose: {prefix: re}\n", `the workflows release.v2 and release_v2 would have the same tool name \"release_v2\"`, ""},
		{"expose: {prefix: ren}\n", "the changed section is in force", "render"},
		{"store: memory\n", "the changed section is in force", ""},
	} {
		log.Reset()
		put(t, path, c.text)
		w.Look(t.Context(), true)
		if said := log.String(); (c.said == "") != (said == "") || !strings.Contains(said, c.said) {
			t.Errorf("%s: the log says %s", c.text, said)
		}
		var out bytes.Buffer
		ask := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}` + "\n")
		if err := sys.ServeStdio(t.Context(), gavel.Tools{Names: "dotted", Set: "core"}, gavel.LocalAgent, ask, &out); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range regexp.MustCompile(`"name":"(\w+)"`).FindAllStringSubmatch(out.String(), -1) {
			names = append(names, m[1])
		}
		if got := strings.Join(names, " "); got != c.listed {
			t.Errorf("%s lists %q, want %q: %s", c.text, got, c.listed, out.String())
		}
	}
}
