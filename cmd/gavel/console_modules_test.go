package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Pages of modules: servers with their drift, runs, and the judge. What other servers and chains say is inert.
func TestConsolePagesOfModules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hostile := "</style><script>alert(1)</script><img src=x onerror=alert(1)> \u202egnp.exe\u202c \u2066" + strings.Repeat("W", 20_000)
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	evil := `{"name":"evil","description":` + string(quoted) + `,"initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`
	for name, text := range map[string]string{
		"evil.json":  evil,
		"inner.yaml": "definitions: [evil.json]\nexpose: {workflows: [evil]}\n",
		"look.json":  `{"name":"look","description":` + string(quoted) + `,"steps":[{"id":"wait","type":"wait","signal":"go"}]}`,
		"gavel.yaml": "upstreams:\n  inner: {command: [gavel, mcp, --store, memory, --config, '" + filepath.Join(dir, "inner.yaml") + "'], allow: [{tools: ['*']}]}\nchains: {definitions: [look.json]}\n",
	} {
		put(t, filepath.Join(dir, name), text)
	}
	s := serveGavel(t, "--config", filepath.Join(dir, "gavel.yaml"))
	c, console := browser(t), s.url+"/console/"
	if code, _, _ := browse(t, c, console+"sign-in", url.Values{"token": {s.owner}}); code != http.StatusSeeOther {
		t.Fatalf("sign in: %d", code)
	}
	show := func(path string, wants ...string) string {
		t.Helper()
		code, page, _ := browse(t, c, console+path, nil)
		if code != http.StatusOK {
			t.Fatalf("%s: %d\n%s", path, code, page)
		}
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s does not show %q:\n%.4000s", path, want, page[strings.Index(page, "<main"):])
			}
		}
		for _, raw := range []string{"<script>alert", "<img", "\u202e", "\u2066"} {
			if strings.Contains(page, raw) {
				t.Errorf("%s has %q", path, raw)
			}
		}
		return page
	}
	send := func(page, action string, form url.Values) {
		t.Helper()
		form.Set("csrf", regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(show(page))[1])
		if code, body, _ := browse(t, c, console+page+"/-/"+action, form); code != http.StatusSeeOther {
			t.Fatalf("%s: %d\n%s", action, code, body)
		}
	}

	show("", "Never pinned, so their tools are not listed: inner.")
	show("servers", "never pinned")
	send("servers", "check", url.Values{})
	page := show("servers", "&lt;script&gt;alert(1)", "more characters)")
	form := url.Values{"server": {"inner"}}
	for _, item := range regexp.MustCompile(`name="item" value="([0-9a-f]{64})"`).FindAllStringSubmatch(page[:strings.Index(page, "Accept all")], -1) {
		form.Add("item", item[1])
	}
	if len(form["item"]) < 5 {
		t.Fatalf("the form accepts %d items:\n%s", len(form["item"]), page)
	}
	send("servers", "accept", form)
	if _, err := os.Stat(filepath.Join(dir, "gavel.pins.json")); err != nil {
		t.Error(err)
	}
	show("servers", "accepted: the pins of inner were written.")

	code, answer, _ := browse(t, s.client, s.url+"/v1/runs", nil, "Authorization", "Bearer "+s.owner)
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	isError, text := s.call(s.owner, "chain_start", `{"chain":"look"}`)
	run := regexp.MustCompile(`run-[0-9a-f-]+`).FindString(text)
	if isError || run == "" {
		t.Fatal(text)
	}
	show("runs", "&lt;script&gt;alert(1)", "202E⟩gnp.exe", run)
	s.until("the run waits", func() bool { return strings.Contains(show("runs/"+run), "the signal go") })
	show("instances/wf-"+run, "Runs of chains", "the signal go")
	send("runs/"+run, "signal", url.Values{"name": {"go"}, "value": {`"<b>"`}})
	s.until("the run ends", func() bool { return strings.Contains(show("runs/"+run), `badge yes">done`) })
	show("judge", "No model is configured here", "No decision was made by a model.")
	if isError, text := s.call(s.owner, "workflow_define", evil); isError {
		t.Fatal(text)
	}
	show("definitions/evil?flip=20", "202E⟩gnp.exe", "No decision could be compared.")
}
