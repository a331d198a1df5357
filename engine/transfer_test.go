package engine_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
)

// This file goes with the module transfer.
func init() {
	exportInstances = func(ctx context.Context, b *bench, p engine.Principal, instance, workflow string) ([]exportedInstance, error) {
		x, err := portable.Export(ctx, b.Engine, b.store, p, portable.ExportRequest{Instance: instance, Workflow: workflow})
		if err != nil {
			return nil, err
		}
		var all []exportedInstance
		for in, err := range x.Instances {
			if err != nil {
				return nil, err
			}
			one := exportedInstance{ID: in.ID, State: in.State, Lines: in.Lines}
			for _, cp := range in.Checkpoints {
				one.Checkpoints = append(one.Checkpoints, cp.Document)
			}
			all = append(all, one)
		}
		return all, nil
	}
}

// An import can leave the definitions to an agent, which then keeps its previous rights on them.
func TestImportForAnOwnerOfTheDefinitions(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"", agent.ID} {
		t.Run("owner "+owner, func(t *testing.T) {
			t.Parallel()
			db := memory.New()
			b := newBenchOn(t, db)
			req := portable.ImportRequest{
				Source: "dfa", Owner: agent.ID, DefinitionsOwner: owner,
				Definitions: []portable.Definition{{File: "given.json", Document: json.RawMessage(given("", ""))}},
			}
			report, err := portable.Import(t.Context(), b.Engine, db, operator, req)
			if err != nil || report.Refused != 0 || len(report.Definitions) != 1 {
				t.Fatalf("%+v, %v", report, err)
			}
			if again, err := portable.Import(t.Context(), b.Engine, db, operator, req); err != nil || again.Definitions[0].Status != portable.Present || again.Definitions[0].Version != 1 {
				t.Errorf("again: %+v, %v", again, err)
			}
			if owner == "" { // a definition that an agent had made under that name is taken over
				b.define(agent, named(given("", ""), "alike"))
				req := req
				req.Definitions = []portable.Definition{{File: "alike.json", Document: json.RawMessage(named(given("", ""), "alike"))}}
				if r, err := portable.Import(t.Context(), b.Engine, db, operator, req); err != nil || r.Definitions[0].Status != portable.Imported || r.Definitions[0].Version != 2 {
					t.Errorf("%+v, %v", r, err)
				}
			}
			id := b.start(agent, "given", "").ID
			cp := b.checkpoint(agent, id)
			_, err1 := b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: id, CheckpointID: cp})
			_, err2 := b.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(given("", `"comment":"mine",`))})
			_, err3 := b.ConfigureJudge(t.Context(), agent, engine.JudgeConfigRequest{Name: "given", Settings: workflow.JudgeSettings{Enabled: new(false)}})
			for i, err := range []error{err1, err2, err3} {
				if owner != "" && err != nil || owner == "" && engine.CodeOf(err) != engine.CodeForbidden {
					t.Errorf("%d: %v", i, err)
				}
			}
			if err := record.Verify(db.Events(t.Context(), store.EventQuery{Instance: id})); err != nil {
				t.Error(err)
			}
		})
	}
}
