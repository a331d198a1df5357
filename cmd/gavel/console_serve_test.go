package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
)

// browser is a client with cookies that follows no redirect.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// browse sends a GET, or a form by POST, with headers in pairs.
func browse(t *testing.T, c *http.Client, address string, form url.Values, headers ...string) (status int, body string, got http.Header) {
	t.Helper()
	method, content := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, content = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(t.Context(), method, address, content)
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

func TestConsoleOfAServer(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	c, console := browser(t), s.url+"/console/"
	if code, _, h := browse(t, c, s.url+"/", nil); code != http.StatusSeeOther || h.Get("Location") != "/console/" {
		t.Errorf("/ answers %d to %q", code, h.Get("Location"))
	}
	if code, _, h := browse(t, c, console, nil); code != http.StatusSeeOther || !strings.HasPrefix(h.Get("Location"), "/console/sign-in?") {
		t.Errorf("without a session: %d to %q", code, h.Get("Location"))
	}
	if code, _, h := browse(t, c, console+"sign-in", url.Values{"token": {s.agent}}); code != http.StatusForbidden || h.Get("Set-Cookie") != "" {
		t.Errorf("an agent gets %d", code)
	}
	// The guard of the server refuses other sites before anything is read.
	for _, origin := range []string{"https://evil.example", "null"} {
		if code, _, h := browse(t, c, console+"sign-in", url.Values{"token": {s.owner}}, "Origin", origin); code != http.StatusForbidden || h.Get("Set-Cookie") != "" {
			t.Errorf("a form of %s gets %d", origin, code)
		}
	}
	if code, _, _ := browse(t, c, console+"sign-in", url.Values{"token": {s.owner}}, "Origin", s.url); code != http.StatusSeeOther {
		t.Fatalf("the operator gets %d", code)
	}
	code, page, _ := browse(t, c, console, nil)
	if code != http.StatusOK || !strings.Contains(page, "local:operator") || !strings.Contains(page, "&#34;url&#34;: &#34;"+s.url+"/mcp&#34;") {
		t.Errorf("the first page: %d\n%s", code, page)
	}
	// The cookie counts below /console/ alone.
	at, _ := url.Parse(console)
	cookie := c.Jar.Cookies(at)[0]
	for _, path := range []string{"/v1/instances", "/metrics", "/mcp"} {
		if code, _, _ := browse(t, s.client, s.url+path, nil, "Cookie", cookie.Name+"="+cookie.Value); code != http.StatusUnauthorized {
			t.Errorf("%s with the cookie of the console answers %d", path, code)
		}
	}
	if code, _, _ := browse(t, browser(t), console, nil, "Authorization", "Bearer "+s.owner); code != http.StatusSeeOther {
		t.Errorf("a token without a session gets %d", code)
	}
	// The session ends with its token.
	runGavel(t, "token", "revoke", strings.Split(s.owner, "_")[1], "--store", s.store)
	if code, _, _ := browse(t, c, console, nil); code != http.StatusSeeOther {
		t.Errorf("after the token was revoked: %d", code)
	}
}

// Where callers are not identified, every caller is the agent.
func TestConsoleWithoutAuthentication(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--auth", "none")
	code, page, h := browse(t, browser(t), s.url+"/console/sign-in", url.Values{"token": {""}})
	if code != http.StatusForbidden || h.Get("Set-Cookie") != "" || !strings.Contains(page, "<code>gavel ui</code>") || strings.Contains(page, s.store) {
		t.Errorf("%d\n%s", code, page)
	}
}

// A live page counts as an event stream, and ends when the server drains.
func TestLivePagesOfAServer(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	c, console := browser(t), s.url+"/console/"
	browse(t, c, console+"sign-in", url.Values{"token": {s.owner}})
	_, page, _ := browse(t, c, console, nil)
	after := regexp.MustCompile(`data-after="(\d+)"`).FindStringSubmatch(page)[1]
	follow := func() *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, console+"-/live?after="+after, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	live := follow() //nolint:bodyclose // the cleanup closes it
	for range 7 {
		if res := follow(); res.StatusCode != http.StatusOK { //nolint:bodyclose // the cleanup closes it
			t.Fatalf("a stream gets %d", res.StatusCode)
		}
	}
	if res := follow(); res.StatusCode != http.StatusTooManyRequests { //nolint:bodyclose // the cleanup closes it
		t.Errorf("the ninth stream of a principal gets %d", res.StatusCode)
	}
	definition := `{"name":"paper","initialState":"draft","states":{"draft":{"transitions":{"submit":{"target":"done","requiredFields":["title"]}}},"done":{"final":true}}}`
	s.call(s.owner, "workflow_define", definition)
	if isError, text := s.call(s.agent, "workflow_start", `{"type":"paper"}`); isError {
		t.Fatal(text)
	}
	lines, found := bufio.NewScanner(live.Body), false
	lines.Buffer(nil, 1<<20)
	for !found && lines.Scan() {
		found = strings.Contains(lines.Text(), `"id":"working"`) && strings.Contains(lines.Text(), "local:agent")
	}
	if !found {
		t.Fatal("the page does not show the instance")
	}
	s.term()
	for lines.Scan() { // until the server ends the stream
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
	s.stop()
}

// gavel ui works next to gavel mcp, and ends at Ctrl+C.
func TestUINextToAServer(t *testing.T) {
	t.Parallel()
	store := storeIn(t)
	mcp := launch(t, "--store", store)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ui := exec.CommandContext(ctx, "gavel", "ui", "--store", store)
	ui.Env = cli.WithoutSettings(os.Environ())
	in, err := ui.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := ui.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ui.Start(); err != nil {
		t.Fatal(err)
	}
	links := bufio.NewScanner(out)
	links.Scan()
	first := links.Text()
	fmt.Fprintln(in)
	links.Scan()
	second := links.Text()
	if !strings.HasPrefix(first, "http://127.0.0.1:") || second == first || !strings.HasPrefix(second, first[:strings.Index(first, "/link/")]) {
		t.Fatalf("the links are %q and %q", first, second)
	}
	if code, _, _ := browse(t, browser(t), first, nil); code != http.StatusUnauthorized {
		t.Errorf("a link that a newer one replaced gets %d", code)
	}
	c := browser(t)
	if code, _, _ := browse(t, c, second, nil); code != http.StatusSeeOther {
		t.Fatalf("the link gets %d", code)
	}
	console := second[:strings.Index(second, "link/")]
	if _, page, _ := browse(t, c, console, nil); !strings.Contains(page, "Waiting for a first call") || !strings.Contains(page, filepath.Base(store)) {
		t.Errorf("the first page of an empty store:\n%s", page)
	}
	mcp.define(`{"name":"paper","initialState":"draft","states":{"draft":{"transitions":{"submit":{"target":"done","requiredFields":["title"]}}},"done":{"final":true}}}`)
	id := mcp.must("workflow.start", map[string]any{"type": "paper"}).field("id")
	mcp.call("workflow.advance", map[string]any{"id": id, "action": "submit"})
	if _, page, _ := browse(t, c, console, nil); !strings.Contains(page, id) || !strings.Contains(page, "is required") {
		t.Errorf("the first page after a refusal:\n%s", page)
	}
	if err := ui.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for links.Scan() {
	}
	if err := ui.Wait(); err != nil {
		t.Errorf("gavel ui ends with %v", err)
	}
}

func TestUIUsage(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	out, err := exec.Command("gavel", "ui", "--port", "70000", "--store", storeIn(t)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--port must be 0 to 65535") {
		t.Errorf("%v\n%s", err, out)
	}
}
