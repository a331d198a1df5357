package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
)

var (
	consoleBlock = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")
	anyTokenID   = regexp.MustCompile(`(?m)^(token )?[0-9a-f]{16}\b`)
)

// The quick start shows actual output.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	showsConsole(t, "../../docs/quickstart.md", 6)
}

// The page on serving shows actual output.
func TestServePage(t *testing.T) {
	t.Parallel()
	showsConsole(t, "../../docs/serve.md", 2)
}

// showsConsole fails the test if a page's console blocks do not show the output of their commands. The commands
// run in one shell, in a folder with the page's files and the examples, next to the server that they start. With
// -update it rewrites the page.
func showsConsole(t *testing.T, page string, fewest int) {
	t.Helper()
	for _, program := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the page needs %s: %v", program, err)
		}
	}
	text := pages(t)[page]
	dir := t.TempDir()
	examples, err := filepath.Abs("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "testdata")); err != nil {
		t.Fatal(err)
	}
	for _, file := range fileBlock.FindAllStringSubmatch(text, -1) {
		name := filepath.Join(dir, file[1])
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(file[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shell := beginShell(t, dir)
	var blocks []string
	for _, block := range consoleBlock.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, shell.block(block[1]))
	}
	if len(blocks) < fewest {
		t.Fatalf("%d blocks of commands", len(blocks))
	}
	n := -1
	want := consoleBlock.ReplaceAllStringFunc(text, func(string) string {
		n++
		return "```console\n" + blocks[n] + "```"
	})
	if want == text {
		return
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s is stale; run: go test ./cmd/gavel -run %s -update\nit should show:\n%s", page, t.Name(), want)
}

// shellSession is a shell, and a server once a command has started one.
type shellSession struct {
	t      *testing.T
	dir    string
	stdin  io.Writer
	lines  *bufio.Scanner // output of commands, stdout and stderr
	served *served
	ids    exampleIDs
}

func beginShell(t *testing.T, dir string) *shellSession {
	t.Helper()
	needsProgram(t)
	cmd := exec.Command("bash", "--norc")
	cmd.Dir = dir
	cmd.Env = append(cli.WithoutSettings(os.Environ()), "NO_PROXY=*", "no_proxy=*", "NO_COLOR=1", "HOME="+t.TempDir())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	printed, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // ends the shell
		_ = cmd.Wait()    // its exit code is that of the last command
	})
	return &shellSession{t: t, dir: dir, stdin: stdin, lines: bufio.NewScanner(printed)}
}

// block runs a block's commands and returns them with their output.
func (s *shellSession) block(text string) string {
	s.t.Helper()
	var out strings.Builder
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			out.WriteString(line + s.steady(s.run(strings.TrimSpace(command))))
		}
	}
	return out.String()
}

func (s *shellSession) run(command string) string {
	s.t.Helper()
	if args, ok := strings.CutPrefix(command, "gavel serve "); ok {
		return s.serve(strings.Fields(args))
	}
	if s.served != nil {
		command = strings.ReplaceAll(command, "http://127.0.0.1:4285", s.served.url)
	}
	const mark = "-- that ended with "
	if _, err := fmt.Fprintf(s.stdin, "{ %s\n} </dev/null\necho \"%s$?\"\n", command, mark); err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	for s.lines.Scan() {
		if code, ok := strings.CutPrefix(s.lines.Text(), mark); ok {
			if code != "0" || strings.Contains(out.String(), ":null") { // printed by jq for missing values
				s.t.Errorf("%s: exit code %s\n%s", command, code, out.String())
			}
			return out.String()
		}
		out.WriteString(s.lines.Text() + "\n")
	}
	s.t.Fatalf("the shell ended at %s\n%s", command, out.String())
	return ""
}

// serve starts the server and returns its terminal output.
func (s *shellSession) serve(args []string) string {
	s.t.Helper()
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			args[i] = filepath.Join(s.dir, arg)
		}
	}
	s.served = serveStore(s.t, filepath.Join(s.dir, ".workflows", "gavel.db"), args...)
	return s.served.stderr.String()
}

// steady replaces values that vary between runs.
func (s *shellSession) steady(printed string) string {
	if s.served != nil {
		printed = strings.ReplaceAll(printed, s.served.url, "http://127.0.0.1:4285")
	}
	printed = strings.ReplaceAll(printed, s.dir+string(filepath.Separator), "")
	return s.ids.steady(anyTokenID.ReplaceAllString(printed, "${1}0123456789abcdef"))
}

// The first chain in the chains page works as shown.
func TestChainsPage(t *testing.T) {
	t.Parallel()
	showsConsole(t, "../../docs/chains.md", 2)
}
