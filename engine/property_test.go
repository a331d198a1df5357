package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/validators/document"
)

// In any order of requests, the store holds exactly the fold of its events, the chain verifies, seq has no
// gaps, and refusals change nothing. The definition always leads from each state to the next.
func TestRandomWalks(t *testing.T) {
	b := newBench(t)
	b.define(agent, `{"name":"walk","initialState":"a","states":{
		"a":{"transitions":{"go":{"target":"b","requiredFields":["x"]},"stay":"a"}},
		"b":{"transitions":{"go":{"target":"c","freezes":["/x"]},"back":"a"}},
		"c":{"transitions":{"end":"d","back":"b"}},
		"d":{"final":true}}}`)
	rapid.Check(t, func(rt *rapid.T) {
		ctx := context.Background()
		s, err := b.Start(ctx, agent, engine.StartRequest{Type: "walk"})
		if err != nil {
			rt.Fatal(err)
		}
		var checkpoints []string
		rt.Repeat(map[string]func(*rapid.T){
			"advance": func(rt *rapid.T) {
				walkAdvance(rt, b, s.ID)
			},
			"validate": func(rt *rapid.T) {
				before := b.load(s.ID)
				if _, err := b.Validate(ctx, agent, engine.AdvanceRequest{ID: s.ID, Action: drawAction(rt)}); err != nil {
					rt.Fatal(err)
				}
				if after := b.load(s.ID); after.Revision != before.Revision || after.Seq != before.Seq+1 {
					rt.Fatalf("validate: %+v -> %+v", before, after)
				}
			},
			"checkpoint": func(rt *rapid.T) {
				c, err := b.Checkpoint(ctx, agent, engine.CheckpointRequest{ID: s.ID})
				if err != nil {
					rt.Fatal(err)
				}
				checkpoints = append(checkpoints, c.CheckpointID)
			},
			"rollback": func(rt *rapid.T) {
				if len(checkpoints) == 0 {
					rt.Skip("no checkpoint yet")
				}
				if _, err := b.Rollback(ctx, agent, engine.RollbackRequest{ID: s.ID, CheckpointID: rapid.SampledFrom(checkpoints).Draw(rt, "cp")}); err != nil {
					rt.Fatal(err)
				}
			},
		})
		checkFold(rt, b, s.ID)
	})
}

func drawAction(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"go", "back", "stay", "end", "fly"}).Draw(rt, "action")
}

func walkAdvance(rt *rapid.T, b *bench, id string) {
	before := b.load(id)
	data := rapid.SampledFrom([]string{`{}`, `{"x":1}`, `{"x":2}`, `{"x":null}`, `{"y":[1,{"z":0.1}]}`}).Draw(rt, "data")
	r, err := b.Advance(context.Background(), agent, engine.AdvanceRequest{ID: id, Action: drawAction(rt), Data: document.ReadTrusted([]byte(data))})
	if err != nil {
		rt.Fatal(err)
	}
	after := b.load(id)
	if after.Seq != before.Seq+1 {
		rt.Fatalf("seq %d -> %d", before.Seq, after.Seq)
	}
	moved := r.Decision.Applied
	if moved != (after.Revision == before.Revision+1) || (!moved && (after.State != before.State || string(after.Context) != string(before.Context))) {
		rt.Fatalf("applied %v: %+v -> %+v", moved, before, after)
	}
}

// checkFold reads the history back and compares it with the stored instance.
func checkFold(rt *rapid.T, b *bench, id string) {
	ctx := context.Background()
	all := b.store.Events(ctx, store.EventQuery{Instance: id})
	if err := record.Verify(all); err != nil {
		rt.Fatal(err)
	}
	byRevision := map[int64]record.Instance{}
	var inst record.Instance
	for ev, err := range all {
		if err != nil {
			rt.Fatal(err)
		}
		inst, err = record.Fold(inst, ev, func(r int64) (record.Instance, error) {
			old, ok := byRevision[r]
			if !ok {
				return old, fmt.Errorf("revision %d was never reached", r)
			}
			return old, nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		byRevision[inst.Revision] = inst
	}
	want, err := json.Marshal(b.load(id))
	if err != nil {
		rt.Fatal(err)
	}
	if got, _ := json.Marshal(inst); string(got) != string(want) {
		rt.Fatalf("fold %s\nstore %s", got, want)
	}
}
