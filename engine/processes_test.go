package engine_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/validators/document"
)

// processPath makes this test binary one of the processes of TestThreeProcessesAnswerAsOne; its value is
// the path of their store.
const processPath = "GAVEL_ENGINE_TEST_STORE"

// question is a request to a process, with its time and the ids to use next.
type question struct {
	Op   string
	Who  engine.Principal
	Now  time.Time
	IDs  int
	Body json.RawMessage
}

// ask answers a question as text: the result or the error, byte for byte.
func (s *side) ask(q question) string {
	s.now, s.ids = q.Now, q.IDs
	got, err := s.do(q)
	raw, jerr := json.Marshal(got)
	if jerr != nil {
		return "cannot encode: " + jerr.Error()
	}
	if e, ok := errors.AsType[*engine.Error](err); ok {
		current, _ := json.Marshal(e.Current)
		return fmt.Sprintf("error %s %s %s %s", e.Code, e.Error(), e.Path, current)
	} else if err != nil {
		return "error " + err.Error()
	}
	return string(raw)
}

func (s *side) do(q question) (any, error) {
	ctx := context.Background()
	switch q.Op {
	case "define":
		return decoded(q, func(doc string) (engine.DefineResult, error) {
			return s.Define(ctx, q.Who, engine.DefineRequest{Document: []byte(doc)})
		})
	case "configure":
		return decoded(q, func(r engine.JudgeConfigRequest) (any, error) { return s.ConfigureJudge(ctx, q.Who, r) })
	case "start":
		return decoded(q, func(r engine.StartRequest) (any, error) { return s.Start(ctx, q.Who, r) })
	case "advance":
		return decoded(q, func(r engine.AdvanceRequest) (any, error) { return s.Advance(ctx, q.Who, r) })
	case "validate":
		return decoded(q, func(r engine.AdvanceRequest) (any, error) { return s.Validate(ctx, q.Who, r) })
	case "decide":
		return decoded(q, func(r engine.DecideRequest) (any, error) { return s.Decide(ctx, q.Who, r) })
	case "checkpoint":
		return decoded(q, func(r engine.CheckpointRequest) (any, error) { return s.Checkpoint(ctx, q.Who, r) })
	case "rollback":
		return decoded(q, func(r engine.RollbackRequest) (any, error) { return s.Rollback(ctx, q.Who, r) })
	case "undo":
		return decoded(q, func(r engine.UndoRequest) (any, error) { return s.Undo(ctx, q.Who, r) })
	case "finish":
		return decoded(q, func(r engine.FinishRequest) (any, error) { return s.Finish(ctx, q.Who, r) })
	case "cancel":
		return decoded(q, func(r engine.CancelRequest) (any, error) { return s.Cancel(ctx, q.Who, r) })
	case "status":
		return decoded(q, func(id string) (any, error) { return s.Status(ctx, q.Who, id) })
	case "describe":
		return decoded(q, func(name string) (any, error) { return s.Describe(ctx, q.Who, name, 0) })
	}
	return nil, fmt.Errorf("unknown operation %q", q.Op)
}

func decoded[R, A any](q question, do func(R) (A, error)) (any, error) {
	var r R
	if err := json.Unmarshal(q.Body, &r); err != nil {
		return nil, err
	}
	return do(r)
}

// answerQuestions is the main function of one of the processes.
func answerQuestions(path string, in io.Reader, out io.Writer) error {
	db, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	s := &side{store: db}
	s.start(&testing.T{})
	questions, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var q question
		if err := questions.Decode(&q); errors.Is(err, io.EOF) {
			return errors.Join(db.Close(), pool().Close())
		} else if err != nil {
			return err
		}
		if err := answers.Encode(s.ask(q)); err != nil {
			return err
		}
	}
}

// peer is one of the processes.
type peer struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Reader
}

func newPeer(t *testing.T, path string) *peer {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{cmd: exec.CommandContext(t.Context(), exe)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), processPath+"="+path), os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.answers = bufio.NewReader(out)
	return p
}

func (p *peer) ask(q question) (answer string, err error) {
	if err := json.NewEncoder(p.in).Encode(q); err != nil {
		return "", err
	}
	line, err := p.answers.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	return answer, err
}

// end lets a process end, or kills it.
func (p *peer) end(kill bool) {
	if kill {
		_ = p.cmd.Process.Kill()
	}
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// raced can always be advanced; shared can be refused, and has several definitions.
const raced = `{"name":"raced","initialState":"a","states":{"a":{"transitions":{"again":"a"}}}}`

var sharedFlows = []string{
	`{"name":"shared","initialState":"a","states":{
		"a":{"transitions":{"go":{"target":"b","requiredFields":["x"],"freezes":["/x"]},"stay":"a"}},
		"b":{"transitions":{"go":"c","back":"a"}},"c":{"final":true}}}`,
	`{"name":"shared","initialState":"a","states":{"a":{"transitions":{"go":"c","stay":"a"}},"c":{"final":true,"outcome":"success"}}}`,
	`{"name":"own","initialState":"a","states":{"a":{"transitions":{"go":"a","stay":{"target":"a","requiredFields":["x"]}}}}}`,
	`{"name":"own","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"transitions":{"back":"a"}}}}`,
}

// Three processes over one store give the same answers as one engine over memory. They are asked in any
// order and concurrently, are killed, and their log is checkpointed and truncated in between. Each process
// reads everything that any of them has acknowledged, and its caches are never stale.
func TestThreeProcessesAnswerAsOne(t *testing.T) {
	t.Parallel()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > 5 && !storetest.Long() { // each starts three processes
			return
		}
		path := filepath.Join(t.TempDir(), "gavel.db")
		model := &side{store: memory.New(), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		model.start(t)
		var peers [3]*peer
		for i := range peers {
			peers[i] = newPeer(t, path)
		}
		defer func() {
			for _, p := range peers {
				p.end(false)
			}
		}()
		next := func(who engine.Principal, op string, body any) question {
			raw, err := json.Marshal(body)
			if err != nil {
				rt.Fatal(err)
			}
			return question{op, who, model.now, model.ids, raw}
		}
		asking := func(rt *rapid.T, who engine.Principal, op string, body any) string {
			q := next(who, op, body)
			n := rapid.IntRange(0, len(peers)-1).Draw(rt, "process")
			got, err := peers[n].ask(q)
			if err != nil {
				rt.Fatalf("process %d: %v", n, err)
			}
			if want := model.ask(q); got != want {
				rt.Fatalf("%s %s of process %d:\n%s\nthe model:\n%s", op, q.Body, n, got, want)
			}
			return got
		}
		started := func(answer string) string {
			var r engine.StartResult
			if json.Unmarshal([]byte(answer), &r) != nil && !strings.HasPrefix(answer, "error ") {
				rt.Fatal(answer)
			}
			return r.ID
		}
		none := json.RawMessage(`{}`)
		asking(rt, operator, "define", raced)
		asking(rt, operator, "define", sharedFlows[0])
		race := started(asking(rt, agent, "start", engine.StartRequest{Type: "raced", Context: none}))
		if race == "" {
			rt.Fatal("nothing was started")
		}
		moves := int64(1)
		stopped := started(asking(rt, agent, "start", engine.StartRequest{Type: "raced", Context: none}))
		instances := []string{started(asking(rt, agent, "start", engine.StartRequest{Type: "shared", Context: none}))}
		checkpoints := []string{"none-such"}
		who := rapid.SampledFrom([]engine.Principal{agent, agent, other, operator})
		id := func(rt *rapid.T) string { return rapid.SampledFrom(instances).Draw(rt, "id") }
		data := rapid.SampledFrom([]string{`{}`, `{"x":1}`, `{"x":2}`, `{"x":null}`, `{"y":[1,{"z":1.5}]}`})
		action := rapid.SampledFrom([]string{"go", "go", "stay", "back"})
		advance := func(rt *rapid.T) engine.AdvanceRequest {
			return engine.AdvanceRequest{ID: id(rt), Action: action.Draw(rt, "action"), Data: document.ReadTrusted([]byte(data.Draw(rt, "data"))), Key: rapid.SampledFrom([]string{"", "", "k"}).Draw(rt, "key")}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"define": func(rt *rapid.T) {
				asking(rt, who.Draw(rt, "who"), "define", rapid.SampledFrom(sharedFlows).Draw(rt, "flow"))
			},
			"configure": func(rt *rapid.T) {
				strict := rapid.Bool().Draw(rt, "strict")
				req := engine.JudgeConfigRequest{Name: rapid.SampledFrom([]string{"shared", "own"}).Draw(rt, "name")}
				req.Settings.StrictMode = &strict
				asking(rt, who.Draw(rt, "who"), "configure", req)
			},
			"start": func(rt *rapid.T) {
				name := rapid.SampledFrom([]string{"shared", "own"}).Draw(rt, "name")
				if got := started(asking(rt, who.Draw(rt, "who"), "start", engine.StartRequest{Type: name, Context: none})); got != "" {
					instances = append(instances, got)
				}
			},
			"advance":  func(rt *rapid.T) { asking(rt, who.Draw(rt, "who"), "advance", advance(rt)) },
			"advance2": func(rt *rapid.T) { asking(rt, agent, "advance", advance(rt)) },
			"validate": func(rt *rapid.T) { asking(rt, agent, "validate", advance(rt)) },
			"decide": func(rt *rapid.T) {
				asking(rt, agent, "decide", engine.DecideRequest{Workflow: rapid.SampledFrom([]string{"shared", "own"}).Draw(rt, "name"), State: "a", Action: "go", Data: json.RawMessage(data.Draw(rt, "data")), Context: none})
			},
			"checkpoint": func(rt *rapid.T) {
				got := asking(rt, agent, "checkpoint", engine.CheckpointRequest{ID: id(rt)})
				var r engine.CheckpointResult
				if json.Unmarshal([]byte(got), &r) == nil && r.CheckpointID != "" {
					checkpoints = append(checkpoints, r.CheckpointID)
				}
			},
			"rollback": func(rt *rapid.T) {
				asking(rt, operator, "rollback", engine.RollbackRequest{ID: id(rt), CheckpointID: rapid.SampledFrom(checkpoints).Draw(rt, "checkpoint")})
			},
			"undo":   func(rt *rapid.T) { asking(rt, agent, "undo", engine.UndoRequest{ID: id(rt)}) },
			"cancel": func(rt *rapid.T) { asking(rt, agent, "cancel", engine.CancelRequest{ID: id(rt), Reason: "enough"}) },
			"finish": func(rt *rapid.T) {
				asking(rt, who.Draw(rt, "who"), "finish", engine.FinishRequest{ID: id(rt), States: []string{"c"}, Attempts: 2})
			},
			"finish at once": func(rt *rapid.T) {
				stopTogether(rt, peers[:], model, next(agent, "finish", engine.FinishRequest{ID: stopped, States: []string{"c"}, Attempts: 1000}))
			},
			"status": func(rt *rapid.T) { asking(rt, agent, "status", id(rt)) },
			"describe": func(rt *rapid.T) {
				asking(rt, agent, "describe", rapid.SampledFrom([]string{"shared", "own"}).Draw(rt, "name"))
			},
			"race": func(rt *rapid.T) {
				q := next(agent, "advance", engine.AdvanceRequest{ID: race, Action: "again", Data: document.ReadTrusted([]byte(`{"n":1}`)), ExpectedRevision: &moves})
				raceOnce(rt, peers[:], model, q)
				moves++
			},
			"kill": func(rt *rapid.T) {
				n := rapid.IntRange(0, len(peers)-1).Draw(rt, "process")
				peers[n].end(true)
				peers[n] = newPeer(t, path)
			},
			"cut the log": func(rt *rapid.T) {
				cutLog(rt, path, rapid.SampledFrom([]string{"PASSIVE", "RESTART", "TRUNCATE"}).Draw(rt, "mode"))
			},
		})
		for n := range peers { // each of them has everything
			for _, id := range append(instances, race) {
				q := next(operator, "status", id)
				if got, err := peers[n].ask(q); err != nil || got != model.ask(q) {
					rt.Fatalf("process %d says of %s: %s, %v\nthe model: %s", n, id, got, err, model.ask(q))
				}
			}
		}
	})
}

// raceOnce asks all processes for the same move concurrently. One makes it, like the model, and the others
// report that the instance has moved.
func raceOnce(rt *rapid.T, peers []*peer, model *side, q question) {
	answers, errs := make([]string, len(peers)), make([]error, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		wg.Go(func() { answers[i], errs[i] = p.ask(q) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		rt.Fatal(err)
	}
	want, won := model.ask(q), 0
	late := model.ask(q)
	for i, got := range answers {
		switch {
		case got == want:
			won++
		case strings.HasPrefix(got, "error "+string(engine.CodeConflict)) && strings.HasPrefix(late, "error "+string(engine.CodeConflict)):
		default:
			rt.Fatalf("process %d: %s\nthe model: %s\nlate: %s", i, got, want, late)
		}
	}
	if won != 1 {
		rt.Fatalf("%d processes made the move: %q", won, answers)
	}
}

// stopTogether asks all processes concurrently whether the agent may end: each request counts once.
func stopTogether(rt *rapid.T, peers []*peer, model *side, q question) {
	answers, wanted, errs := make([]string, len(peers)), make([]string, len(peers)), make([]error, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		wg.Go(func() { answers[i], errs[i] = p.ask(q) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		rt.Fatal(err)
	}
	for i := range answers {
		wanted[i] = model.ask(q)
	}
	slices.Sort(answers)
	slices.Sort(wanted)
	if !slices.Equal(answers, wanted) {
		rt.Fatalf("at once, the processes said:\n%s\nthe model, one after the other:\n%s", answers, wanted)
	}
}

// cutLog checkpoints the log as another program might.
func cutLog(rt *rapid.T, path, mode string) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(1000)")
	if err != nil {
		rt.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("PRAGMA wal_checkpoint(" + mode + ")"); err != nil {
		rt.Fatal(err)
	}
}
