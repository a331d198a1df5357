package console

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/document"
)

//go:embed sample
var sampleFiles embed.FS

// sampleStep is one step of sample/story.yaml.
type sampleStep struct {
	Ago float64 `json:"ago"` // minutes
	By  string  `json:"by"`
	// Define is a file; Start a workflow, whose instance is called As; On is the instance of every other step.
	Define  string          `json:"define"`
	Start   string          `json:"start"`
	As      string          `json:"as"`
	Context json.RawMessage `json:"context"`
	On      string          `json:"on"`
	Action  string          `json:"action"`
	Data    json.RawMessage `json:"data"`
	// Outcome and Layer are those of the decision; "" is an approval.
	Outcome    judge.Outcome   `json:"outcome"`
	Layer      judge.LayerName `json:"layer"`
	Checkpoint string          `json:"checkpoint"`
	Rollback   bool            `json:"rollback"`
	Cancel     string          `json:"cancel"`
	// Approve and Reject decide the open review of On, with this reason.
	Approve string `json:"approve"`
	Reject  string `json:"reject"`
}

// playDemo serves the console over a store with sample data until ctx ends: gavel demo console.
func playDemo(ctx context.Context, d module.Demo) (err error) {
	world, err := startWorld(ctx)
	if err != nil {
		return term.UnknownErrorf("", "cannot listen on this machine: %w", err)
	}
	defer world.Close() //nolint:errcheck // nothing is left to lose
	file := filepath.Join(filepath.Dir(d.Store), "demo.yaml")
	if err := world.writeConfig(file); err != nil {
		return term.UsageErrorf("give a --store in a folder of its own", "cannot write the demo's settings: %w", err)
	}
	sys, clock, err := openSample(ctx, d, world, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cli.CloseInTime(d.Log, sys.Close)) }()
	if err := clock.tell(ctx, sys.Engine); err != nil {
		return term.UnknownErrorf("", "the sample data cannot be made: %w", err)
	}
	if err := sys.Check(ctx); err != nil {
		return module.ConfigError(err)
	}
	who := engine.Principal{ID: "olivia", Role: engine.RoleOperator}
	d.Err.Printf("gavel: three workflows of a shop, with what happened to them in the last hour. The store is %s.\n", d.Store)
	return serveLocally(ctx, &cli.Console{In: d.In, Out: d.Out, Err: d.Err, Log: d.Log}, sys, 0, who)
}

// openSample opens the store with the demo's model and sources. The clock of its engine is the story's.
func openSample(ctx context.Context, d module.Demo, world *world, file string) (_ *cli.System, _ *storyClock, err error) {
	with := cli.SystemOptions{File: file, Serves: true, Reviews: true}
	defer func() {
		if err != nil {
			err = errors.Join(err, with.Close())
		}
	}()
	flags := &cli.ModelFlags{BaseURL: world.url, Model: "scripted", Thinking: "off", Structured: string(llm.RungJSONSchema), Refusals: 3, Window: 24 * time.Hour}
	if with.Model, err = flags.Open(d.Log); err != nil {
		return nil, nil, err
	}
	if with.Sources, err = (cli.ConfigFlag{Config: file}).Open(d.Log); err != nil {
		return nil, nil, err
	}
	clock := &storyClock{instances: map[string]string{}}
	cfg := gavel.Config{
		Store: d.Store, File: file, Watcher: cli.ThisProgram(), Version: cli.ReadBuild().Version, Logger: d.Log, Model: with.Model.Layer,
		Configure: func(c *engine.Config) { c.Now = clock.now },
	}
	if with.Sources != nil {
		cfg.Fetcher = with.Sources
	}
	open, err := gavel.Open(ctx, cfg)
	if err != nil {
		return nil, nil, term.UnknownErrorf("", "%w", err)
	}
	return &cli.System{System: open, SystemOptions: with, Location: cli.StoreLocation{Path: d.Store}}, clock, nil
}

// storyClock lets the story happen in the past. After it, its time is the real one.
type storyClock struct {
	behind    atomic.Int64      // nanoseconds
	instances map[string]string // ids by the story's names
}

func (c *storyClock) now() time.Time { return time.Now().Add(-time.Duration(c.behind.Load())) }

// tell plays the story with the engine, in the order of time, and checks that every step ends as the story says.
func (c *storyClock) tell(ctx context.Context, e *gavel.Engine) error {
	raw, err := sampleFiles.ReadFile("sample/story.yaml")
	if err != nil {
		return err
	}
	root, err := document.Parse("story.yaml", raw, document.Limits{})
	if err != nil {
		return err
	}
	var steps []sampleStep
	strict := json.NewDecoder(bytes.NewReader(root.JSON()))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&steps); err != nil {
		return err
	}
	defer c.behind.Store(0)
	slices.SortStableFunc(steps, func(a, b sampleStep) int { return cmp.Compare(b.Ago, a.Ago) })
	for _, s := range steps {
		c.behind.Store(int64(s.Ago * float64(time.Minute)))
		if err := c.perform(ctx, e, s); err != nil {
			return fmt.Errorf("%v minutes ago, %s: %w", s.Ago, cmp.Or(s.Define, s.Start, s.On+" "+s.Action), err)
		}
	}
	return nil
}

func (c *storyClock) perform(ctx context.Context, e *gavel.Engine, s sampleStep) (err error) {
	who := gavel.Operator
	if s.By != "" {
		who = engine.Principal{ID: s.By, Role: engine.RoleAgent}
	}
	switch id := c.instances[s.On]; {
	case s.Define != "":
		var text []byte
		if text, err = sampleFiles.ReadFile("sample/" + s.Define); err == nil {
			_, err = e.Define(ctx, who, engine.DefineRequest{Source: s.Define, Document: text})
		}
	case s.Start != "":
		var started engine.StartResult
		started, err = e.Start(ctx, who, engine.StartRequest{Type: s.Start, Context: s.Context})
		c.instances[s.As] = started.ID
	case s.Action != "":
		return c.advance(ctx, e, who, s)
	case s.Checkpoint != "":
		_, err = e.Checkpoint(ctx, who, engine.CheckpointRequest{ID: id, Description: s.Checkpoint})
	case s.Rollback:
		var all engine.CheckpointsResult
		if all, err = e.ListCheckpoints(ctx, who, id); err == nil {
			_, err = e.Rollback(ctx, who, engine.RollbackRequest{ID: id, CheckpointID: all.Checkpoints[0].CheckpointID})
		}
	case s.Cancel != "":
		_, err = e.Cancel(ctx, who, engine.CancelRequest{ID: id, Reason: s.Cancel})
	default:
		who.Role = engine.RoleReviewer
		var open engine.ReviewsResult
		if open, err = e.Reviews(ctx, who, engine.ReviewsRequest{Instance: id}); err == nil {
			decision := judge.Approve
			if s.Reject != "" {
				decision = judge.Reject
			}
			_, err = e.Resolve(ctx, who, engine.ResolveRequest{ID: open.Reviews[0].ID, Decision: decision, Reason: s.Approve + s.Reject})
		}
	}
	return err
}

func (c *storyClock) advance(ctx context.Context, e *gavel.Engine, who engine.Principal, s sampleStep) error {
	data, err := document.ReadJSON(s.Data, document.Limits{})
	if err != nil {
		return err
	}
	res, err := e.Advance(ctx, who, engine.AdvanceRequest{ID: c.instances[s.On], Action: s.Action, Data: data})
	if err != nil {
		return err
	}
	if got := res.Decision; got.Outcome != cmp.Or(s.Outcome, judge.Approve) || s.Layer != "" && got.DecidedBy != s.Layer {
		return fmt.Errorf("the decision is %s by %s: %v", got.Outcome, got.DecidedBy, got.Findings)
	}
	return nil
}

// world is the rest of the demo's world, on this machine: a build server, and a model that follows a script.
type world struct {
	*http.Server

	url string
}

func startWorld(ctx context.Context) (*world, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &world{url: "http://" + listener.Addr().String()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /builds/{version}", w.sendBuild)
	mux.HandleFunc("POST /", w.judge)
	w.Server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	go func() { _ = w.Serve(listener) }() // ends with Close
	return w, nil
}

// writeConfig writes the file that declares the build server as a source of evidence.
func (w *world) writeConfig(path string) error {
	text := "evidence:\n  sources:\n    build-server:\n      description: The results of a version's build.\n      http: " + w.url + "/builds/{{version}}\n" +
		"      arguments: { version: { pattern: \"[0-9.]+\" } }\n      privateNetwork: true\n      same: [/body/tests, /body/failed]\n"
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // in the demo's own folder
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Close())
}

// sendBuild answers for the build server. One version fails its tests, one was not built.
func (w *world) sendBuild(out http.ResponseWriter, r *http.Request) {
	build := map[string]any{"version": r.PathValue("version"), "tests": 412, "failed": 0, "failures": []string{}, "duration": "3m12s"}
	switch r.PathValue("version") {
	case "3.2.0":
		build["failed"], build["failures"] = 2, []string{"TestBasket: 3 items, want 4", "TestSearch: no result for \"lamp\""}
	case "3.3.0":
		http.Error(out, "There is no such build.", http.StatusNotFound)
		return
	}
	sendJSON(out, build)
}

// scriptedCriteria are the quotes that the scripted model looks for in comments.
var scriptedCriteria = []*regexp.Regexp{
	regexp.MustCompile(`(?i)read [^.;\\]*`), regexp.MustCompile(`(?i)[^.;\\]*compared with [^.;\\]*`), regexp.MustCompile(`(?i)[^.;\\]*no question is open`),
}

// judge answers for the model. It is no real model; the gate treats it like one.
func (w *world) judge(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	data := string(body[max(bytes.LastIndex(body, []byte(`\"comments\"`)), 0):])
	data, _, _ = strings.Cut(data, `\n`)
	criteria, suggestions, confidence := map[string]map[string]string{}, []string{}, 0.97
	for i, of := range scriptedCriteria {
		quote, status, why := strings.TrimSpace(of.FindString(data)), "met", ""
		switch {
		case quote == "" && i < 2:
			status, why = "contradicted", "The comments only praise the document."
			suggestions = []string{"Name the sections that you read."}
		case quote == "":
			status, why = "not_shown", "The comments do not tell whether a question is open."
		}
		if status == "not_shown" && len(suggestions) == 0 {
			confidence = 0.6
		}
		criteria[fmt.Sprint("c", i+1)] = map[string]string{"evidence": quote, "status": status, "why": why}
	}
	answer := map[string]any{"criteria": criteria, "injection_suspected": false, "suggestions": suggestions, "confidence": confidence}
	content, _ := json.Marshal(answer) //nolint:errchkjson // strings and numbers
	sendJSON(out, map[string]any{
		"id": "demo", "object": "chat.completion", "created": 1, "model": "scripted", "usage": map[string]any{"prompt_tokens": 640, "completion_tokens": 90, "total_tokens": 730},
		"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": string(content)}}},
	})
}

func sendJSON(out http.ResponseWriter, v any) {
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(v) // the caller may be gone
}
