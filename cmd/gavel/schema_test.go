package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/author"
	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
	"github.com/gavel-mcp/gavel/engine/suite"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

// schemaNamed returns a schema printed by gavel schema, as text and compiled.
func schemaNamed(t *testing.T, name string) (json.RawMessage, *schema.Schema) {
	t.Helper()
	for _, s := range author.ListSchemas() {
		if s.Name != name {
			continue
		}
		printed, err := s.Print(&cli.Console{Settings: &cli.FileSettings{Known: listKnownSettings}})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(printed)
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := schema.Compile(raw)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return raw, compiled
	}
	t.Fatalf("no schema %s", name)
	return nil, nil
}

// The schemas accept this repository's examples.
func TestSchemasAcceptTheExamples(t *testing.T) {
	t.Parallel()
	for name, patterns := range map[string][]string{
		"definition": {"../../testdata/workflows/*", "internal/author/templates/*/*.yaml"},
		"tests":      {"../../testdata/suites/*.yaml", "internal/author/templates/*/*.test.yaml"},
		"config":     {"../../testdata/evidence/*/gavel.yaml", "internal/author/templates/*/gavel.yaml"},
	} {
		_, compiled := schemaNamed(t, name)
		accepts := func(from string, text []byte) {
			root, err := document.Parse(from, text, document.Limits{Bytes: len(text) + 1})
			if err != nil {
				t.Fatal(err)
			}
			if v, err := compiled.Validate(document.ReadTrusted(root.JSON())); err != nil || len(v) > 0 {
				t.Errorf("%s: %s: %v %v", name, from, v, err)
			}
		}
		read := 0
		for _, pattern := range patterns {
			files, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if name == "definition" && (cli.IsTestFile(file) || filepath.Base(file) == author.SettingsFile) {
					continue
				}
				read++
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				accepts(file, text)
			}
		}
		if read < 2 {
			t.Errorf("%s: %d examples", name, read)
		}
		if name == "config" {
			accepts("gavel.yaml", []byte(author.InitSettings))
			accepts("all.yaml", []byte(`{$schema: x, logLevel: info, definitions: [a, b], serve: {listen: "127.0.0.1:0", rate: 1.5}, model: {name: m, deadline: 20s, also: x}, auth: {issuers: [{name: a, url: b, audiences: c}]}}`))
		}
	}
}

var knownKeys = regexp.MustCompile(`unknown key "zzqqxx"; known keys are (.*)`)

// Each object of a schema has exactly the keys that its parser knows.
func TestSchemasHaveTheKeysThatAreRead(t *testing.T) {
	t.Parallel()
	type object struct {
		Properties map[string]json.RawMessage
	}
	at := func(raw json.RawMessage, path string) (o object) {
		t.Helper()
		for _, token := range strings.Split(path, ".") {
			var members map[string]json.RawMessage
			if token == "" {
				continue
			}
			if err := json.Unmarshal(raw, &members); err != nil || members[token] == nil {
				t.Fatalf("%s: %v", path, err)
			}
			raw = members[token]
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	sorted := func(o object) (keys []string) {
		for key := range o.Properties {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		return keys
	}
	told := func(err error) (keys []string) {
		t.Helper()
		if err == nil {
			t.Fatal("an unknown key is accepted")
		}
		found := knownKeys.FindStringSubmatch(err.Error())
		if found == nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(found[1], -1) {
			keys = append(keys, m[1])
		}
		slices.Sort(keys)
		return keys
	}
	same := func(what string, has, reads []string) {
		t.Helper()
		if !slices.Equal(has, reads) {
			t.Errorf("%s: the schema has %q, read are %q", what, has, reads)
		}
	}

	tests, _ := schemaNamed(t, "tests")
	for path, doc := range map[string]string{
		"":                             "zzqqxx: 1",
		"$defs.test":                   "tests: [{zzqqxx: 1}]",
		"$defs.step":                   "tests: [{steps: [{zzqqxx: 1}]}]",
		"$defs.step.properties.model":  "tests: [{steps: [{model: {zzqqxx: 1}}]}]",
		"$defs.step.properties.review": "tests: [{steps: [{review: {zzqqxx: 1}}]}]",
		"$defs.expect":                 "tests: [{steps: [{expect: {zzqqxx: 1}}]}]",
	} {
		_, err := suite.Parse("x.test.yaml", []byte(doc))
		same("tests "+path, sorted(at(tests, path)), told(err))
	}

	settings, _ := schemaNamed(t, "config")
	dir := t.TempDir()
	for i, c := range []struct{ path, doc string }{
		{"", "zzqqxx: 1"},
		{"properties.serve", "serve: {zzqqxx: 1}"},
		{"properties.mcp", "mcp: {zzqqxx: 1}"},
		{"properties.model", "model: {zzqqxx: 1}"},
		{"properties.quotas", "quotas: {zzqqxx: 1}"},
		{"properties.anchors", "anchors: {zzqqxx: 1}"},
		{"properties.auth", "auth: {zzqqxx: 1}"},
		{"properties.auth.properties.issuers.items", "auth: {issuers: [{zzqqxx: 1}]}"},
		{"properties.evidence", "evidence: {zzqqxx: 1}"},
		{"properties.expose", "expose: {zzqqxx: 1}"},
		{"properties.expose.properties.workflows.items", "expose: {workflows: [{zzqqxx: 1}]}"},
		{"properties.upstreams.additionalProperties", "upstreams: {a: {zzqqxx: 1}}"},
		{"properties.upstreams.additionalProperties.properties.allow.items", "upstreams: {a: {allow: [{zzqqxx: 1}]}}"},
		{"properties.webhooks.additionalProperties", "webhooks: {a: {zzqqxx: 1}}"},
		{"properties.webhooks.additionalProperties.properties.filter", "webhooks: {a: {filter: {zzqqxx: 1}}}"},
		{"properties.gates.items", "gates: [{zzqqxx: 1}]"},
		{"properties.evidence.properties.sources.additionalProperties", "evidence: {sources: {a: {zzqqxx: 1}}}"},
		{"properties.evidence.properties.sources.additionalProperties.properties.arguments.additionalProperties", "evidence: {sources: {a: {arguments: {b: {zzqqxx: 1}}}}}"},
	} {
		file := filepath.Join(dir, fmt.Sprint(i, ".yaml"))
		put(t, file, c.doc)
		_, err := serve.CheckConfig(&cli.Console{Parse: parseArguments}, file)
		said := strings.Join(term.ListLines(err), "\n")
		same("config "+c.path, sorted(at(settings, c.path)), told(fmt.Errorf("%s", said)))
	}
}
