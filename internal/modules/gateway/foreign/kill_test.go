//go:build unix

package foreign_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/config"
	_ "github.com/gavel-mcp/gavel/internal/modules/gateway" // served by the system
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// killRounds is the number of kills in TestKill. make crash-gateway sets a higher one.
var killRounds = flag.Int("rounds", 6, "kill at a point of a gated call so many times")

// The points of a gated call at which a process is killed.
const (
	beforeIntent  = "before the intent"
	afterIntent   = "after the intent"
	whileSending  = "while sending"
	afterEffect   = "after the effect"
	beforeOutcome = "before the outcome"
	afterOutcome  = "between outcome and answer"
)

// killCase describes a round. The gate of the tool effect moves the workflow with each call. The gate of the tool
// record only records calls.
type killCase struct{ tool, point, victim string }

// killCaseOf returns the case of a round, such that a few rounds already cover every point, victim and tool.
func killCaseOf(round int) killCase {
	points, victims, tools := []string{beforeIntent, afterIntent, whileSending, afterEffect, beforeOutcome, afterOutcome}, []string{"gavel", "upstream", "both"}, []string{"effect", "record"}
	at := round * 7 % (len(points) * len(victims) * len(tools))
	return killCase{tools[at/len(victims)/len(points)], points[at/len(victims)%len(points)], victims[at%len(victims)]}
}

const (
	// gavelVariable makes this program a gavel over the store in a folder. effectsVariable makes it a
	// server whose tool writes a line there for each call.
	gavelVariable   = "GAVEL_TEST_GAVEL"
	effectsVariable = "GAVEL_TEST_EFFECTS"
	// aheadVariable sets gavel's clock forward.
	aheadVariable = "GAVEL_TEST_AHEAD"
)

func init() { programs[gavelVariable], programs[effectsVariable] = serveGavel, serveEffects }

const killConfig = `upstreams:
  fx: {command: [%q], set: {%s: %q}, allow: [{tools: ["*"]}]}
gates:
  - {tool: fx__effect, workflow: ship, states: [ready], action: deploy, success: finish, error: fail, maxCalls: 1}
  - {tool: fx__record, workflow: ship, states: [ready]}
`

const killWorkflow = `name: ship
initialState: ready
states:
  ready: {transitions: {deploy: deploying}}
  deploying: {transitions: {finish: done, fail: ready}}
  done: {final: true}
`

// die kills the planned victims if the plan names this point, once.
func die(dir, point string) {
	plan, err := os.ReadFile(filepath.Join(dir, "plan"))
	if err != nil {
		return
	}
	victim, ok := strings.CutPrefix(string(plan), point+": ")
	if !ok || os.Remove(filepath.Join(dir, "plan")) != nil {
		return
	}
	for _, name := range []string{"upstream", "gavel"} { // itself last
		pid, err := os.ReadFile(filepath.Join(dir, name+".pid"))
		if n, bad := strconv.Atoi(string(pid)); err == nil && bad == nil && (victim == name || victim == "both") && n != os.Getpid() {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	if own, _ := os.ReadFile(filepath.Join(dir, "gavel.pid")); victim == "both" || (victim == "gavel") == (string(own) == strconv.Itoa(os.Getpid())) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func writePID(dir, name string) error {
	return os.WriteFile(filepath.Join(dir, name+".pid"), []byte(strconv.Itoa(os.Getpid())), 0o600)
}

// serveEffects is a server whose tools have an effect: a line with its arguments and the id of the call.
func serveEffects(dir string) error {
	if err := writePID(dir, "upstream"); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Arguments struct {
					N     int
					Again bool
				}
				Meta map[string]any `json:"_meta"`
			}
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		result := `{}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fx","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"effect"},{"name":"record"}]}`
		case "tools/call":
			die(dir, whileSending)
			if pause, err := os.OpenFile(filepath.Join(dir, "pause"), os.O_WRONLY, 0); err == nil {
				_ = pause.Close()
				_, err = io.Copy(io.Discard, os.Stdin) // until gavel is gone
				return err
			}
			f, err := os.OpenFile(filepath.Join(dir, "effects"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			fmt.Fprintln(f, m.Params.Arguments.N, m.Params.Arguments.Again, m.Params.Meta["io.github.gavel-mcp/callId"])
			if err := f.Close(); err != nil {
				return err
			}
			die(dir, afterEffect)
			result = `{"content":[]}`
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	}
	return nil
}

// mortal is a store that kills its process before or after the commits of a gated call.
type mortal struct {
	store.Store
	dir string
}

func (m mortal) Commit(ctx context.Context, c store.Commit) error {
	has := func(kind record.Kind) bool {
		return slices.ContainsFunc(c.Events, func(ev record.Event) bool { return ev.Kind == kind })
	}
	switch {
	case has(record.Called):
		die(m.dir, beforeIntent)
	case has(record.Settled):
		die(m.dir, beforeOutcome)
	}
	err := m.Store.Commit(ctx, c)
	switch {
	case err != nil:
	case has(record.Called):
		die(m.dir, afterIntent)
	case has(record.Settled):
		die(m.dir, afterOutcome)
	}
	return err
}

// serveGavel serves ann over stdio.
func serveGavel(dir string) error {
	ctx := context.Background()
	ahead, err := time.ParseDuration(cmp.Or(os.Getenv(aheadVariable), "0s"))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	path := filepath.Join(dir, "gavel.db")
	key, err := record.LoadOrCreateKey(gavel.KeyPath(path))
	if err != nil {
		return err
	}
	db, err := sqlite.Open(ctx, sqlite.Config{Path: path, Logger: log})
	if err != nil {
		return err
	}
	sys, err := gavel.New(mortal{db, dir}, key, gavel.Config{Store: path, File: filepath.Join(dir, "gavel.yaml"), Logger: log, Configure: func(c *engine.Config) {
		c.Now = func() time.Time { return time.Now().Add(ahead) }
	}})
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := writePID(dir, "gavel"); err != nil {
		return err
	}
	return sys.ServeStdio(ctx, gavel.Tools{Names: "dotted"}, ann, os.Stdin, os.Stdout)
}

// killed is a gavel process that may be killed, with its client.
type killed struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	n   int
}

func startGavel(t *testing.T, dir, ahead string) *killed {
	t.Helper()
	k := &killed{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0])}
	k.cmd.Env = append(os.Environ(), gavelVariable+"="+dir, aheadVariable+"="+ahead)
	k.cmd.Stderr = os.Stderr
	var err error
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	k.out = bufio.NewReader(out)
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return k
}

// call calls a tool. ok is false if gavel dies before it answers.
func (k *killed) call(tool string, arguments map[string]any) (line string, ok bool) {
	k.t.Helper()
	k.n++
	raw, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": k.n, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.in.Write(append(raw, '\n')); err != nil {
		return "", false
	}
	for {
		line, err := k.out.ReadString('\n')
		if err != nil {
			return "", false
		}
		var m struct{ ID int }
		if json.Unmarshal([]byte(line), &m) == nil && m.ID == k.n {
			return line, true
		}
	}
}

func (k *killed) end() {
	_ = k.in.Close()
	_, _ = io.Copy(io.Discard, k.out)
	_ = k.cmd.Wait() // an error if it was killed
}

// killOnce kills during a call, retries as a client might, and returns the instance.
func killOnce(t *testing.T, dir string, n int, c killCase) (instance string) {
	t.Helper()
	k := startGavel(t, dir, "")
	started, _ := k.call("workflow.start", map[string]any{"type": "ship"})
	if instance = regexp.MustCompile(`wf-[0-9a-f-]{36}`).FindString(started); instance == "" {
		t.Fatalf("nothing was started: %s", started)
	}
	if err := os.WriteFile(filepath.Join(dir, "plan"), []byte(c.point+": "+c.victim), 0o600); err != nil {
		t.Fatal(err)
	}
	try := func(again bool) (string, bool) {
		return k.call("fx__"+c.tool, map[string]any{"workflowId": instance, "n": n, "again": again})
	}
	if line, ok := try(false); ok != (c.victim == "upstream") {
		t.Errorf("the call has an answer: %v: %s", ok, line)
	}
	if _, err := os.Stat(filepath.Join(dir, "plan")); err == nil {
		t.Error("nobody was killed")
	}
	for _, ahead := range []string{"", "1h"} { // while the call may be open, and after its deadline
		if c.victim != "upstream" || ahead != "" {
			k.end()
			k = startGavel(t, dir, ahead)
		}
		for i := range 3 {
			if line, ok := try(i == 2); !ok || strings.Contains(line, "internal error") { // also with other arguments
				t.Errorf("the answer to the next try: %s", line)
			}
		}
	}
	k.end()
	return instance
}

// At whatever point of a gated call gavel, the server or both are killed: the tool has its effect at most once, however
// often the client retries; an unknown outcome waits for a person; and the record is complete.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	putShip(t, dir)
	instances := map[int]string{}
	for n := range *killRounds {
		c := killCaseOf(n)
		t.Run(fmt.Sprintf("%d/%s/%s/%s", n, c.tool, c.point, c.victim), func(t *testing.T) { instances[n] = killOnce(t, dir, n, c) })
	}
	sys, err := gavel.Open(t.Context(), gavel.Config{Store: filepath.Join(dir, "gavel.db"), Configure: func(c *engine.Config) {
		c.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	if _, err := sys.Engine.SettleOverdue(t.Context()); err != nil {
		t.Fatal(err)
	}
	done, unknown := readEffects(t, dir), 0
	for n, id := range instances {
		status, err := sys.Engine.Status(t.Context(), gavel.Operator, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range status.Calls {
			unknown++
			reviews, err := sys.Engine.Reviews(t.Context(), gavel.Operator, engine.ReviewsRequest{Instance: id})
			if err != nil || !c.Unknown || !slices.ContainsFunc(reviews.Reviews, func(r engine.ReviewSummary) bool { return r.ID == c.ReviewID }) {
				t.Errorf("round %d, %v: the call %+v waits for nobody: %+v, %v", n, killCaseOf(n), c, reviews.Reviews, err)
			}
		}
		c, open := killCaseOf(n), len(status.Calls)
		for ev, err := range sys.Store.Events(t.Context(), store.EventQuery{Instance: id, Kinds: []record.Kind{record.Settled}}) {
			if err != nil {
				t.Fatal(err)
			}
			if o := ev.Call.Outcome; o != record.CallUnknown && (o == record.CallOK) != slices.ContainsFunc(done[n], func(e effect) bool { return e.call == ev.Call.ID }) {
				t.Errorf("%v: the outcome of %s is %q, and it had an effect: %v", c, ev.Call.ID, o, o != record.CallOK)
			}
		}
		moves, first, others := c.tool == "effect", 0, 0
		for _, e := range done[n] {
			if e.again {
				others++ // other arguments make a separate call
			} else {
				first++
			}
		}
		switch n := first + others; {
		case moves && n > 1, open > 0 && max(first, others) > 1,
			moves && status.State == "done" && (n != 1 || open > 0), moves && status.State == "ready" && (n != 0 || open > 0), status.State == "deploying" && open != 1:
			t.Errorf("%v: %d effects, %d calls whose outcome nobody knows, and the state %s", c, n, open, status.State)
		}
	}
	report, err := sys.Auditor.Verify(t.Context(), gavel.Operator, audit.VerifyRequest{})
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("verify: %+v, %v", report, err)
	}
	t.Logf("%d kills, %d effects, %d calls that a person has to look at", *killRounds, len(done), unknown)
}

// A call whose process has died waits for a person as soon as another process looks at it. A call whose process is alive
// waits for its deadline.
func TestKilledCallIsAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	putShip(t, dir)
	open := func() *gavel.System {
		sys, err := gavel.Open(t.Context(), gavel.Config{Store: filepath.Join(dir, "gavel.db")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sys.Close() })
		return sys
	}
	k := startGavel(t, dir, "")
	started, _ := k.call("workflow.start", map[string]any{"type": "ship"})
	instance := regexp.MustCompile(`wf-[0-9a-f-]{36}`).FindString(started)
	pause := filepath.Join(dir, "pause")
	if err := syscall.Mkfifo(pause, 0o600); err != nil {
		t.Fatal(err)
	}
	answered := make(chan bool)
	go func() {
		_, ok := k.call("fx__effect", map[string]any{"workflowId": instance, "n": 1})
		answered <- ok
	}()
	if _, err := os.ReadFile(pause); err != nil { // the server has received the call
		t.Fatal(err)
	}
	sys := open()
	if n, err := sys.Engine.SettleOverdue(t.Context()); n != 0 || err != nil {
		t.Errorf("while the call is under way %d are settled: %v", n, err)
	}
	_ = k.cmd.Process.Kill()
	if <-answered {
		t.Error("the call has an answer")
	}
	k.end()
	if n, err := sys.Engine.SettleOverdue(t.Context()); n != 1 || err != nil {
		t.Errorf("once the process is gone %d are settled: %v", n, err)
	}
	reviews, err := sys.Engine.Reviews(t.Context(), gavel.Operator, engine.ReviewsRequest{Instance: instance})
	if err != nil || len(reviews.Reviews) != 1 || reviews.Reviews[0].Status != record.ReviewOpen {
		t.Errorf("the reviews are %+v, %v", reviews.Reviews, err)
	}
}

// putShip writes the configuration, the definition and the pins.
func putShip(t *testing.T, dir string) {
	t.Helper()
	file, flow := filepath.Join(dir, "gavel.yaml"), filepath.Join(dir, "ship.yaml")
	for path, text := range map[string]string{file: fmt.Sprintf(killConfig, os.Args[0], effectsVariable, dir), flow: killWorkflow} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	declared, err := upstream.ParseConfig(f.Section(upstream.Section))
	if err != nil {
		t.Fatal(err)
	}
	if err := pinAll(t, declared, upstream.PinsPath(file)).Save(); err != nil {
		t.Fatal(err)
	}
	sys, err := gavel.Open(t.Context(), gavel.Config{Store: filepath.Join(dir, "gavel.db"), Definitions: []string{flow}})
	if err != nil {
		t.Fatal(err)
	}
	if err := sys.Close(); err != nil {
		t.Fatal(err)
	}
}

// effect is the effect of a call. again is set if its arguments differ from those of the first call.
type effect struct {
	call  string
	again bool
}

// readEffects returns the effects of each round. It fails if a call had two.
func readEffects(t *testing.T, dir string) map[int][]effect {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	out, seen := map[int][]effect{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var n int
		var e effect
		if _, err := fmt.Sscan(line, &n, &e.again, &e.call); err != nil || seen[e.call] {
			t.Errorf("the effect %q: a second one is %v, %v", line, seen[e.call], err)
		}
		seen[e.call] = true
		out[n] = append(out[n], e)
	}
	return out
}
