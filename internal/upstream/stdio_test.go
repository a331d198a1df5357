//go:build unix

package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// A server's answers reach the caller byte for byte, whatever else it writes. The caller's data reaches the server in
// the same way.
func TestCallIsFaithful(t *testing.T) {
	m := openFake(t, upstream.Options{}, [3]string{"a", "well", ""})
	for tool, want := range map[string]string{"noise": edgeResult, "twice": `{"content":[],"n":1}`, "text id": `{"content":[]}`} {
		if got, err := call(t.Context(), m, "a", tool, ""); err != nil || string(got.Result) != want || got.Error != nil {
			t.Errorf("%s: %s, %v", tool, got.Result, err)
		}
	}
	if got, err := call(t.Context(), m, "a", "rpcerr", ""); err != nil || string(got.Error) != `{ "code":-32042, "message":"own", "data":{"x":1.0} }` || got.Result != nil {
		t.Errorf("error %s, %v", got.Error, err)
	}
	got, err := call(t.Context(), m, "a", "echo", `{"name":"a__echo","arguments":{"n": 12345678901234567890.0, "u":"\u00e9<&>"},"_meta":{"progressToken":7,"v/x":[1.0],"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"x":1}`)
	var line struct{ Line string }
	if err != nil || json.Unmarshal(got.Result, &line) != nil {
		t.Fatal(err)
	}
	id := string(document.ReadTrusted([]byte(line.Line)).Get("id").Raw())
	if _, params, _ := strings.Cut(line.Line, `"params":`); params != `{"name":"echo","arguments":{"n": 12345678901234567890.0, "u":"\u00e9<&>"},"_meta":{"progressToken":`+id+`,"v/x":[1.0]},"x":1}}` {
		t.Errorf("the server got %s", line.Line)
	}
}

// A misbehaving server fails only its own call, with a code and in time, and the next call works. Calls of other
// servers do not wait for it, and no process remains.
func TestCallOfNastyServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	for tool, c := range map[string]struct {
		code upstream.Code
		more string
	}{
		"hang":    {upstream.CodeTimeout, ", callTimeout: 200ms"},
		"exit":    {upstream.CodeLost, ""},
		"long":    {upstream.CodeProtocol, ""},
		"endless": {upstream.CodeTimeout, ", callTimeout: 200ms"},
		"fork":    {upstream.CodeLost, ""},
		"drowns":  {upstream.CodeTimeout, ", callTimeout: 200ms"},
		"task":    {upstream.CodeProtocol, ""},
		"deaf":    {upstream.CodeTimeout, ", callTimeout: 200ms"},
	} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			m := openFake(t, upstream.Options{}, [3]string{"a", "well=" + file + tool, c.more}, [3]string{"b", "well", ""})
			if _, err := call(t.Context(), m, "b", "noise", ""); err != nil { // starts the server
				t.Fatal(err)
			}
			ended := make(chan struct{})
			began := time.Now()
			go func() {
				defer close(ended)
				_, err := call(t.Context(), m, "a", tool, "")
				wantCode(t, err, c.code, true)
				if took := time.Since(began); took > 25*time.Second { // far below the default call timeout
					t.Errorf("took %s", took)
				}
			}()
			for others := 0; ; others++ {
				if _, err := call(t.Context(), m, "b", "noise", ""); err != nil {
					t.Errorf("a call of another server: %v", err)
				}
				select {
				case <-ended:
					if c.code == upstream.CodeTimeout && others == 0 {
						t.Errorf("%d calls of another server were answered meanwhile", others)
					}
				default:
					continue
				}
				break
			}
			if tool != "deaf" && tool != "endless" && tool != "drowns" { // these serve nothing afterwards
				if _, err := call(t.Context(), m, "a", "noise", ""); err != nil {
					t.Errorf("the next call: %v", err)
				}
			}
			m.Close()
			for _, name := range []string{file + tool, file + tool + ".child"} {
				text, err := os.ReadFile(name)
				if err != nil && tool != "fork" {
					continue
				}
				for pid := range strings.FieldsSeq(string(text)) {
					awaitGone(t, pid)
				}
			}
		})
	}
}

// An unreadable answer fails its call immediately with a reason. Output that is not an answer fails none.
func TestUnreadableAnswer(t *testing.T) {
	m := openFake(t, upstream.Options{}, [3]string{"a", "well", ""})
	for tool, want := range map[string]string{
		"deep":            `The server "a" gave no answer: the answer cannot be read: objects and arrays are nested more than 500 deep.`,
		"deep at the end": `The server "a" gave no answer: the answer cannot be read: objects and arrays are nested more than 500 deep.`,
		"stray":           `The server "a" gave no answer: the server sent an answer that matches no call: {"jsonrpc":"2.0","id":99999,"result":{"content":[]}}.`,
		"both":            `The server "a" gave no answer: the answer has both a result and an error.`,
		"NaN":             `The server "a" gave no answer: the answer cannot be read: expected a JSON value.`,
	} {
		_, err := call(t.Context(), m, "a", tool, "")
		wantCode(t, err, upstream.CodeProtocol, true)
		if err != nil && err.Error() != want {
			t.Errorf("%s: %s", tool, err)
		}
	}
	if reply, err := call(t.Context(), m, "a", "deep notice", ""); err != nil || string(reply.Result) != edgeResult {
		t.Errorf("%s, %v", reply.Result, err)
	}
}

// awaitGone waits until a process has ended, or is a zombie.
func awaitGone(t testing.TB, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); syscall.Kill(n, 0) == nil; <-time.After(10 * time.Millisecond) {
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		if _, after, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(after, "Z") {
			return
		}
		if time.Now().After(until) {
			t.Errorf("process %s still runs", pid)
			return
		}
	}
}

// Progress is passed on without its token and restarts the deadline. If the caller leaves, the server is notified. A
// server's own requests are refused, and its standard error blocks nothing.
func TestCallProgressAndCancel(t *testing.T) {
	m := openFake(t, upstream.Options{}, [3]string{"a", "well", ", callTimeout: 1500ms"}) // progress takes 2 s, in steps of 0.5 s
	var got []string
	reply, err := m.Call(t.Context(), agent, upstream.Request{
		Upstream: "a", Method: "tools/call", Kind: upstream.KindTool, Name: "progress",
		Progress: func(params json.RawMessage) { got = append(got, string(params)) },
	})
	if err != nil || !strings.Contains(string(reply.Result), "done") || len(got) != 4 || got[3] != `{"progress":3,"own":1.0}` {
		t.Errorf("%s, %v, progress %q", reply.Result, err, got)
	}
	if reply, err := call(t.Context(), m, "a", "progress", ""); err != nil || !strings.Contains(string(reply.Result), "done") {
		t.Errorf("of a caller that wants no progress: %s, %v", reply.Result, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := call(ctx, m, "a", "hang", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that left got %v", err)
	}
	for until := time.Now().Add(5 * time.Second); ; {
		reply, err := call(t.Context(), m, "a", "cancelled", "")
		if err == nil && !strings.Contains(string(reply.Result), `""`) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the server was not told: %s, %v", reply.Result, err)
		}
	}
	if reply, err := call(t.Context(), m, "a", "asks", ""); err != nil || !strings.Contains(string(reply.Result), "-32601") {
		t.Errorf("a request of the server's: %s, %v", reply.Result, err)
	}
	if reply, err := call(t.Context(), m, "a", "floods", ""); err != nil || !strings.Contains(string(reply.Result), "flooded") {
		t.Errorf("%s, %v", reply.Result, err)
	}
}

// If a server changes at run time, changed tools are neither listed nor callable. The same holds for tools that are
// added, removed, renamed, or that share a name. Principals whose list changes are notified.
func TestDrift(t *testing.T) {
	changes := make(chan upstream.Change, 10)
	m := openFake(t, upstream.Options{Changed: func(c upstream.Change) { changes <- c }}, [3]string{"a", "well", ""})
	before := publicNames(m.List(agent, upstream.KindTool))
	if _, err := call(t.Context(), m, "a", "drift", ""); err != nil {
		t.Fatal(err)
	}
	c := <-changes
	if c.Upstream != "a" || c.Kind != upstream.KindTool || !c.Affects(agent) || c.Affects(engine.Principal{}) {
		t.Errorf("change %+v", c)
	}
	want := strings.NewReplacer("a__echo ", "", "a__rpcerr ", "", " a__task", "").Replace(before)
	if after := publicNames(m.List(agent, upstream.KindTool)); len(want) != len(before)-len("a__echo a__rpcerr a__task ") || after != want {
		t.Errorf("listed were %s, and are %s", before, after)
	}
	for tool, says := range map[string]string{
		"echo": "differs from its pin (description)", "added": "is not pinned", "task": "no longer exists", "renamed": "is not pinned", "rpcerr": "is listed twice",
	} {
		_, err := call(t.Context(), m, "a", tool, "")
		wantCode(t, err, upstream.CodeDrifted, false)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: the message is %v", tool, err)
		}
	}
	if _, err := call(t.Context(), m, "a", "twice", ""); err != nil {
		t.Errorf("another tool: %v", err)
	}
}

// Of twenty servers, one hangs, one crashes at each start, and one forgets its session. No other server and no list
// is delayed, and the crashing one is started less and less often. Every write that the forgetful one reports as done
// was done once.
func TestOneOfTwenty(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "started")
	var writes, done atomic.Int64
	text := "  s0: " + fake(t, "mute", ", connectTimeout: 3s") + "  s1: " + fake(t, "crash="+file, "") + "  web: " + over(forgetful(t, "often", &writes), "")
	names := []string{"s0", "s1"}
	for i := 2; i < 19; i++ {
		names = append(names, fmt.Sprintf("s%d", i))
		text += "  " + names[i] + ": " + fake(t, "well", "")
	}
	p := fakePins(t, names...)
	if err := p.Set("web", []upstream.Item{newTool(t, "write")}); err != nil {
		t.Fatal(err)
	}
	m := open(t, text, upstream.Options{Pins: p})
	all := len(m.List(agent, upstream.KindTool))
	var wait sync.WaitGroup
	wait.Go(func() {
		_, err := call(t.Context(), m, "s0", "echo", "")
		wantCode(t, err, upstream.CodeUnavailable, false)
	})
	for range 40 {
		_, err := call(t.Context(), m, "s1", "echo", "")
		wantCode(t, err, upstream.CodeUnavailable, false)
	}
	for range 20 {
		wait.Go(func() {
			if reply, err := call(t.Context(), m, "web", "write", ""); err == nil && strings.Contains(string(reply.Result), "done") {
				done.Add(1)
			} else if e, ok := errors.AsType[*upstream.Error](err); !ok || e.MayHaveRun {
				t.Errorf("a write that was not done: %s %v", reply.Error, err)
			}
		})
	}
	for i := 2; i < 19; i++ {
		wait.Go(func() {
			if _, err := call(t.Context(), m, fmt.Sprintf("s%d", i), "twice", ""); err != nil {
				t.Error(err)
			}
			began := time.Now()
			if _, err := call(t.Context(), m, fmt.Sprintf("s%d", i), "twice", ""); err != nil || time.Since(began) > 2*time.Second {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		})
	}
	began := time.Now()
	if n := len(m.List(agent, upstream.KindTool)); n != all || time.Since(began) > time.Second {
		t.Errorf("%d of %d tools are listed, after %s", n, all, time.Since(began))
	}
	wait.Wait()
	if done.Load() != writes.Load() || done.Load() == 0 {
		t.Errorf("%d writes are reported as done, %d were done", done.Load(), writes.Load())
	}
	starts, err := os.ReadFile(file)
	if n := strings.Count(string(starts), "\n"); err != nil || n > 5 {
		t.Errorf("the one that crashes was started %d times", n)
	}
}

// Standard error that a server writes before it ends is logged without secrets.
func TestStandardErrorIsMasked(t *testing.T) {
	var log strings.Builder
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := open(t, fmt.Sprintf("  a: {command: [%q], set: {%s: crash, TOKEN: hunter22}, allow: [{tools: ['*']}]}\n", self, serverMode),
		upstream.Options{Pins: fakePins(t, "a"), Logger: textLogger(&log)})
	_, err = call(t.Context(), m, "a", "echo", "")
	wantCode(t, err, upstream.CodeUnavailable, false)
	if strings.Contains(err.Error(), "token") || !strings.Contains(log.String(), "cannot start: token ***") || strings.Contains(log.String(), "hunter22") {
		t.Errorf("the caller got %v, the log %s", err, log.String())
	}
}

// A program has time to save its state after its input ends.
func TestServerSavesAtTheEnd(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "started")
	m := openFake(t, upstream.Options{}, [3]string{"a", "saves=" + file, ""})
	if _, err := call(t.Context(), m, "a", "twice", ""); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if text, err := os.ReadFile(file + ".saved"); err != nil || string(text) != "all" {
		t.Errorf("saved %q: %v", text, err)
	}
}

// deepTool has a schema that declares keys at many places.
const deepTool = `{"name":"deep","inputSchema":{"type":"object","$defs":{"place":{"properties":{"path":{}}},"loop":{"$ref":"#/$defs/loop"}},"properties":{
	"to":{"$ref":"#/$defs/place"},"list":{"type":"array","items":{"$ref":"#/$defs/place"}},"pair":{"prefixItems":[{"$ref":"#/%24defs/place"},{"properties":{"first":{}}}]},
	"all":{"allOf":[{"properties":{"inner":{}}},{"anyOf":[{"oneOf":[{"properties":{"deep":{}}}]}]}],"if":{},"then":{"dependentSchemas":{"x":{"properties":{"cond":{}}}}}},
	"env":{"type":"object","additionalProperties":true},"more":{"additionalProperties":{"$ref":"#/$defs/place"}},"self":{"$ref":"#"},"loop":{"$ref":"#/$defs/loop"}}}}`

// Ambiguous params never reach a server.
func TestParamsAreRefused(t *testing.T) {
	p := fakePins(t, "a")
	if err := p.Set("a", []upstream.Item{newItem(t, deepTool), newItem(t, `{"name":"echo","inputSchema":{"properties":{"text":{}}}}`)}); err != nil {
		t.Fatal(err)
	}
	m := openFake(t, upstream.Options{Pins: p}, [3]string{"a", "crash", ""}) // the server cannot be reached
	for _, params := range []string{
		`{"arguments":{"text":"a","text":"b"}}`, `{"arguments":{"text":"a","Text":"b"}}`, `{"arguments":{"Text":"b"}}`, `{"Arguments":{}}`,
		"{\"arguments\":{\"text\":\"\xff\"}}", `{"arguments":{}`, `[]`, `{"task":{}}`, `{"requestState":"forged"}`, `{"arguments":{"a":[{"b":1,"B":2}]}}`,
		`{"name":"a","name":"b"}`, `{"Name":"b"}`,
		`{"argumentſ":{}}`, `{"arguments":{"s":1,"ſ":2}}`,
	} {
		_, err := call(t.Context(), m, "a", "echo", params)
		wantCode(t, err, upstream.CodeInvalid, false)
	}
	for arguments, code := range map[string]upstream.Code{
		`{"to":{"Path":1}}`: upstream.CodeInvalid, `{"to":{"path":1}}`: upstream.CodeUnavailable,
		`{"list":[{},{"PATH":1}]}`: upstream.CodeInvalid, `{"pair":[{"path":1},{"First":1}]}`: upstream.CodeInvalid, `{"pair":[{"First":1}]}`: upstream.CodeUnavailable,
		`{"all":{"Inner":1}}`: upstream.CodeInvalid, `{"all":{"Deep":1}}`: upstream.CodeInvalid, `{"all":{"Cond":1}}`: upstream.CodeInvalid,
		`{"env":{"PATH":"x","To":{}}}`: upstream.CodeUnavailable, `{"env":{"x":{"tO":1}}}`: upstream.CodeUnavailable, `{"more":{"x":{"PAth":1}}}`: upstream.CodeInvalid,
		`{"list":[` + strings.Repeat(`{},`, 700_000) + `{}]}`: upstream.CodeInvalid, // exceeds the limit of comparisons
		`{"self":{"self":{"self":{"TO":1}}}}`:                 upstream.CodeInvalid, `{"self":{"self":{"loop":{"TO":1}}}}`: upstream.CodeUnavailable,
	} {
		_, err := call(t.Context(), m, "a", "deep", `{"arguments":`+arguments+`}`)
		if e, ok := errors.AsType[*upstream.Error](err); !ok || e.Code != code {
			t.Errorf("%.100s: %v, want %s", arguments, err, code)
		}
	}
	_, err := m.Call(t.Context(), agent, upstream.Request{Upstream: "a", Method: "tools/list", Kind: upstream.KindTool, Name: "echo"})
	wantCode(t, err, upstream.CodeInvalid, false)
}

// An idle session ends, and the next call starts a new one. Each principal can have its own.
func TestSessions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	m := openFake(t, upstream.Options{}, [3]string{"a", "well=" + file, ", idleTimeout: 10ms, session: principal"})
	started := func() int {
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), "\n")
	}
	if _, err := call(t.Context(), m, "a", "twice", ""); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	awaitGone(t, strings.TrimSpace(string(pid)))
	for _, p := range []engine.Principal{agent, operator} {
		if _, err := m.Call(t.Context(), p, upstream.Request{Upstream: "a", Method: "tools/call", Kind: upstream.KindTool, Name: "twice"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := started(); n != 3 {
		t.Errorf("%d sessions were started", n)
	}
	m.Close()
	_, err = call(t.Context(), m, "a", "twice", "")
	wantCode(t, err, upstream.CodeUnavailable, false)
}
