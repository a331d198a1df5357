package mcpface

import (
	"context"
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
)

// tool is one row of the tool table: what a client is told of it, and what it does.
type tool struct {
	name, title, description string
	params                   []param
	// passes lets unknown arguments through to the engine, which names them better.
	passes bool
	// hints for the client.
	readOnly, destructive, idempotent bool
	// roles that are told of it; nil is every one. Calls are the engine's to refuse.
	roles []engine.Role
	// output is a value of the type that the tool answers with.
	output any
	run    func(ctx context.Context, f *Face, a arguments) (answer, error)
}

// declare is the tool as it is listed.
func (t tool) declare() mcp.Tool {
	no := false
	return mcp.Tool{
		Name: t.name, Title: t.title, Description: t.description,
		RawInputSchema: inputSchema(t.params), RawOutputSchema: outputSchema(t.output),
		Annotations: mcp.ToolAnnotation{
			Title: t.title, ReadOnlyHint: &t.readOnly, DestructiveHint: &t.destructive,
			IdempotentHint: &t.idempotent, OpenWorldHint: &no,
		},
	}
}

// The parameters that several tools share.
var (
	paramID       = param{name: "id", kind: kindString, required: true, help: "The instance's id, as start returned it (wf-...)."}
	paramKey      = param{name: "idempotencyKey", kind: kindString, help: "A key of your own, at most 200 bytes: repeating the call with the same key and arguments returns the first answer and does nothing again."}
	paramRevision = param{name: "expectedRevision", kind: kindInteger, within: &bounds{least: 0}, help: "The revision that you believe the instance is at; when it is not, nothing happens and the answer is the error conflict with the current state."}
	paramData     = param{name: "data", kind: kindObject, help: "What the action brings: a JSON object, merged into the context by top-level key when the move is approved; null removes a key."}
	paramPast     = param{name: "revision", kind: kindInteger, within: &bounds{least: 1}, help: "Look at the past: as it was at this revision. Leave it out for now."}
	paramAt       = param{name: "at", kind: kindString, help: "Look at the past: as it was at this time, RFC 3339, such as 2026-01-02T15:04:05Z. Leave it out for now."}
	paramAction   = param{name: "action", kind: kindString, required: true, help: "The action to perform; one of nextActions."}
)

// toolConfigure answers a refusal with success and message too.
const toolConfigure = "workflow.judge.config"

var tools = []tool{
	{
		name: "workflow.define", title: "Define a workflow", idempotent: true, passes: true, output: engine.DefineResult{},
		description: "Register a workflow: named states, the actions that lead from one to another, and what each action demands. Use it once per process, before start. Defining the same document again changes nothing; a changed one becomes a new version, and running instances keep the one they started with.",
		params:      defineParams, run: runDefine,
	},
	{
		name: "workflow.list", title: "List workflows", readOnly: true, idempotent: true, output: listAnswer{},
		description: "List every defined workflow with its description. Use it to find the type to start.",
		run:         runList,
	},
	{
		name: "workflow.describe", title: "Describe a workflow", readOnly: true, idempotent: true, output: engine.DefinitionView{},
		description: "Show one workflow in full: its states, actions, required fields, criteria, and the judge settings in force. Use it before advance to learn what an action demands. Give name for a workflow, or id for the version that an instance has; with revision or at, what it was then.",
		params: []param{
			{name: "name", kind: kindString, help: "The workflow's name, from list."},
			{name: "version", kind: kindInteger, within: &bounds{least: 1}, help: "The version, from 1; leave it out for the newest."},
			{name: "id", kind: kindString, help: "Instead of name: an instance's id, for the version that it has."},
			{name: "revision", kind: kindInteger, within: &bounds{least: 1}, help: "With id: the version that the instance had at this revision."},
			paramAt,
		},
		run: runDescribe,
	},
	{
		name: "workflow.start", title: "Start an instance", output: engine.StartResult{},
		description: "Start an instance of a workflow. Returns its id, the state it is in and nextActions. A start context that the workflow does not accept is refused, and nothing is created.",
		params: []param{
			{name: "type", kind: kindString, required: true, help: "The workflow's name, from list."},
			{name: "context", kind: kindObject, help: "The start context: a JSON object."},
			paramKey,
		},
		run: runStart,
	},
	{
		name: "workflow.advance", title: "Perform an action", output: engine.AdvanceResult{},
		description: "Ask for an action. It is judged first: when approved, the instance moves to the next state and data is merged into its context; when refused, nothing changes and the answer says what is missing. Only an approved advance means that the step is done.",
		params:      []param{paramID, paramAction, paramData, paramRevision, paramKey},
		run:         runAdvance,
	},
	{
		name: "workflow.status", title: "Show an instance", readOnly: true, idempotent: true, output: engine.StatusResult{},
		description: "Show where an instance is: state, context, nextActions, progress, and whether it is complete. Use it whenever you are not sure. With revision or at it shows the past, and past.currentState where the instance is now.",
		params:      []param{paramID, paramPast, paramAt}, run: runStatus,
	},
	{
		name: "workflow.cancel", title: "Cancel an instance", destructive: true, output: engine.CancelResult{},
		description: "End an instance for good without reaching a final state. Its history is kept.",
		params:      []param{paramID, {name: "reason", kind: kindString, help: "Why, for the record."}, paramRevision, paramKey},
		run:         runCancel,
	},
	{
		name: "workflow.checkpoint", title: "Set a checkpoint", output: engine.CheckpointResult{},
		description: "Name the present state and context of an instance, to be able to roll back to it. Use it before a step that may go wrong.",
		params: []param{
			paramID,
			{name: "description", kind: kindString, help: "What this checkpoint is."},
			{name: "metadata", kind: kindObject, help: "Anything else to keep with it: a JSON object."},
			paramKey,
		},
		run: runCheckpoint,
	},
	{
		name: "workflow.rollback", title: "Roll back to a checkpoint", destructive: true, output: engine.RollbackResult{},
		description: "Put an instance back into the state and context of a checkpoint. The history is kept. On an operator's workflow only an operator may.",
		params: []param{
			paramID, {name: "checkpointId", kind: kindString, required: true, help: "The checkpoint's id (cp-...)."}, paramRevision, paramKey,
		},
		run: runRollback,
	},
	{
		name: "workflow.undo", title: "Undo the last move", destructive: true, output: engine.UndoResult{},
		description: "Take the last approved move of an instance back: state and context are again what they were before it. Call it again to take back the one before. Nothing outside is undone, and the history is kept. On an operator's workflow, and for a move that a person approved, only an operator may.",
		params:      []param{paramID, paramRevision, paramKey}, run: runUndo,
	},
	{
		name: "workflow.redo", title: "Redo the last undone move", destructive: true, output: engine.UndoResult{},
		description: "Make the move again that was undone last, exactly as it was. Possible until another move is made. Who may is as for undo.",
		params:      []param{paramID, paramRevision, paramKey}, run: runRedo,
	},
	{
		name: "workflow.listCheckpoints", title: "List checkpoints", readOnly: true, idempotent: true, output: engine.CheckpointsResult{},
		description: "List an instance's checkpoints, newest first.",
		params:      []param{paramID}, run: runListCheckpoints,
	},
	{
		name: "workflow.judge.validate", title: "Ask whether an action would pass", output: validateAnswer{},
		description: "Ask the judge about an action without performing it. Returns approved, confidence, reasoning, violations and suggestions. The state does not change; the question is recorded.",
		params:      []param{paramID, paramAction, paramData, paramRevision}, run: runValidate,
	},
	{
		name: toolConfigure, title: "Configure the judge", output: engine.JudgeConfigResult{},
		description: "Change the judge's settings of a workflow, from the next decision on. Only what is given changes. On an operator's workflow an agent may only tighten, for its own instances.",
		params: []param{
			{name: "name", kind: kindString, required: true, help: "The workflow's name."},
			{name: "enabled", kind: kindBoolean, help: "Whether the judge's confidence threshold and model count; the workflow's own rules always do."},
			{name: "strictMode", kind: kindBoolean, help: "Refuse what is below minConfidence instead of warning."},
			{name: "minConfidence", kind: kindNumber, within: &bounds{0, 1}, help: "The least confidence to approve with, 0 to 1."},
			{name: "useLLM", kind: kindBoolean, help: "Ask the language model after every other layer approved."},
			{name: "model", kind: kindString, help: "Which of the models that an operator configured is asked."},
			{name: "shared", kind: kindBoolean, help: "Operators only: let every agent see and start a workflow that belongs to an agent."},
		},
		run: runConfigure,
	},
	historyTool, statisticsTool,
	{
		name: "workflow.instances", title: "List instances", readOnly: true, idempotent: true, output: engine.InstancesResult{},
		description: "List your instances, newest first. Use it to find an instance whose id you lost.",
		params: []param{
			{name: "workflow", kind: kindString, help: "Only of this workflow."},
			{name: "state", kind: kindString, help: "Only in this state."},
			{name: "status", kind: kindString, enum: []string{"running", "complete", "cancelled"}, help: "Only of this status."},
			{name: "cursor", kind: kindString, help: "Continue here: nextCursor of the page before."},
			{name: "limit", kind: kindInteger, within: &bounds{1, 500}, help: "How many instances at most, 1 to 500; 50 when left out."},
		},
		run: runInstances,
	},
	{
		name: "workflow.canExecute", title: "Check the state before acting", readOnly: true, idempotent: true, output: engine.CanExecuteResult{},
		description: "Ask whether an instance is in one of the given states, before you use a tool that belongs to them.",
		params:      []param{paramID, {name: "states", kind: kindStrings, required: true, help: "The states in which the tool may be used."}},
		run:         runCanExecute,
	},
	{
		name: "workflow.diagram", title: "Draw a workflow", readOnly: true, idempotent: true, output: engine.DiagramResult{},
		description: "Draw a workflow, or an instance with its present state and path marked, as Mermaid or DOT text. Give name or id.",
		params: []param{
			{name: "name", kind: kindString, help: "A workflow's name."},
			{name: "id", kind: kindString, help: "An instance's id."},
			{name: "format", kind: kindString, enum: []string{"mermaid", "dot"}, help: "mermaid (the default) or dot."},
		},
		run: runDiagram,
	},
}

var defineParams = []param{
	{name: "name", kind: kindString, required: true, help: "Unique name: letters, digits, dot, underscore, hyphen; at most 64."},
	{name: "description", kind: kindString, help: "What the process is for."},
	{name: "comment", kind: kindString, help: "A note for maintainers."},
	{name: "tags", kind: kindObject, help: "Labels: an object of strings."},
	{name: "initialState", kind: kindString, required: true, help: "The state in which instances start."},
	{name: "inputSchema", kind: kindObject, help: "JSON Schema of the start context."},
	{name: "states", kind: kindObject, required: true, help: "The states by name: {\"draft\": {\"transitions\": {\"submit\": \"review\"}}, \"done\": {\"final\": true}}. A transition is a target, an object (target, requiredFields, schema, validator, writes, freezes, roles, notBy, ...) or a list of {condition, target}."},
	{name: "judgeConfig", kind: kindObject, help: "enabled, useLLM, strictMode, minConfidence (0 to 1), mode, onJudgeUnavailable, requireAssurance, criteria, model."},
	{name: "stateValidators", kind: kindObject, help: "By state: requiredFields and schema that the merged context must satisfy on entry."},
	{name: "transitionValidators", kind: kindObject, help: "By action or state.action: a JavaScript function (data, context) => ({ valid, confidence, reason })."},
	{name: "sensitive", kind: kindStrings, help: "JSON pointers to values that are masked wherever they would be shown."},
	{name: "retention", kind: kindObject, help: "How long the history of an instance is kept after its end."},
	{name: "mustPassThrough", kind: kindObject, help: "By state: the states that must have been visited before it is entered."},
}

// listAnswer is what workflow.list answers.
type listAnswer struct {
	Workflows []engine.DefinitionSummary `json:"workflows"`
	Count     int                        `json:"count"`
}

// validateAnswer is what judge.validate answers: what the Generic DFA server
// answers at the top, the whole decision beside it.
type validateAnswer struct {
	Approved    bool     `json:"approved"`
	Confidence  float64  `json:"confidence"`
	Reasoning   string   `json:"reasoning"`
	Violations  []string `json:"violations"`
	Suggestions []string `json:"suggestions"`
	Action      string   `json:"action"`
	engine.Position
	Decision engine.Decision `json:"decision"`
}

var _ json.Marshaler = mcp.Tool{}
