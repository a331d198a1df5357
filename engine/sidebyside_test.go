package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// side is an engine over one driver. Clock and ids are counters, so that two sides give the same result to
// the same request, byte for byte.
type side struct {
	*engine.Engine
	*audit.Auditor
	store store.Store
	open  func() (store.Store, error) // nil: the store cannot be opened again
	now   time.Time
	ids   int
}

func (s *side) start(t testing.TB) {
	t.Helper()
	compiler := validators.NewCompiler(pool(), validators.Options{})
	pipeline, err := judge.New(judge.Config{Compiler: compiler, Clock: func() time.Time { return s.now }})
	if err != nil {
		t.Fatal(err)
	}
	s.Engine, err = engine.New(engine.Config{
		Store: s.store, Judge: pipeline, Compiler: compiler, ReviewPath: true,
		Digester: record.NewDigester([]byte("0123456789abcdef0123456789abcdef")),
		Now:      func() time.Time { s.now = s.now.Add(time.Second); return s.now },
		NewID:    func() string { s.ids++; return fmt.Sprintf("00000000-0000-7000-8000-%012d", s.ids) },
		Limits:   engine.Limits{OpenReviews: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Auditor, err = audit.New(audit.Config{Engine: s.Engine, Store: s.store}); err != nil {
		t.Fatal(err)
	}
}

// restart closes the store and opens it again, as a new process would.
func (s *side) restart(t testing.TB) {
	t.Helper()
	if s.open == nil {
		return
	}
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.store, err = s.open(); err != nil {
		t.Fatal(err)
	}
	s.start(t)
}

// sides returns the drivers to compare.
func sides(t testing.TB) [2]*side {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gavel.db")
	open := func() (store.Store, error) {
		return sqlite.Open(context.Background(), sqlite.Config{Path: path})
	}
	disk, err := open()
	if err != nil {
		t.Fatal(err)
	}
	epoch := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	both := [2]*side{{store: memory.New(), now: epoch}, {store: disk, open: open, now: epoch}}
	for _, s := range both {
		s.start(t)
	}
	return both
}

// same makes the same request to both sides and fails if the results differ.
func same[T any](rt *rapid.T, both [2]*side, what string, ask func(*side) (T, error)) T {
	var answers [2]string
	var out T
	for i, s := range both {
		got, err := ask(s)
		raw, jerr := json.Marshal(got)
		if jerr != nil {
			rt.Fatal(jerr)
		}
		answers[i] = string(raw)
		var e *engine.Error
		switch {
		case errors.As(err, &e):
			current, _ := json.Marshal(e.Current)
			answers[i] += fmt.Sprintf(" error %s %s %s %s", e.Code, e.Error(), e.Path, current)
		case err != nil:
			answers[i] += " error " + err.Error()
		}
		out = got
	}
	if answers[0] != answers[1] {
		rt.Fatalf("%s:\nmemory %s\nSQLite %s", what, answers[0], answers[1])
	}
	return out
}

var sideFlows = []string{
	`{"name":"flow","initialState":"a","sensitive":["/s"],"states":{
		"a":{"transitions":{"go":{"target":"b","requiredFields":["x"],"freezes":["/x"]},"ask":{"target":"b","requireAssurance":"human"},"stay":"a"}},
		"b":{"transitions":{"go":[{"condition":"context.x > 1","target":"c"},{"condition":"true","target":"a"}],"back":"a"}},
		"c":{"final":true,"outcome":"success"}}}`,
	`{"name":"flow","initialState":"a","states":{"a":{"transitions":{"go":"c","ask":{"target":"c","requireAssurance":"human"}}},"c":{"final":true}}}`,
	`{"name":"other","initialState":"a","retention":{"events":"8d"},"mustPassThrough":{"c":["b"]},"states":{"a":{"transitions":{"go":"b"}},"b":{"transitions":{"go":"c","back":"a"}},"c":{"final":true}}}`,
}

// An engine over memory and one over SQLite get the same requests in any order, with the file closed and
// opened again in between. They give the same results, errors, lists and histories, including the hashes.
func TestDriversSideBySide(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		both := sides(t)
		defer func() {
			for _, s := range both {
				if err := s.store.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
		ctx := context.Background()
		var instances, checkpoints, reviews []string
		who := rapid.SampledFrom([]engine.Principal{agent, agent, other, operator, rita})
		pick := func(rt *rapid.T, from []string, label string) string {
			return rapid.SampledFrom(append([]string{"none-such"}, from...)).Draw(rt, label)
		}
		data := rapid.SampledFrom([]string{`{}`, `{"x":1}`, `{"x":2,"s":"hush-hush"}`, `{"x":null}`, `{"y":[1,{"z":1.50}]}`, `{"evidence":1}`, `{"x":`})
		key := rapid.SampledFrom([]string{"", "", "k1", "k2"})
		revision := func(rt *rapid.T) *int64 {
			if n := rapid.IntRange(-4, 4).Draw(rt, "revision"); n > 0 {
				r := int64(n)
				return &r
			}
			return nil
		}
		same(rt, both, "define", func(s *side) (engine.DefineResult, error) {
			return s.Define(ctx, operator, engine.DefineRequest{Document: []byte(sideFlows[0])})
		})
		rt.Repeat(map[string]func(*rapid.T){
			"define": func(rt *rapid.T) {
				p, doc := who.Draw(rt, "who"), rapid.SampledFrom(sideFlows).Draw(rt, "doc")
				same(rt, both, "define", func(s *side) (engine.DefineResult, error) {
					return s.Define(ctx, p, engine.DefineRequest{Document: []byte(doc)})
				})
			},
			"start": func(rt *rapid.T) {
				p, k, doc := who.Draw(rt, "who"), key.Draw(rt, "key"), data.Draw(rt, "data")
				flow := rapid.SampledFrom([]string{"flow", "flow", "other", "flwo"}).Draw(rt, "flow")
				r := same(rt, both, "start", func(s *side) (engine.StartResult, error) {
					return s.Start(ctx, p, engine.StartRequest{Type: flow, Context: json.RawMessage(doc), Key: k})
				})
				if r.ID != "" {
					instances = append(instances, r.ID)
				}
			},
			"advance": func(rt *rapid.T) {
				p, req := who.Draw(rt, "who"), engine.AdvanceRequest{
					ID: pick(rt, instances, "id"), Action: rapid.SampledFrom([]string{"go", "ask", "stay", "back", "fly"}).Draw(rt, "action"),
					Data: document.ReadTrusted([]byte(data.Draw(rt, "data"))), Key: key.Draw(rt, "key"), ExpectedRevision: revision(rt),
				}
				r := same(rt, both, "advance", func(s *side) (engine.AdvanceResult, error) { return s.Advance(ctx, p, req) })
				if r.Review != nil {
					reviews = append(reviews, r.Review.ID)
				}
			},
			"validate": func(rt *rapid.T) {
				p, req := who.Draw(rt, "who"), engine.AdvanceRequest{ID: pick(rt, instances, "id"), Action: "go", Data: document.ReadTrusted([]byte(data.Draw(rt, "data")))}
				same(rt, both, "validate", func(s *side) (engine.ValidateResult, error) { return s.Validate(ctx, p, req) })
			},
			"resolve": func(rt *rapid.T) {
				p, req := who.Draw(rt, "who"), engine.ResolveRequest{
					ID: pick(rt, reviews, "review"), Decision: rapid.SampledFrom([]judge.Outcome{judge.Approve, judge.Reject}).Draw(rt, "how"),
					Reason: "looked", Key: key.Draw(rt, "key"),
				}
				same(rt, both, "resolve", func(s *side) (engine.ResolveResult, error) { return s.Resolve(ctx, p, req) })
			},
			"checkpoint": func(rt *rapid.T) {
				p, req := who.Draw(rt, "who"), engine.CheckpointRequest{ID: pick(rt, instances, "id"), Description: "here", Key: key.Draw(rt, "key")}
				r := same(rt, both, "checkpoint", func(s *side) (engine.CheckpointResult, error) { return s.Checkpoint(ctx, p, req) })
				if r.CheckpointID != "" {
					checkpoints = append(checkpoints, r.CheckpointID)
				}
			},
			"rollback": func(rt *rapid.T) {
				p, req := who.Draw(rt, "who"), engine.RollbackRequest{ID: pick(rt, instances, "id"), CheckpointID: pick(rt, checkpoints, "checkpoint"), Key: key.Draw(rt, "key"), ExpectedRevision: revision(rt)}
				same(rt, both, "rollback", func(s *side) (engine.MovedResult, error) { return s.Rollback(ctx, p, req) })
			},
			"undo": func(rt *rapid.T) {
				p, redo := who.Draw(rt, "who"), rapid.Bool().Draw(rt, "redo")
				req := engine.UndoRequest{ID: pick(rt, instances, "id"), Key: key.Draw(rt, "key"), ExpectedRevision: revision(rt)}
				same(rt, both, "undo", func(s *side) (engine.MovedResult, error) {
					if redo {
						return s.Redo(ctx, p, req)
					}
					return s.Undo(ctx, p, req)
				})
			},
			"migrate": func(rt *rapid.T) {
				p, dry := who.Draw(rt, "who"), rapid.Bool().Draw(rt, "dry run")
				req := engine.MigrateRequest{Workflow: "flow", States: map[string]string{"b": "a"}, DryRun: dry}
				same(rt, both, "migrate", func(s *side) (engine.MigrateResult, error) { return s.Migrate(ctx, p, req) })
			},
			"retain": func(rt *rapid.T) {
				p := who.Draw(rt, "who")
				same(rt, both, "retain", func(s *side) (audit.RetainResult, error) { return s.Retain(ctx, p, audit.RetainRequest{}) })
			},
			"cancel": func(rt *rapid.T) {
				p, req := who.Draw(rt, "who"), engine.CancelRequest{ID: pick(rt, instances, "id"), Reason: "enough", Key: key.Draw(rt, "key"), ExpectedRevision: revision(rt)}
				same(rt, both, "cancel", func(s *side) (engine.MovedResult, error) { return s.Cancel(ctx, p, req) })
			},
			"configure": func(rt *rapid.T) {
				p, strict := who.Draw(rt, "who"), rapid.Bool().Draw(rt, "strict")
				req := engine.JudgeConfigRequest{Name: "flow"}
				req.Settings.StrictMode = &strict
				same(rt, both, "configure", func(s *side) (engine.JudgeConfigResult, error) { return s.ConfigureJudge(ctx, p, req) })
			},
			"time passes": func(rt *rapid.T) {
				days := rapid.IntRange(1, 9).Draw(rt, "days")
				for _, s := range both {
					s.now = s.now.Add(time.Duration(days) * 24 * time.Hour)
				}
				same(rt, both, "expire", func(s *side) (int, error) { return s.ExpireReviews(ctx) })
			},
			"restart": func(*rapid.T) {
				for _, s := range both {
					s.restart(t)
				}
			},
			"": func(rt *rapid.T) {
				observe(rt, both, who.Draw(rt, "observer"), pick(rt, instances, "observed"), int64(rapid.IntRange(0, 6).Draw(rt, "then")))
			},
		})
		for _, id := range instances {
			observe(rt, both, operator, id, 0)
		}
		for i, s := range both {
			report, err := s.Verify(ctx, operator, audit.VerifyRequest{})
			if err != nil || len(report.Problems) > 0 {
				rt.Fatalf("side %d does not verify: %+v, %v", i, report.Problems, err)
			}
		}
	})
}

// observe compares everything that can be read.
func observe(rt *rapid.T, both [2]*side, p engine.Principal, id string, then int64) {
	ctx := context.Background()
	same(rt, both, "past", func(s *side) (engine.StatusResult, error) { return s.StatusAt(ctx, p, id, engine.When{Revision: then}) })
	// A slow machine ends pages early, so complete lists are compared.
	same(rt, both, "timeline", func(s *side) (all []engine.TimelineEntry, err error) {
		req := engine.HistoryRequest{ID: id}
		for {
			r, err := s.Timeline(ctx, p, req)
			if all = append(all, r.Events...); err != nil || r.NextAfter == 0 {
				return all, err
			}
			req.AfterSeq = r.NextAfter
		}
	})
	same(rt, both, "decisions", func(s *side) (string, error) {
		req := engine.DecisionsRequest{Query: store.DecisionQuery{Outcome: judge.Reject, Text: "action"}, Limit: 2}
		var b strings.Builder
		for {
			r, err := s.Decisions(ctx, p, req)
			for _, d := range r.Decisions { // positions, and so cursors, differ between drivers
				fmt.Fprintf(&b, "%s %d %s\n", d.Instance, d.Seq, d.Code)
			}
			if req.Cursor = r.NextCursor; err != nil || req.Cursor == "" {
				return b.String(), err
			}
		}
	})
	same(rt, both, "statistics", func(s *side) (engine.StatisticsResult, error) {
		return s.Statistics(ctx, p, engine.StatisticsRequest{Workflow: "flow"})
	})
	same(rt, both, "status", func(s *side) (engine.StatusResult, error) { return s.Status(ctx, p, id) })
	same(rt, both, "history", func(s *side) (all []engine.HistoryEntry, err error) {
		req := engine.HistoryRequest{ID: id}
		for {
			r, err := s.History(ctx, p, req)
			if all = append(all, r.Decisions...); err != nil || r.NextAfter == 0 {
				return all, err
			}
			req.AfterSeq = r.NextAfter
		}
	})
	same(rt, both, "checkpoints", func(s *side) (engine.CheckpointsResult, error) { return s.ListCheckpoints(ctx, p, id) })
	same(rt, both, "instances", func(s *side) (all []engine.InstanceSummary, err error) {
		req := engine.InstancesRequest{Limit: 3}
		for {
			r, err := s.Instances(ctx, p, req)
			if all = append(all, r.Instances...); err != nil || r.NextCursor == "" {
				return all, err
			}
			req.Cursor = r.NextCursor
		}
	})
	same(rt, both, "definitions", func(s *side) ([]engine.DefinitionSummary, error) { return s.List(ctx, p) })
	same(rt, both, "definition", func(s *side) (engine.DefinitionView, error) { return s.Describe(ctx, p, "flow", 0) })
	same(rt, both, "reviews", func(s *side) (engine.ReviewsResult, error) {
		return s.Reviews(ctx, p, engine.ReviewsRequest{Status: "all", Limit: 2})
	})
	same(rt, both, "events", func(s *side) (string, error) {
		var b strings.Builder
		for ev, err := range s.store.Events(ctx, store.EventQuery{Instance: id}) {
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "%d %s %s %s\n", ev.Seq, ev.Kind, ev.PrevHash, ev.Hash)
		}
		return b.String(), nil
	})
}
