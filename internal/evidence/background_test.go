package evidence_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/judge"
)

// obey is a test suite that the tests control: it reports which process runs it, and then follows instructions.
func obey(value string) int {
	address, log, _ := strings.Cut(value, " ")
	f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return 89
	}
	fmt.Fprintln(f, "a run")
	_ = f.Close()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 90
	}
	fmt.Fprintln(conn, os.Getppid())
	order, _ := bufio.NewReader(conn).ReadString('\n')
	word, number, _ := strings.Cut(strings.TrimSpace(order), " ")
	n, _ := strconv.Atoi(number)
	switch word {
	case "exit":
		return n
	case "write":
		_, _ = os.Stdout.Write(bytes.Repeat([]byte("0123456789abcde\n"), n/16))
		return 0
	}
	return 91 // the test has ended
}

// question is a request made by a separate process.
type question struct {
	Source  evidence.Source
	Store   string
	Timeout time.Duration
}

// ask acts as a gavel process that makes one request and prints the result.
func ask(text string) int {
	var q question
	if json.Unmarshal([]byte(text), &q) != nil {
		return 92
	}
	self, err := os.Executable()
	if err != nil {
		return 93
	}
	m, err := evidence.New(evidence.Config{Sources: map[string]evidence.Source{"it": q.Source}}, evidence.Options{Watcher: self})
	if err != nil || m.KeepResults(q.Store, storeKey) != nil {
		return 94
	}
	defer m.Close()
	ctx, cancel := context.WithTimeout(context.Background(), q.Timeout)
	defer cancel()
	got, err := m.Fetch(ctx, judge.EvidenceRequest{Source: "it"}, false)
	fmt.Printf("%s %s %v\n", got.Content, got.Failure, err)
	return 0
}

var storeKey = bytes.Repeat([]byte{7}, 32)

// suite is a project with a controlled test suite, and a store inside the project.
type suite struct {
	t        *testing.T
	m        *evidence.Manager
	question question
	project  string
	runs     net.Listener
	accepted int
	log      string // gets a line for each run
}

func newSuite(t *testing.T, opts evidence.Options, change ...func(*evidence.Source)) *suite {
	t.Helper()
	runs, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err == nil {
		err = runs.SetDeadline(time.Now().Add(time.Minute))
	}
	if err != nil {
		t.Fatal(err)
	}
	h := &suite{t: t, runs: runs, project: t.TempDir(), log: filepath.Join(t.TempDir(), "runs")}
	h.write("code.go", "one")
	s := this(t, "dial="+runs.Addr().String()+" "+h.log)
	s.Background, s.Directory, s.Tree = true, h.project, h.project
	for _, c := range change {
		c(&s)
	}
	h.question = question{Source: s, Store: filepath.Join(h.project, "gavel.db"), Timeout: time.Minute}
	opts.Watcher = s.Command[0]
	h.m = manager(t, opts, map[string]evidence.Source{"it": s})
	if err := h.m.KeepResults(h.question.Store, storeKey); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runs.Close() })
	return h
}

func (h *suite) write(path, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.project, path), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// run is one run of the suite.
type run struct {
	net.Conn
	runner int
}

// started waits until the suite runs.
func (h *suite) started() run {
	h.t.Helper()
	conn, err := h.runs.Accept()
	if err != nil {
		h.t.Fatal("the suite does not run: ", err)
	}
	h.accepted++
	line, err := bufio.NewReader(conn).ReadString('\n')
	runner, err2 := strconv.Atoi(strings.TrimSpace(line))
	if err := errors.Join(err, err2); err != nil {
		h.t.Fatal(err)
	}
	return run{conn, runner}
}

func (r run) end(order string) {
	fmt.Fprintln(r, order)
	_ = r.Close()
}

// wantNoMore checks that the suite ran only as often as the test has seen.
func (h *suite) wantNoMore() {
	h.t.Helper()
	if text, err := os.ReadFile(h.log); err != nil || bytes.Count(text, []byte("\n")) != h.accepted {
		h.t.Errorf("%v; these runs, of which %d were expected: %q", err, h.accepted, text)
	}
}

// busy makes a request and expects the answer that the suite is running.
func (h *suite) busy() *judge.BusyError {
	h.t.Helper()
	got, err := h.m.Fetch(h.t.Context(), judge.EvidenceRequest{Source: "it"}, false)
	busy, ok := errors.AsType[*judge.BusyError](err)
	if !ok {
		h.t.Fatalf("it is not busy: %+v, %v", got, err)
	}
	return busy
}

// answer makes a request and waits for the result.
func (h *suite) answer() judge.FetchResult {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	got, err := h.m.Fetch(ctx, judge.EvidenceRequest{Source: "it"}, false)
	if err != nil {
		h.t.Fatal(err)
	}
	return got
}

// answers makes a request without waiting.
func (h *suite) answers() <-chan judge.FetchResult {
	out := make(chan judge.FetchResult, 1)
	go func() { out <- h.answer() }()
	return out
}

func (h *suite) wantExit(got judge.FetchResult, code int) {
	h.t.Helper()
	if r := result(h.t, got); *r.ExitCode != code || !strings.HasPrefix(got.Tree, "sha256:") || got.At.IsZero() {
		h.t.Errorf("exit code %d, %+v; want %d", *r.ExitCode, got, code)
	}
}

// One run serves all callers until a file changes, even if it failed. While it runs, callers get the answer that the
// suite is running.
func TestBackground(t *testing.T) {
	t.Parallel()
	h := newSuite(t, evidence.Options{})
	busy := h.busy()
	if busy.Message != "it is still running; try again in 2 s." || busy.RetryAfter != 2*time.Second {
		t.Errorf("busy: %v, %s", busy, busy.RetryAfter)
	}
	first := h.started()
	h.busy()
	waits := h.answers()
	first.end("exit 1")
	h.wantExit(<-waits, 1)
	h.wantExit(h.answer(), 1)
	if err := os.Chtimes(filepath.Join(h.project, "code.go"), time.Now(), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	before := h.answer()
	h.wantExit(before, 1)

	h.write("code.go", "two")
	waits = h.answers()
	h.started().end("exit 0")
	after := <-waits
	h.wantExit(after, 0)
	if after.Tree == before.Tree {
		t.Error("the tree changed, and its digest did not")
	}
	h.wantNoMore()
}

// If the tree changed during a run, the suite ran on neither state, even if the change was reverted. It runs once
// more, and then the failure is reported.
func TestBackgroundTreeChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second []string // contents that are written to the file
		want          judge.EvidenceFailure
	}{
		"once":                         {first: []string{"two"}},
		"once, and back":               {first: []string{"two", "one"}},
		"each time":                    {first: []string{"two"}, second: []string{"three"}, want: judge.FailureChanged},
		"each time, and back at once":  {first: []string{"two", "one"}, second: []string{"two", "one"}, want: judge.FailureChanged},
		"by what the suite leaves new": {first: []string{"", "a report"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newSuite(t, evidence.Options{})
			waits := h.answers()
			for i, texts := range [][]string{c.first, c.second} {
				at := h.started()
				for _, text := range texts {
					h.write("code.go", text)
				}
				at.end(fmt.Sprint("exit ", i))
			}
			got := <-waits
			h.wantNoMore()
			if c.want == "" {
				h.wantExit(got, 1) // the second run's result
				return
			}
			wantFailure(t, got, c.want)
			if !strings.Contains(got.Detail, "code.go") {
				t.Error(got.Detail)
			}
		})
	}
}

// If the runner is killed, the suite ends with it, and a waiting caller starts it once more.
func TestBackgroundRunnerIsKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("nothing watches commands there")
	}
	h := newSuite(t, evidence.Options{})
	waits := h.answers()
	for range 2 {
		at := h.started()
		p, err := os.FindProcess(at.runner)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if n, err := at.Read(make([]byte, 1)); err == nil {
			t.Errorf("the suite goes on: %d bytes", n)
		}
		_ = at.Close()
	}
	wantFailure(t, <-waits, judge.FailureStopped)
	waits = h.answers()
	h.started().end("exit 0")
	h.wantExit(<-waits, 0)
}

// asker returns a separate process that makes a request.
func (h *suite) asker() *exec.Cmd {
	h.t.Helper()
	text, err := json.Marshal(h.question)
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), h.question.Source.Command[0])
	cmd.Env = append(os.Environ(), helperMode+"=ask="+string(text))
	return cmd
}

// If the process that made the request is killed, the suite continues.
func TestBackgroundAskerIsKilled(t *testing.T) {
	t.Parallel()
	h := newSuite(t, evidence.Options{})
	asker := h.asker()
	if err := asker.Start(); err != nil {
		t.Fatal(err)
	}
	at := h.started()
	if err := asker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = asker.Wait()
	h.busy()
	waits := h.answers()
	at.end("exit 3")
	h.wantExit(<-waits, 3)
	h.wantNoMore()
}

// One run serves concurrent requests of two processes.
func TestBackgroundTwoProcesses(t *testing.T) {
	t.Parallel()
	h := newSuite(t, evidence.Options{})
	var askers [2]*exec.Cmd
	var outputs [2]bytes.Buffer
	for i := range askers {
		askers[i] = h.asker()
		askers[i].Stdout = &outputs[i]
		if err := askers[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	h.started().end("exit 4")
	for i, asker := range askers {
		if err := asker.Wait(); err != nil || !strings.Contains(outputs[i].String(), `"exitCode":4`) {
			t.Errorf("asker %d: %q, %v", i, outputs[i].String(), err)
		}
	}
	h.wantNoMore()
}

// A result that cannot be stored is a failure with a reason.
func TestBackgroundDiskIsFull(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the disk of one process cannot be full here")
	}
	h := newSuite(t, evidence.Options{LookupEnv: func(name string) (string, bool) {
		if name == "TMPDIR" {
			return "disk-is-full", true
		}
		return os.LookupEnv(name)
	}})
	waits := h.answers()
	h.started().end("exit 0")
	got := <-waits
	wantFailure(t, got, judge.FailureUnavailable)
	if !strings.HasSuffix(got.Detail, "file too large") {
		t.Error(got.Detail)
	}
	if left, err := filepath.Glob(filepath.Join(h.project, evidence.ResultsFolder, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestBackgroundOutput(t *testing.T) {
	t.Parallel()
	h := newSuite(t, evidence.Options{})
	waits := h.answers()
	h.started().end(fmt.Sprint("write ", 50<<20))
	got := <-waits
	if output := *result(t, got).Output; !got.Truncated || len(output) > evidence.DefaultMaxOutput+100 {
		t.Errorf("%d bytes, truncated: %v", len(output), got.Truncated)
	}
}

// A result is valid only as gavel wrote it and for the same request. Another key, a changed byte, another name or
// other variables of the command invalidate it.
func TestBackgroundForged(t *testing.T) {
	t.Parallel()
	h := newSuite(t, evidence.Options{})
	waits := h.answers()
	h.started().end("exit 0")
	h.wantExit(<-waits, 0)
	kept, err := filepath.Glob(filepath.Join(h.project, evidence.ResultsFolder, "*.result"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept: %q, %v", kept, err)
	}
	text, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept[0], bytes.Replace(text, []byte(`"exitCode":0`), []byte(`"exitCode":7`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	waits = h.answers()
	h.started().end("exit 1")
	h.wantExit(<-waits, 1)

	other := h.question.Source
	other.Set = map[string]string{"MORE": "yes"}
	for name, value := range h.question.Source.Set {
		other.Set[name] = value
	}
	h.m = manager(t, evidence.Options{Watcher: other.Command[0]}, map[string]evidence.Source{"it": other})
	if err := h.m.KeepResults(h.question.Store, storeKey); err != nil {
		t.Fatal(err)
	}
	waits = h.answers()
	h.started().end("exit 2")
	h.wantExit(<-waits, 2)
	both, err := filepath.Glob(filepath.Join(h.project, evidence.ResultsFolder, "*.result"))
	if err != nil || len(both) != 2 {
		t.Fatalf("kept: %q, %v", both, err)
	}
	for i := range both { // each result under the other's name
		if both[i] != kept[0] {
			if err := os.Rename(kept[0], both[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	waits = h.answers()
	h.started().end("exit 3")
	h.wantExit(<-waits, 3)
	if err := h.m.KeepResults(h.question.Store, bytes.Repeat([]byte{8}, 32)); err != nil {
		t.Fatal(err)
	}
	waits = h.answers()
	h.started().end("exit 4")
	h.wantExit(<-waits, 4)
	h.wantNoMore()
}

// Without a store for results, the command runs while its caller waits.
func TestBackgroundWithoutStore(t *testing.T) {
	t.Parallel()
	s := this(t, "exit=5")
	s.Background = true
	got := fetchFrom(t, s, `{}`)
	if r := result(t, got); *r.ExitCode != 5 || got.Tree != "" {
		t.Errorf("%+v", got)
	}
	s.Timeout = time.Second
	s.Set[helperMode] = "hang"
	wantFailure(t, fetchFrom(t, s, `{}`), judge.FailureTimeout)
}

// A command that cannot run, or a tree that cannot be read, is reported immediately.
func TestBackgroundUnavailable(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*evidence.Source){
		"no program": func(s *evidence.Source) { s.Command = []string{"gavel-has-no-such-program"} },
		"no tree":    func(s *evidence.Source) { s.Tree += "/gone" },
		"no folder":  func(s *evidence.Source) { s.Tree, s.Directory = "", s.Directory+"/gone" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newSuite(t, evidence.Options{}, change)
			h.question.Source.Command[0] = os.Args[0]
			got := h.answer()
			wantFailure(t, got, judge.FailureUnavailable)
			if strings.Contains(got.Detail, h.project) {
				t.Error(got.Detail)
			}
		})
	}
}

// How long an outcome is valid, even if the clock changes.
func TestBackgroundCounts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		age, maxAge time.Duration
		failure     judge.EvidenceFailure
		other, want bool
	}{
		{age: 0, want: true},
		{age: 23 * time.Hour, want: true},
		{age: 25 * time.Hour},
		{age: -time.Second}, // the clock was set back
		{age: time.Minute, maxAge: time.Hour, want: true},
		{age: 2 * time.Hour, maxAge: time.Hour},
		{age: 25 * time.Hour, maxAge: 100 * time.Hour},
		{age: 0, other: true},
		{age: time.Minute, failure: judge.FailureTimeout, want: true},
		{age: 3 * time.Minute, failure: judge.FailureTimeout},
	} {
		if got := evidence.Counts(now.Add(-c.age), c.failure, !c.other, c.maxAge, now); got != c.want {
			t.Errorf("%+v counts: %v", c, got)
		}
	}
}
