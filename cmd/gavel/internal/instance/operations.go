package instance

import (
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// The arguments and flags that several commands share: the argument id, and the flag --instance for the field id.
var (
	byID       = []string{"id"}
	ofInstance = map[string]string{"id": "instance"}
)

// Operations maps the words of each command that performs one operation to its spec.
var Operations = map[string]*cli.OperationSpec{
	"start": {Operation: operation.Start.Operation, Positional: []string{"type"}, Flags: map[string]string{"type": "workflow"}, Text: printStart},
	"advance": {
		Operation: operation.Advance.Operation, Positional: []string{"id", "action"}, Text: printAdvance,
		BadCodes: []engine.Code{engine.CodeConflict, engine.CodeInstanceEnded, engine.CodeValuesDestroyed},
	},
	"status":         {Operation: operation.Status.Operation, Positional: byID, Omitted: []string{"revision", "at"}, Text: printStatus},
	"instances list": {Operation: operation.Instances.Operation, Rows: cli.AdaptResult(instanceRows), EmptyText: cli.EmptyText("no instances")},
	"instances show": {Operation: operation.Status.Operation, Positional: byID},
	"instances history": {
		Operation: operation.History.Operation, Positional: byID, EmptyText: cli.EmptyText("no decisions"), OptionalColumns: []string{"ASSURANCE", "CONFIDENCE", "FROM"},
		Rows: cli.AdaptResult(func(r engine.HistoryResult) [][]string { return cli.DecisionRows(r.Decisions) }),
	},
	"instances timeline": {Operation: operation.Timeline.Operation, Positional: byID, Flags: map[string]string{"after": "after-seq"}, Rows: cli.AdaptResult(timelineRows), EmptyText: cli.EmptyText("no events")},
	"instances undo":     {Operation: operation.Undo.Operation, Positional: byID, BadCodes: undoRefusals},
	"instances redo":     {Operation: operation.Redo.Operation, Positional: byID, BadCodes: undoRefusals},
	"instances release":  {Operation: operation.Release.Operation, Positional: byID, BadCodes: []engine.Code{engine.CodeCallOpen, engine.CodeConflict}},
	"history search": {
		Operation: operation.Decisions.Operation, Flags: ofInstance, EmptyText: cli.EmptyText("no such decisions"),
		OptionalColumns: []string{"ASSURANCE", "CONFIDENCE", "FROM", "DECIDED BY"},
		Rows:            cli.AdaptResult(func(r engine.DecisionsResult) [][]string { return foundRows(r.Decisions) }),
	},
	"history export": {Operation: operation.Decisions.Operation, Flags: ofInstance, Omitted: []string{"cursor", "limit"}},
	"history stats": {
		Operation: operation.Statistics.Operation, EmptyText: cli.EmptyText("no such decisions"), Rows: cli.AdaptResult(statsRows),
		OptionalColumns: []string{"P95", "TOOK", "CONFIDENCE (QUARTILES)", "ASKED ONLY", "DEGRADED", "DECIDED BY"},
	},
}

// undoRefusals lists the codes that mean that undo or redo is not possible.
var undoRefusals = []engine.Code{engine.CodeNothingToUndo, engine.CodeInstanceEnded, engine.CodeConflict, engine.CodeValuesDestroyed}
