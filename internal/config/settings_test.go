package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/validators/document"
)

// settings returns settings of every form, at the top level and in sections.
func settings() []config.Setting {
	return []config.Setting{
		{Key: "store", Form: config.Text},
		{Key: "definitions", Form: config.List},
		{Key: "logLevel", Form: config.Text, Choices: []string{"warn", "debug"}},
		{Section: "serve", Key: "elicit", Form: config.Switch},
		{Section: "serve", Key: "rate", Form: config.Number},
		{Section: "serve", Key: "idleTimeout", Form: config.Span},
		{Section: "quotas", Key: "bytes", Form: config.Whole},
	}
}

func TestValues(t *testing.T) {
	f, err := config.Load(write(t, "gavel.yaml", `store: here.db
definitions: one
logLevel: debug
serve:
  elicit: false
  rate: 2.50

  idleTimeout: 1h30m
quotas: {bytes: 1e3}
`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Values(settings())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]config.Value{
		"store": {Text: "here.db", Line: 1}, "definitions": {List: []string{"one"}, Line: 2}, "logLevel": {Text: "debug", Line: 3},
		"serve.elicit": {Text: "false", Line: 5}, "serve.rate": {Text: "2.50", Line: 6}, "serve.idleTimeout": {Text: "1h30m", Line: 8},
		"quotas.bytes": {Text: "1000", Line: 9},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, at := range []struct {
		section, key string
		line         int
	}{{"", "serve", 4}, {"serve", "rate", 6}, {"serve", "nothing", 0}, {"nothing", "rate", 0}, {"", "nothing", 0}} {
		if line := f.Line(at.section, at.key); line != at.line {
			t.Errorf("%s %s stands in line %d, want %d", at.section, at.key, line, at.line)
		}
	}
}

func TestValuesAreStrict(t *testing.T) {
	for name, c := range map[string]struct {
		text, path string
		rule       document.Rule
	}{
		"unknown key":     {"serve: {elict: true}", "/serve/elict", document.RuleUnknownKey},
		"key of another":  {"quotas: {rate: 1}", "/quotas/rate", document.RuleUnknownKey},
		"no section":      {"serve: true", "/serve", document.RuleType},
		"null":            {"store: null", "/store", document.RuleType},
		"switch as text":  {"serve: {elicit: 'yes'}", "/serve/elicit", document.RuleType},
		"number as text":  {"serve: {rate: '1'}", "/serve/rate", document.RuleType},
		"span as number":  {"serve: {idleTimeout: 30}", "/serve/idleTimeout", document.RuleType},
		"span of nothing": {"serve: {idleTimeout: ''}", "/serve/idleTimeout", document.RuleValue},
		"not whole":       {"quotas: {bytes: 1.5}", "/quotas/bytes", document.RuleType},
		"choice":          {"logLevel: loud", "/logLevel", document.RuleValue},
		"list of numbers": {"definitions: [1]", "/definitions/0", document.RuleType},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := config.Load(write(t, "gavel.yaml", c.text))
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Values(settings())
			all, ok := errors.AsType[document.Errors](err)
			if !ok || len(all) != 1 || all[0].Path != c.path || all[0].Rule != c.rule || all[0].Line != 1 {
				t.Errorf("%v, want %s at %s", err, c.rule, c.path)
			}
		})
	}
}

func TestNoFileHasNoValues(t *testing.T) {
	var f *config.File
	if got, err := f.Values(settings()); err != nil || len(got) != 0 || f.Line("", "store") != 0 {
		t.Errorf("%v %v", got, err)
	}
}

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "gavel.yaml")
	if err := os.WriteFile(path, []byte("gates:\n  sources: {}\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	f, err := config.Load(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(f.Section(config.SectionGates).JSON()))
	// Output: {"sources":{}}
}
