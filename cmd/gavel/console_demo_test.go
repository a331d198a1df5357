package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
)

// consoleProgram is a running program that prints the address of a console.
type consoleProgram struct {
	cmd     *exec.Cmd
	browser *http.Client
	link    string
	errs    *lockedBuffer
}

// openConsole starts a program and signs in with the link that it prints.
func openConsole(t *testing.T, env []string, args ...string) (p *consoleProgram, first string) {
	t.Helper()
	needsProgram(t)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p = &consoleProgram{cmd: exec.CommandContext(t.Context(), "gavel", args...), browser: &http.Client{Jar: jar}, errs: &lockedBuffer{}}
	p.cmd.Env, p.cmd.Stderr, p.cmd.Dir = append(cli.WithoutSettings(os.Environ()), env...), p.errs, t.TempDir()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v\n%s", err, p.errs)
	}
	p.link = strings.TrimSpace(line)
	return p, p.get(t, p.link)
}

func (p *consoleProgram) get(t *testing.T, url string) string {
	t.Helper()
	resp, err := p.browser.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v %s\n%s", url, err, resp.Status, page)
	}
	return string(page)
}

func (p *consoleProgram) page(t *testing.T, path string) string {
	t.Helper()
	before, _, _ := strings.Cut(p.link, "/console/")
	return p.get(t, before+path)
}

// The demo of the console has something for each part of the first page, and leaves nothing behind.
func TestDemoConsole(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a program cannot be asked to end")
	}
	tmp := t.TempDir()
	p, first := openConsole(t, []string{"TMPDIR=" + tmp}, "demo", "console")
	if n := strings.Count(first, `<li id="rev-`); n < 4 || n > 6 {
		t.Errorf("%d reviews wait", n)
	}
	for _, layer := range []string{"Action", "Required fields", "Schema", "Evidence", "Script", "State", "Model"} {
		if !strings.Contains(first, `<span class="badge no">`+layer+`</span>`) {
			t.Errorf("nothing was refused by %q", layer)
		}
	}
	if n := strings.Count(first, `<li id="wf-`); n < 8 {
		t.Errorf("%d instances are at work", n)
	}
	for _, warning := range regexp.MustCompile(`id="warning-[^"]*"`).FindAllString(first, -1) {
		t.Errorf("the demo is unsafe: %s", warning)
	}
	for _, secret := range []string{"ada@example.com", "DE02 1203"} {
		if strings.Contains(first, secret) {
			t.Errorf("%q is shown", secret)
		}
	}
	if page := p.page(t, "/console/definitions/refund"); strings.Contains(page, "not-operator") || !strings.Contains(page, "What version 2 changed") {
		t.Errorf("the definition of an operator is not shown as one:\n%s", page)
	}
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it did not end cleanly: %v\n%s", err, p.errs)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
