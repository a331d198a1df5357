package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
	"github.com/gavel-mcp/gavel/internal/config"
)

// TestConfigIsTakenWhole: a change of several sections is applied completely or not at all, even if a file that one
// of them names changes in the meantime. The log reports the mistake in one line.
func TestConfigIsTakenWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "gavel.yaml")
	for _, name := range []string{"a", "b"} {
		put(t, filepath.Join(dir, "chains", name+".yaml"), "name: "+name+"\nschedule: {type: interval, seconds: 86400}\nsteps: [{id: w, type: wait, signal: go}]\n")
	}
	put(t, file, "logLevel: info\nchains: {definitions: chains/a.yaml, runAs: {principal: night}}\nexpose: {chains: [a]}\n")
	s := serveGavel(t, "--config", file)
	list := func() string {
		s.t.Helper()
		return fmt.Sprint(s.must(s.owner, http.MethodGet, "/v1/chains", "")["chains"])
	}

	const refused = "the changed configuration was refused"
	put(t, file, "logLevel: warn\nchains: {definitions: chains}\nexpose: {chains: [b], tagKey: \"\"}\n")
	s.sees(`\"tagKey\" is empty`)
	put(t, filepath.Join(dir, "chains", "a.yaml"), "name: a\ndescription: new\nsteps: [{id: w, type: wait, signal: go}]\n")
	s.until("the file of a chain is looked at", func() bool { return strings.Count(s.stderr.String(), refused) == 2 })
	if got := list(); strings.Contains(got, "name:b") || strings.Contains(got, "new") {
		t.Errorf("a half of a refused file is in force: %s", got)
	}
	if strings.Contains(s.stderr.String(), "is in force") || strings.Contains(s.stderr.String(), "a schedule starts nothing") {
		t.Errorf("a half of a refused file is in force:\n%s", s.stderr)
	}
	s.until("readyz says so", func() bool {
		_, ready := s.ask("", http.MethodGet, "/readyz", "")
		return strings.Contains(fmt.Sprint(ready), "name:chains ok:false")
	})

	put(t, file, "logLevel: info\nchains: {definitions: chains}\nexpose: {chains: [a, b]}\n")
	s.sees("the changed section is in force\" config=" + file + " section=chains")
	s.sees("the changed section is in force\" config=" + file + " section=expose")
	s.sees(`a schedule starts no runs: name the principal that they act for in chains.runAs" chain=b`)
	if got := list(); !strings.Contains(got, "name:b") || !strings.Contains(got, "new") {
		t.Errorf("after the mistake is fixed: %s", got)
	}
	if strings.Contains(s.stderr.String(), "no chain of the section chains has the name") {
		t.Errorf("what is exposed was compared with the chains of before:\n%s", s.stderr)
	}
	s.until("readyz says so", func() bool {
		_, ready := s.ask("", http.MethodGet, "/readyz", "")
		return strings.Contains(fmt.Sprint(ready), "name:chains ok:true")
	})
	if got := strings.Count(s.stderr.String(), refused); got != 2 {
		t.Errorf("%d lines say that it is refused:\n%s", got, s.stderr)
	}
}

// TestConfigMistakeIsUndone: readyz stops reporting a mistake when the text in force is restored. The mistake may be
// in the configuration, in another file, or in one of two sections.
func TestConfigMistakeIsUndone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, of := filepath.Join(dir, "gavel.yaml"), filepath.Join(dir, "chains", "a.yaml")
	const config, definition = "chains: {definitions: chains}\nexpose: {chains: [a]}\n", "name: a\nsteps: [{id: w, type: wait, signal: go}]\n"
	put(t, of, definition)
	put(t, file, config)
	s := serveGavel(t, "--config", file)
	ready := func(want string) {
		t.Helper()
		s.until("readyz says "+want, func() bool {
			_, ready := s.ask("", http.MethodGet, "/readyz", "")
			return strings.Contains(fmt.Sprint(ready), "name:chains ok:"+want)
		})
	}
	for _, mistake := range []struct{ file, wrong, undone string }{
		{file, "chains: {definitons: chains}\nexpose: {chains: [a]}\n", config},
		{file, "chains: [\n", config},
		{of, "name: a\nsteps: []\n", definition},
		{file, "chains: {definitons: chains}\nexpose: {chains: [a]}\n", "chains: {definitions: chains}\nexpose: {chains: [a], prefix: 7}\n"},
	} {
		put(t, mistake.file, mistake.wrong)
		ready("false")
		put(t, mistake.file, mistake.undone)
		ready("true")
	}
}

// TestConfigParts: a part that is rejected, is being written or belongs to another file does not affect the others.
func TestConfigParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, other := filepath.Join(dir, "gavel.yaml"), filepath.Join(dir, "other")
	var log bytes.Buffer
	var taken []string
	wrong := map[string]bool{}
	during := func() {}
	part := func(section string, files ...string) *serve.ConfigPart {
		return &serve.ConfigPart{Section: section, Files: func(*config.File) []string { return files }, Prepare: func(context.Context, *serve.ConfigChange) (func(), error) {
			during()
			if wrong[section] {
				return nil, errors.New("it is wrong")
			}
			return func() { taken = append(taken, section) }, nil
		}}
	}
	put(t, path, "expose: {prefix: a}\nchains: {state: a}\nwebhooks: {}\n")
	w := serve.NewConfigWatch(slog.New(slog.NewTextHandler(&log, nil)), path, part("chains", other), part("expose"), part("webhooks"), &serve.ConfigPart{Section: "evidence"})
	look := func(want, said string) {
		t.Helper()
		log.Reset()
		taken = nil
		w.Look(t.Context(), false) // it may still be being written
		if len(taken) > 0 || log.Len() > 0 {
			t.Errorf("it was read at once: %v %s", taken, &log)
		}
		for range 2 {
			w.Look(t.Context(), false)
		}
		if got := strings.Join(taken, " "); got != want || strings.Count(log.String(), said) != 1 || said == "refused" && strings.Count(log.String(), "\n") != 1 {
			t.Errorf("took %q, want %q with one %q: %s", got, want, said, &log)
		}
	}
	wrong["expose"] = true
	put(t, path, "expose: {prefix: b}\nchains: {state: b}\nwebhooks: {}\n")
	look("", "refused")
	put(t, other, "changed")
	look("", "refused")
	put(t, path, "expose: [\n")
	look("", "refused")
	wrong["expose"] = false
	put(t, path, "expose: {prefix: b}\nchains: {state: b}\nwebhooks: {}\nevidence: {}\n")
	look("chains expose", "takes effect only after a restart")
	put(t, path, "expose: {prefix: c}\nchains: {state: c}\nwebhooks: {}\nevidence: {}\n")
	during = func() {
		during = func() {}
		put(t, path, "expose: {prefix: dd}\nchains: {state: c}\nwebhooks: {}\nevidence: {}\n")
	}
	w.Look(t.Context(), true)
	if len(taken) != 2 { // of the previous change
		t.Errorf("what was written meanwhile is taken over: %v", taken)
	}
	look("chains expose", "section=expose")

	wrong["expose"] = true
	put(t, path, "expose: {prefix: e}\nchains: {state: c}\nwebhooks: {}\nevidence: {}\n")
	look("", "refused")
	wrong["expose"] = false
	w.Look(t.Context(), true)
	if got := strings.Join(taken, " "); got != "expose" {
		t.Errorf("what was refused and is read at once: %q", got)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	wrong["webhooks"] = true // its section is unchanged
	look("chains", "section=chains")
}
