package evidence_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/judge"
)

func TestExitCodesAreResults(t *testing.T) {
	t.Parallel()
	for _, code := range []int{0, 1, 2, 127, 255} {
		r := result(t, fetchFrom(t, this(t, fmt.Sprintf("exit=%d", code)), `{}`))
		if *r.ExitCode != code || *r.Output != "" {
			t.Errorf("exit code %d, output %q; want %d and nothing", *r.ExitCode, *r.Output, code)
		}
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, mode, want string }{
		{"text", "print=two\nlines\n", "two\nlines\n"},
		{"stdout and stderr as written", "interleave", "out 0\nerr 0\nout 1\nerr 1\nout 2\nerr 2\n"},
		{"not UTF-8", "print=a\xff\xfeb\xc3", "a\uFFFDb\uFFFD"},
		{"colours", "print=\x1b[31mFAIL\x1b[0m ok\x1b]8;;http://x\x1b\\link\x1b]8;;\x07!", "FAIL oklink!"},
		{"control characters", "print=a\rb\bc\x07\tend\n\u0085\u009b31mz", "abc\tend\nz"},
		{"markup stays", "print=<b>&amp;</b>", "<b>&amp;</b>"},
		{"stdin is empty", "stdin", "0 <nil>\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := fetchFrom(t, this(t, c.mode), `{}`)
			if r := result(t, f); *r.Output != c.want {
				t.Errorf("output %q, want %q", *r.Output, c.want)
			}
			if f.Truncated || f.Same != nil {
				t.Errorf("truncated %v, same %s; want neither", f.Truncated, f.Same)
			}
			if strings.Contains(string(f.Content), `\u003c`) {
				t.Errorf("%s is escaped more than it must be", f.Content)
			}
		})
	}
}

func TestJSONOfACommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, mode, want string
		failure          judge.EvidenceFailure
	}{
		{"a value, stderr dropped", `stderr={"failed": 3, "id": 1.50}`, `{"exitCode":0,"result":{"failed":3,"id":1.50}}`, ""},
		{"text", "print=fine", "", judge.FailureMalformed},
		{"nothing", "print=", "", judge.FailureMalformed},
		{"two values", "print={} {}", "", judge.FailureMalformed},
		{"a key twice", `print={"secret":1,"secret":2}`, "", judge.FailureMalformed},
		{"a number that would change", `print={"id":90071992547409931}`, "", judge.FailureMalformed},
		{"too deep", "print=" + strings.Repeat("[", 100) + strings.Repeat("]", 100), "", judge.FailureMalformed},
		{"too much", "flood", "", judge.FailureTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := this(t, c.mode)
			s.Output = evidence.OutputJSON
			f := fetchFrom(t, s, `{}`)
			if f.Failure != c.failure || string(f.Content) != c.want {
				t.Errorf("%q %s, want %q %s", f.Failure, f.Content, c.failure, c.want)
			}
			if strings.Contains(f.Detail, "secret") || strings.Contains(f.Detail, "fine") {
				t.Errorf("the detail says what was fetched: %s", f.Detail)
			}
		})
	}
}

func TestNoOutput(t *testing.T) {
	t.Parallel()
	s := this(t, "flood")
	s.Output = evidence.OutputNone
	if f := fetchFrom(t, s, `{}`); string(f.Content) != `{"exitCode":0}` {
		t.Errorf("content %s", f.Content)
	}
}

func TestSameIsThePartThatCounts(t *testing.T) {
	t.Parallel()
	s := this(t, `print={"at": 17, "open": [1.0, {"b":2,"a":1}]}`)
	s.Output, s.Same = evidence.OutputJSON, []string{"/exitCode", "/result/open/1", "/result/nothing"}
	if f := fetchFrom(t, s, `{}`); string(f.Same) != `{"/exitCode":0,"/result/open/1":{"a":1,"b":2}}` {
		t.Errorf("same %s", f.Same)
	}
	s.Same = []string{"/result/nothing", "/result/open/01"}
	if f := fetchFrom(t, s, `{}`); f.Same != nil {
		t.Errorf("same %s; want all of it when none of the parts is there", f.Same)
	}
}

// A command that prints 100 MB is read to the end, in memory bounded by its limit.
func TestFlood(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := this(t, "flood")
	s.MaxOutput, s.Timeout = 3000, 2*time.Minute
	f := fetchFrom(t, s, `{}`)
	runtime.ReadMemStats(&after)
	r := result(t, f)
	if !f.Truncated || !strings.HasPrefix(*r.Output, "the first line\n") || !strings.HasSuffix(*r.Output, "\nthe last line\n") {
		t.Errorf("truncated %v, output %.100q", f.Truncated, *r.Output)
	}
	wrote := len("the first line\n") + 100<<20 + len("the last line\n")
	if mark := fmt.Sprintf("\n[... %d bytes left out ...]\n", wrote-3000); !strings.Contains(*r.Output, mark) {
		t.Errorf("no mark %q in %q", mark, *r.Output)
	}
	if len(*r.Output) > 3100 {
		t.Errorf("%d bytes kept of 3000", len(*r.Output))
	}
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 10<<20 {
		t.Errorf("100 MB of output cost %d bytes of allocations", grew)
	}
}

// Whatever a command does, the fetch ends at its timeout. The bound is much larger than the expected time.
func TestTimeout(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"hang", "endless", "grandchild"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			s := this(t, mode+"="+file)
			s.Timeout = time.Second
			began := time.Now()
			f := fetchFrom(t, s, `{}`)
			wantFailure(t, f, judge.FailureTimeout)
			if !strings.Contains(f.Detail, "1s") {
				t.Errorf("detail %q does not say how long", f.Detail)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
			if mode == "grandchild" {
				wantGone(t, file)
			}
		})
	}
}

// If a command succeeds but leaves a process that holds its output, the fetch has a result, and that process is
// ended.
func TestOrphanedProcessesAreEnded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	s := this(t, "orphan="+file)
	s.Timeout = time.Minute
	if r := result(t, fetchFrom(t, s, `{}`)); *r.ExitCode != 0 {
		t.Errorf("exit code %d", *r.ExitCode)
	}
	wantGone(t, file)
}

// A process in another session is out of reach, and the fetch does not wait for it.
func TestEscapedProcessesAreNotAwaited(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	s := this(t, "escaped="+file)
	s.Timeout = 2 * time.Minute
	began := time.Now()
	if r := result(t, fetchFrom(t, s, `{}`)); *r.ExitCode != 0 {
		t.Errorf("exit code %d", *r.ExitCode)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	end(t, file)
}

func TestTheCallerGoes(t *testing.T) {
	t.Parallel()
	m := manager(t, evidence.Options{}, map[string]evidence.Source{"it": this(t, "hang")})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	f, err := m.Fetch(ctx, judge.EvidenceRequest{Source: "it"}, false)
	if !errors.Is(err, context.DeadlineExceeded) || f.Failure != "" {
		t.Errorf("got %+v, %v; want the context's error", f, err)
	}
}

func TestStopped(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("nothing is ended by a signal here")
	}
	wantFailure(t, fetchFrom(t, this(t, "suicide"), `{}`), judge.FailureStopped)
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "garbage"), []byte("\x7fELF nothing"), 0o700); err != nil { //nolint:gosec // deliberately not a program
		t.Fatal(err)
	}
	fine := this(t, "exit=0").Command[0]
	for _, c := range []struct {
		name, command, directory string
		warnings                 int
	}{
		{"not on PATH", "no-such-program-anywhere", "", 1},
		{"not in the directory", "./missing", dir, 1},
		{"not executable", "./plain", dir, 1},
		{"a directory", dir, "", 1},
		{"no program", "./garbage", dir, 0},
		{"no directory", fine, filepath.Join(dir, "gone"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := manager(t, evidence.Options{}, map[string]evidence.Source{"it": {Command: []string{c.command}, Directory: c.directory}})
			if w := m.Warnings(); len(w) != c.warnings || c.warnings > 0 && !strings.Contains(w[0], `"it"`) {
				t.Errorf("warnings %q, want %d", w, c.warnings)
			}
			f := fetch(t, m, `{}`)
			wantFailure(t, f, judge.FailureUnavailable)
			if strings.Contains(f.Detail, dir) {
				t.Errorf("the detail tells of paths: %s", f.Detail)
			}
		})
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "project"), 0o700); err != nil {
		t.Fatal(err)
	}
	for directory, want := range map[string]string{"": dir, "./project": filepath.Join(dir, "project")} {
		s := this(t, "directory")
		s.Directory = directory
		m, err := evidence.New(evidence.Config{Dir: dir, Sources: map[string]evidence.Source{"it": s}}, evidence.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		if r := result(t, fetch(t, m, `{}`)); strings.TrimSpace(*r.Output) != want {
			t.Errorf("directory %q runs in %q, want %q", directory, *r.Output, want)
		}
	}
}

// A command receives the named variables, and none of gavel's secrets.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	mine := map[string]string{
		"PATH": "/bin", "HOME": "/home/x", "LANG": "C", "LLM_API_KEY": "sk-secret", "GAVEL_TOKEN": "secret",
		"AWS_SECRET_ACCESS_KEY": "secret", "TICKET": "t",
	}
	lookup := func(name string) (string, bool) { v, ok := mine[name]; return v, ok }
	for _, c := range []struct {
		name  string
		names []string
		want  []string
	}{
		{"by default", nil, []string{"HOME=/home/x", "LANG=C", "PATH=/bin"}},
		{"none", []string{}, nil},
		{"named", []string{"TICKET", "GAVEL_TOKEN", "NOT_SET", helperMode}, []string{"GAVEL_TOKEN=secret", "TICKET=t"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := this(t, "environment")
			s.Environment = c.names
			m := manager(t, evidence.Options{LookupEnv: lookup}, map[string]evidence.Source{"it": s})
			got := strings.Fields(*result(t, fetch(t, m, `{}`)).Output)
			slices.Sort(got)
			want := append(slices.Clone(c.want), helperMode+"=environment", "GORACE="+hurry)
			slices.Sort(want)
			if runtime.GOOS != "windows" && !slices.Equal(got, want) { // Windows adds its own
				t.Errorf("environment %q, want %q", got, want)
			}
		})
	}
}

// The command receives a value as exactly one argument, byte for byte, whatever it means to a shell.
func TestArgumentsAreArguments(t *testing.T) {
	t.Parallel()
	s := this(t, "arguments", "first", "{{a}}", "--name={{a}}", "{{a}}{{b}}", "{{{{.ID}}")
	s.Arguments["b"] = evidence.Argument{Optional: true}
	s.Output = evidence.OutputJSON
	m := manager(t, evidence.Options{}, map[string]evidence.Source{"it": s})
	for _, value := range []string{
		"plain", "two words", "; rm -rf /", "$(id)", "`id`", "a|b", "a && b", "> /etc/passwd", "'", `"`, `\`, "*", "~", "${HOME}", "%PATH%",
		"a=b", "{{b}}", "{{{{", "é 世界", "!x", "#", "@file", "a -c b",
	} {
		encoded, err := json.Marshal(map[string]string{"a": value})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := json.Unmarshal(result(t, fetch(t, m, string(encoded))).Result, &got); err != nil {
			t.Fatal(err)
		}
		if want := []string{"first", value, "--name=" + value, value, "{{.ID}}"}; !slices.Equal(got, want) {
			t.Errorf("%q arrived as %q", value, got)
		}
	}
	var got []string
	if err := json.Unmarshal(result(t, fetch(t, m, `{"a":1.50,"b":true}`)).Result, &got); err != nil {
		t.Fatal(err)
	}
	if want := []string{"first", "1.50", "--name=1.50", "1.50true", "{{.ID}}"}; !slices.Equal(got, want) {
		t.Errorf("numbers and booleans arrived as %q", got)
	}
}
