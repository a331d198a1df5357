package main

import (
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// Names of fields that many commands take as arguments, or do not take.
var (
	byID       = []string{"id"}
	ofInstance = map[string]string{"id": "instance"}
)

// instanceOperations are the commands that perform one operation, by their words.
var instanceOperations = map[string]*operationCommand{
	"start": {op: operation.Start.Operation, positional: []string{"type"}, flags: map[string]string{"type": "workflow"}, text: printStart},
	"advance": {
		op: operation.Advance.Operation, positional: []string{"id", "action"}, text: printAdvance,
		bad: []engine.Code{engine.CodeConflict, engine.CodeInstanceEnded, engine.CodeValuesDestroyed},
	},
	"status":         {op: operation.Status.Operation, positional: byID, without: []string{"revision", "at"}, text: printStatus},
	"instances list": {op: operation.Instances.Operation, rows: typed(instanceRows), none: say("no instances")},
	"instances show": {op: operation.Status.Operation, positional: byID},
	"instances history": {
		op: operation.History.Operation, positional: byID, none: say("no decisions"), spare: []string{"ASSURANCE", "CONFIDENCE", "FROM"},
		rows: typed(func(r engine.HistoryResult) [][]string { return decisionRows(r.Decisions) }),
	},
	"instances timeline": {op: operation.Timeline.Operation, positional: byID, flags: map[string]string{"after": "after-seq"}, rows: typed(timelineRows), none: say("no events")},
	"instances undo":     {op: operation.Undo.Operation, positional: byID, bad: unturnable},
	"instances redo":     {op: operation.Redo.Operation, positional: byID, bad: unturnable},
	"instances release":  {op: operation.Release.Operation, positional: byID, bad: []engine.Code{engine.CodeCallOpen, engine.CodeConflict}},
	"history search": {
		op: operation.Decisions.Operation, flags: ofInstance, none: say("no such decisions"),
		spare: []string{"ASSURANCE", "CONFIDENCE", "FROM", "DECIDED BY"},
		rows:  typed(func(r engine.DecisionsResult) [][]string { return foundRows(r.Decisions) }),
	},
	"history export": {op: operation.Decisions.Operation, flags: ofInstance, without: []string{"cursor", "limit"}},
	"history stats": {
		op: operation.Statistics.Operation, none: say("no such decisions"), rows: typed(statsRows),
		spare: []string{"P95", "TOOK", "CONFIDENCE (QUARTILES)", "ASKED ONLY", "DEGRADED", "DECIDED BY"},
	},
}

// unturnable lists the codes that mean that undo or redo is not possible.
var unturnable = []engine.Code{engine.CodeNothingToUndo, engine.CodeInstanceEnded, engine.CodeConflict, engine.CodeValuesDestroyed}
