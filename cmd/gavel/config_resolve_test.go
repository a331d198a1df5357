package main

import (
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
	"github.com/gavel-mcp/gavel/internal/cli"
)

// TestPrecedence: the origin with the highest precedence sets the value, and is shown. It does not run in parallel,
// because it sets environment variables.
func TestPrecedence(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gavel.yaml")
	put(t, file, "store: here.db\ndefinitions: [a, /b]\nserve: {maxConns: 5, elicit: true, idleTimeout: 90m, rate: 1.5}\nmodel: {name: filed, also: [x, 'y,z']}\n")
	for _, c := range []struct {
		name, key string
		env       [2]string // a variable and its value
		flags     []string
		want      string
		origin    string
		where     string
	}{
		{name: "default", key: "serve.maxBody", want: "4194304", origin: cli.FromDefault},
		{name: "default of nothing", key: "model.keyFile", want: "", origin: cli.FromDefault},
		{name: "file, whole", key: "serve.maxConns", want: "5", origin: cli.FromFile, where: file + ":3"},
		{name: "file, switch", key: "serve.elicit", want: "true", origin: cli.FromFile, where: file + ":3"},
		{name: "file, span", key: "serve.idleTimeout", want: "1h30m", origin: cli.FromFile, where: file + ":3"},
		{name: "file, number", key: "serve.rate", want: "1.5", origin: cli.FromFile, where: file + ":3"},
		{name: "file, place", key: "store", want: filepath.Join(dir, "here.db"), origin: cli.FromFile, where: file + ":1"},
		{name: "file, places", key: "definitions", want: filepath.Join(dir, "a") + ", /b", origin: cli.FromFile, where: file + ":2"},
		{name: "file, list as it stands", key: "model.also", want: "x, y,z", origin: cli.FromFile, where: file + ":4"},
		{name: "variable", key: "serve.maxConns", env: [2]string{"GAVEL_MAX_CONNS", "6"}, want: "6", origin: cli.FromEnvironment, where: "GAVEL_MAX_CONNS"},
		{name: "variable that says no", key: "serve.elicit", env: [2]string{"GAVEL_ELICIT", "false"}, want: "false", origin: cli.FromEnvironment, where: "GAVEL_ELICIT"},
		{name: "variable of others", key: "model.name", env: [2]string{"LLM_JUDGE_MODEL", "set"}, want: "set", origin: cli.FromEnvironment, where: "LLM_JUDGE_MODEL"},
		{name: "second variable", key: "model.name", env: [2]string{"GAVEL_LLM_MODEL", "set"}, want: "set", origin: cli.FromEnvironment, where: "GAVEL_LLM_MODEL"},
		{name: "flag before file", key: "serve.maxConns", flags: []string{"--max-conns", "7"}, want: "7", origin: cli.FromFlag, where: "--max-conns"},
		{name: "flag before variable", key: "serve.maxConns", env: [2]string{"GAVEL_MAX_CONNS", "6"}, flags: []string{"--max-conns=7"}, want: "7", origin: cli.FromFlag, where: "--max-conns"},
		{name: "flag that says the default", key: "serve.maxConns", flags: []string{"--max-conns", "4096"}, want: "4096", origin: cli.FromFlag, where: "--max-conns"},
		{name: "flag that says no", key: "serve.reviews", flags: []string{"--no-reviews"}, want: "false", origin: cli.FromFlag, where: "--reviews"},
		{name: "flag for a list", key: "definitions", flags: []string{"--definitions", "c"}, want: "c", origin: cli.FromFlag, where: "--definitions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.env[0] != "" {
				t.Setenv(c.env[0], c.env[1])
			}
			var cmds commands
			parsed, settings, err := parseArguments(&cmds, append([]string{"serve", "--config", file}, c.flags...), io.Discard, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range settings.Effective(parsed) {
				if e.Key == c.key {
					if got := cli.FormatValue(e.Value); got != c.want || e.Origin != c.origin || e.Where != c.where {
						t.Errorf("%s from %s %s, want %s from %s %s", got, e.Origin, e.Where, c.want, c.origin, c.where)
					}
					return
				}
			}
			t.Errorf("there is no setting %s", c.key)
		})
	}
}

// TestFileReachesTheFlags: a command gets the values that config print shows.
func TestFileReachesTheFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "gavel.yaml")
	put(t, file, "store: memory\nserve: {reviews: false, rate: 0, allowHost: [a.example, b.example]}\nmodel: {priceIn: 0.15, refusals: -1}\nmcp: {role: auditor}\n")
	var serving, speaking commands
	for _, c := range []struct {
		into *commands
		args []string
	}{{&serving, []string{"serve", "--config", file}}, {&speaking, []string{"mcp", "--config", file}}} {
		if _, _, err := parseArguments(c.into, c.args, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	s := serving.Serve
	if got := fmt.Sprintf("%v %v %v %v %v %v %v", s.Store, s.Reviews, *s.Rate, s.AllowHost, *s.PriceIn, s.Refusals, s.MaxConns); got != "memory false 0 [a.example b.example] 0.15 -1 4096" {
		t.Error(got)
	}
	if m := speaking.MCP; m.Role != "auditor" || m.Store != "memory" || m.Refusals != -1 {
		t.Errorf("%+v", m)
	}
}

// TestCheckIgnoresTheEnvironment: environment variables do not affect the check of a file.
func TestCheckIgnoresTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gavel.yaml")
	put(t, file, "serve: {rate: 5}\n")
	t.Setenv("GAVEL_RATE", "none")
	t.Setenv("GAVEL_ROLE", "nobody")
	if _, err := serve.CheckConfig(&cli.Console{Parse: parseArguments}, file); err != nil {
		t.Error(err)
	}
	put(t, file, "serve: {rate: -1}\n")
	t.Setenv("GAVEL_RATE", "1")
	if _, err := serve.CheckConfig(&cli.Console{Parse: parseArguments}, file); err == nil {
		t.Error("the variable saves the file")
	}
}
