package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// In any order of operations, on any engine over the store, a call goes only in a state that its gate
// names. It goes at most as often as one passage through the state allows, and once for each key.
func TestNoSequenceCallsMoreThanAllowed(t *testing.T) {
	t.Parallel()
	const maxCalls = 2
	flow := strings.Replace(releaseFlow, `"fail":"broken"`, `"fail":"broken","again":"approved"`, 1)
	rapid.Check(t, func(rt *rapid.T) {
		b := newCallBench(t)
		b.define(operator, flow)
		again := newBenchWith(t, b.store, nil, func(c *engine.Config) { c.ReviewPath, c.Now = true, func() time.Time { return b.now } })
		id := b.approved()
		ctx := context.Background()
		var begun []string                 // calls that went
		keys, goes := map[string]bool{}, 0 // goes counts the calls that may have happened
		var checkpoints []string
		passages := 1 // times that "approved" was entered by a move other than the gate's
		version := 2
		must := func(err error, allowed ...engine.Code) bool {
			if err != nil && !slices.Contains(allowed, engine.CodeOf(err)) {
				rt.Fatal(err)
			}
			return err == nil
		}
		on := func() *engine.Engine { // any process may be used
			if rapid.Bool().Draw(rt, "other process") {
				return again.Engine
			}
			return b.Engine
		}
		act := map[string]func(*rapid.T){
			"call": func(rt *rapid.T) {
				before := b.load(id)
				req := deploy(id, fmt.Sprintf(`{"version":"1.2","n":%d}`, rapid.IntRange(0, 1).Draw(rt, "n")))
				req.Key = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(rt, "key")
				req.MaxCalls = maxCalls
				if req.Action = rapid.SampledFrom([]string{"", "deploy"}).Draw(rt, "action"); req.Action == "" {
					req.Data = nil
				}
				req.Success = rapid.SampledFrom([]string{"succeed", "again"}).Draw(rt, "success")
				r, err := on().BeginCall(ctx, agent, req)
				if !must(err, engine.CodeKeyReused, engine.CodeInstanceEnded) || r.Answer != engine.CallGo {
					return
				}
				if before.State != "approved" || before.Status != record.Running {
					rt.Fatalf("it went in %q (%s)", before.State, before.Status)
				}
				if slices.ContainsFunc(before.Facts.Calls, func(c workflow.OpenCall) bool { return !c.IsOpen() && c.Gate == req.Gate }) {
					rt.Fatal("it went although nobody knows what became of another")
				}
				if slices.Contains(begun, r.CallID) || req.Key != "" && keys[req.Key] {
					rt.Fatalf("%s went twice, or key %q", r.CallID, req.Key)
				}
				begun, keys[req.Key] = append(begun, r.CallID), true
				if goes++; goes > maxCalls*passages {
					rt.Fatalf("%d calls in %d passages", goes, passages)
				}
			},
			"settle": func(rt *rapid.T) {
				if len(begun) == 0 {
					return
				}
				how := rapid.SampledFrom([]engine.CallOutcome{engine.CallOK, engine.CallError, engine.CallUnknown, engine.CallNotSent}).Draw(rt, "outcome")
				r, err := on().SettleCall(ctx, agent, engine.SettleRequest{ID: id, CallID: rapid.SampledFrom(begun).Draw(rt, "call"), Outcome: how, Data: json.RawMessage(`{}`)})
				if must(err) && !r.Replayed && r.Outcome == engine.CallNotSent {
					goes--
				}
			},
			"wait": func(*rapid.T) {
				b.now = b.now.Add(2 * time.Minute)
				_, err := on().SettleOverdue(ctx)
				must(err)
			},
			"person": func(rt *rapid.T) {
				for _, c := range b.load(id).Facts.Calls {
					if !c.IsOpen() {
						it := rapid.SampledFrom([]judge.Outcome{judge.Approve, judge.Reject}).Draw(rt, "it happened")
						_, err := on().Resolve(ctx, reviewer, engine.ResolveRequest{ID: c.Review, Decision: it, Reason: "Looked at.", Channel: record.ChannelCLI})
						if must(err) && it == judge.Reject {
							goes--
						}
					}
				}
			},
			"move": func(rt *rapid.T) {
				from := b.load(id).State
				action := rapid.SampledFrom([]string{"approve", "cancel", "reset", "deploy"}).Draw(rt, "action")
				data := `{}`
				if action == "approve" {
					data = `{"version":"1.2"}`
				}
				r, err := b.Advance(ctx, agent, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(data))})
				if must(err, engine.CodeCallOpen, engine.CodeGatedAction) && r.Decision.Applied && r.State == "approved" && from != "approved" {
					passages++
				}
			},
			"back": func(rt *rapid.T) {
				p := rapid.SampledFrom([]engine.Principal{agent, operator}).Draw(rt, "who")
				allowed := []engine.Code{engine.CodeForbidden, engine.CodeNothingToUndo, engine.CodeCallOpen, engine.CodeInstanceEnded, engine.CodeGatedAction}
				switch rapid.IntRange(0, 2).Draw(rt, "how") {
				case 0:
					_, err := on().Undo(ctx, p, engine.UndoRequest{ID: id})
					must(err, allowed...)
				case 1:
					_, err := on().Redo(ctx, p, engine.UndoRequest{ID: id})
					must(err, allowed...)
				default:
					if len(checkpoints) > 0 {
						_, err := on().Rollback(ctx, p, engine.RollbackRequest{ID: id, CheckpointID: rapid.SampledFrom(checkpoints).Draw(rt, "to")})
						must(err, allowed...)
					}
				}
			},
			"checkpoint": func(*rapid.T) {
				if cp, err := b.Checkpoint(ctx, agent, engine.CheckpointRequest{ID: id}); must(err, engine.CodeInstanceEnded) {
					checkpoints = append(checkpoints, cp.CheckpointID)
				}
			},
			"migrate": func(*rapid.T) {
				version++
				var doc map[string]any
				must(json.Unmarshal([]byte(flow), &doc))
				doc["description"] = fmt.Sprint("version ", version)
				text, err := json.Marshal(doc)
				must(err)
				_, err = b.Define(ctx, operator, engine.DefineRequest{Source: "test", Document: text})
				must(err)
				_, err = b.Migrate(ctx, operator, engine.MigrateRequest{Workflow: "release"})
				must(err)
			},
			"cancel": func(rt *rapid.T) {
				if rapid.IntRange(0, 9).Draw(rt, "really") == 0 {
					_, err := b.Cancel(ctx, agent, engine.CancelRequest{ID: id})
					must(err, engine.CodeCallOpen, engine.CodeInstanceEnded)
				}
			},
		}
		rt.Repeat(act)
		if v, err := b.Verify(ctx, operator, audit.VerifyRequest{}); err != nil || !v.Clean() {
			rt.Fatalf("%+v, %v", v.Problems, err)
		}
	})
}
