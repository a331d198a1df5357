package evidence_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/judge"
)

// helperMode is the variable that makes this test binary act as the command.
const helperMode = "EVIDENCE_TEST_COMMAND"

// hurry disables the race detector's sleep of one second at exit.
const hurry = "atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if process.Watch(os.Args, os.Stdin) {
		return
	}
	if os.Args[0] == evidence.RunnerName {
		fillDisk(os.Getenv("TMPDIR"))
		evidence.Run(os.Stdin, os.Stdout)
		return
	}
	if mode := os.Getenv(helperMode); mode != "" {
		os.Exit(helper(mode))
	}
	// A command that lost its environment must not run the tests, because they would run it again.
	if !slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.") }) {
		fmt.Fprintln(os.Stderr, "run the tests with go test, or with -test.v")
		os.Exit(99)
	}
	goleak.VerifyTestMain(m)
}

// helper performs the command's task.
func helper(mode string) int {
	mode, value, _ := strings.Cut(mode, "=")
	switch mode {
	case "print":
		fmt.Print(value)
	case "exit":
		code, _ := strconv.Atoi(value)
		return code
	case "arguments":
		json.NewEncoder(os.Stdout).Encode(os.Args[1:])
	case "environment":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "directory":
		dir, _ := os.Getwd()
		fmt.Println(dir)
	case "stdin":
		n, err := io.Copy(io.Discard, os.Stdin)
		fmt.Println(n, err)
	case "interleave":
		for i := range 3 {
			fmt.Fprintln(os.Stdout, "out", i)
			fmt.Fprintln(os.Stderr, "err", i)
		}
	case "stderr":
		fmt.Fprintln(os.Stderr, "a warning")
		fmt.Print(value)
	case "flood", "endless":
		line := []byte(strings.Repeat("0123456789abcde\n", 4096))
		fmt.Println("the first line")
		for n := 0; n < 100<<20 || mode == "endless"; n += len(line) {
			if _, err := os.Stdout.Write(line); err != nil {
				return 3
			}
		}
		fmt.Println("the last line")
	case "dial":
		return obey(value)
	case "ask":
		return ask(value)
	case "hang":
		fmt.Println("hanging")
		hang()
	case "wait":
		d, _ := time.ParseDuration(value)
		<-time.After(d)
	case "suicide":
		p, _ := os.FindProcess(os.Getpid())
		p.Kill()
		hang()
	case "gate", "gate alone":
		return gate(mode, value)
	case "grandchild", "orphan", "escaped":
		return parent(mode, value)
	default:
		return 99
	}
	return 0
}

// gate acts as a gavel process that can be killed. It fetches from a command that hangs together with a child
// process. Both write their ids to files. A third file shows that gate has continued.
func gate(mode, file string) int {
	self, err := os.Executable()
	if err != nil {
		return 96
	}
	var opts evidence.Options
	if mode == "gate" {
		opts.Watcher = self
	}
	m, err := evidence.New(evidence.Config{Sources: map[string]evidence.Source{
		"hangs": {Command: []string{self}, Set: map[string]string{helperMode: "grandchild=" + file}, Timeout: time.Minute},
		"quick": {Command: []string{self}, Set: map[string]string{helperMode: "print=fine"}},
	}}, opts)
	if err != nil {
		return 95
	}
	go func() {
		for {
			if _, err := os.Stat(file); err == nil {
				break
			}
			<-time.After(5 * time.Millisecond)
		}
		_, _ = m.Fetch(context.Background(), judge.EvidenceRequest{Source: "quick"}, false)
		_ = os.WriteFile(file+".on", []byte("1"), 0o600)
	}()
	_, _ = m.Fetch(context.Background(), judge.EvidenceRequest{Source: "hangs"}, false) // the process is killed during the fetch
	return 94
}

// hang does nothing until long after every test.
func hang() { <-time.After(5 * time.Minute) }

// parent starts a child process that holds its output and hangs. Depending on mode, the child has its own session,
// and parent hangs too or exits. The child's id is written to the file.
func parent(mode, file string) int {
	child := exec.Command(os.Args[0])
	child.Env = []string{helperMode + "=hang"}
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if mode == "escaped" {
		child.SysProcAttr = ownSession()
	}
	if err := child.Start(); err != nil {
		return 98
	}
	for i, name := range []string{file + ".command", file} {
		if err := os.WriteFile(name, []byte(strconv.Itoa([]int{os.Getpid(), child.Process.Pid}[i])), 0o600); err != nil {
			return 97
		}
	}
	if mode == "grandchild" {
		hang()
	}
	return 0
}

// this returns a source that runs this test binary in a mode.
func this(t testing.TB, mode string, arguments ...string) evidence.Source {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]evidence.Argument{}
	for _, a := range arguments {
		for _, part := range strings.Split(strings.ReplaceAll(a, "{{{{", ""), "{{")[1:] {
			if name, _, ok := strings.Cut(part, "}}"); ok {
				declared[name] = evidence.Argument{}
			}
		}
	}
	return evidence.Source{
		Command:   append([]string{self}, arguments...),
		Arguments: declared,
		Set:       map[string]string{helperMode: mode, "GORACE": hurry},
	}
}

func manager(t testing.TB, opts evidence.Options, sources map[string]evidence.Source) *evidence.Manager {
	t.Helper()
	m, err := evidence.New(evidence.Config{Sources: sources}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// fetchFrom fetches once from a source with its own manager.
func fetchFrom(t testing.TB, s evidence.Source, arguments string) judge.FetchResult {
	t.Helper()
	return fetch(t, manager(t, evidence.Options{}, map[string]evidence.Source{"it": s}), arguments)
}

// fetch fetches from the source "it" with arguments, a JSON object.
func fetch(t testing.TB, m *evidence.Manager, arguments string) judge.FetchResult {
	t.Helper()
	f, err := m.Fetch(t.Context(), judge.EvidenceRequest{Source: "it", Arguments: json.RawMessage(arguments)}, false)
	if err != nil {
		t.Fatal(err)
	}
	if (f.Failure == "") != (f.Content != nil) || (f.Failure == "") != (f.Detail == "") {
		t.Errorf("a failure has a detail and no content, a success the reverse: %+v", f)
	}
	return f
}

// commandResult is the content of a command's result.
type commandResult struct {
	ExitCode *int            `json:"exitCode"`
	Output   *string         `json:"output"`
	Result   json.RawMessage `json:"result"`
}

func result(t testing.TB, f judge.FetchResult) commandResult {
	t.Helper()
	if f.Failure != "" {
		t.Fatalf("failed: %s: %s", f.Failure, f.Detail)
	}
	var out commandResult
	if err := json.Unmarshal(f.Content, &out); err != nil || out.ExitCode == nil {
		t.Fatalf("content %s: %v", f.Content, err)
	}
	return out
}

func wantFailure(t testing.TB, f judge.FetchResult, want judge.EvidenceFailure) {
	t.Helper()
	if f.Failure != want {
		t.Errorf("failure %q (%s), content %.200s; want %q", f.Failure, f.Detail, f.Content, want)
	}
}
