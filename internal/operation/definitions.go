package operation

import (
	"context"
	"net/url"
	"strconv"

	"github.com/gavel-mcp/gavel/engine"
)

// Empty is a request without fields.
type Empty struct{}

// DefinitionList lists the newest version of every definition.
type DefinitionList struct {
	Workflows []engine.DefinitionSummary `json:"workflows"`
	Count     int                        `json:"count"`
}

// JudgeView is the judge configuration in force for the caller's instances.
type JudgeView struct {
	Name    string            `json:"name"`
	Version int               `json:"version"`
	Config  engine.RubricView `json:"config"`
}

// The fields that several operations share.
var (
	fieldID   = Field{Name: "id", Required: true, Help: "The instance's id, as start returned it (wf-...)."}
	fieldName = Field{Name: "name", Required: true, Help: "The workflow's name."}
	fieldKey  = Field{
		Name: "idempotencyKey", Go: "Key", Header: "Idempotency-Key",
		Help: "A key of your choice, at most 200 bytes: a repeated call with the same key and arguments returns the first answer and does nothing.",
	}
	fieldExpected = Field{
		Name: "expectedRevision", Header: "If-Match", Range: &Range{Min: 0},
		Help:     "The revision that you expect the instance to have. If it has another, nothing happens and the error conflict shows the current state.",
		HTTPHelp: "The ETag that you received, or a revision in double quotes. If the instance has changed since, nothing happens and the answer is 412.",
	}
	fieldAction   = Field{Name: "action", Required: true, Help: "The action to perform; one of nextActions."}
	fieldData     = Field{Name: "data", Open: true, Help: "The action's data: a JSON object, merged into the context by top-level key when the move is approved; null removes a key."}
	fieldPast     = Field{Name: "revision", Range: &Range{Min: 1}, Help: "Show the past, as of this revision. Omit it to see the present."}
	fieldAt       = Field{Name: "at", Help: "Show the past, as of this time (RFC 3339, such as 2026-03-10T09:30:00Z). Omit it to see the present."}
	fieldWorkflow = Field{Name: "workflow", Help: "Only this workflow."}
	fieldSince    = Field{Name: "since", Help: "Only from this time on, RFC 3339 (2026-03-01T00:00:00Z)."}
	fieldUntil    = Field{Name: "until", Help: "Only before this time, RFC 3339."}
)

// PageLimit returns the field that limits the page of a list.
func PageLimit(what string, most float64) Field {
	usual := map[float64]string{500: "50", 1000: "100"}[most]
	return Field{Name: "limit", Range: &Range{1, most}, Help: "Maximum number of " + what + ", 1 to " + formatNumber(most) + " (default " + usual + ")."}
}

// FieldCursor continues a list.
var FieldCursor = Field{Name: "cursor", Help: "Continue the list: nextCursor of the previous page."}

// The operations on definitions.
var (
	Define = Add(Operation{
		ID: "define", Group: "definitions", Title: "Define a workflow", Right: engine.RightDefine, Document: true,
		Description: "Register a workflow: named states, the actions that lead from one to another, and what each action requires. Use it once per process, before start. Defining the same document again changes nothing. A changed document becomes a new version; running instances keep the version they started with.",
		Fields: []Field{
			{Name: "name", Kind: String, Required: true, Help: "Unique name: letters, digits, dot, underscore, hyphen; at most 64."},
			{Name: "description", Kind: String, Help: "The purpose of the process."},
			{Name: "comment", Kind: String, Help: "A note for maintainers."},
			{Name: "tags", Kind: Object, Help: "Labels: an object of strings."},
			{Name: "initialState", Kind: String, Required: true, Help: "The state in which instances start."},
			{Name: "inputSchema", Kind: Object, Help: "JSON Schema of the start context."},
			{Name: "states", Kind: Object, Required: true, Help: "The states by name: {\"draft\": {\"transitions\": {\"submit\": \"review\"}}, \"done\": {\"final\": true}}. A transition is a target, an object (target, requiredFields, schema, validator, writes, freezes, roles, notBy, ...) or a list of {condition, target}."},
			{Name: "judgeConfig", Kind: Object, Help: "enabled, useLLM, strictMode, minConfidence (0 to 1), mode, onJudgeUnavailable, requireAssurance, criteria, model."},
			{Name: "stateValidators", Kind: Object, Help: "By state: requiredFields and schema that the merged context must satisfy on entry."},
			{Name: "transitionValidators", Kind: Object, Help: "By action or state.action: a JavaScript function (data, context) => ({ valid, confidence, reason })."},
			{Name: "sensitive", Kind: Strings, Help: "JSON pointers to values that are masked when shown."},
			{Name: "retention", Kind: Object, Help: "How long the history of an instance is kept after its end."},
			{Name: "mustPassThrough", Kind: Object, Help: "By state: the states that must be visited before it."},
			{Name: "access", Kind: String, Help: "shared: every agent may read and move the instances. Operators only. By default an instance belongs to the agent that started it."},
			{Name: "agents", Kind: Object, Help: "Rights of agents on an operator's definition: rollback, redefine, configureJudge."},
		},
		Tool: Tool{Name: "workflow.define", Idempotent: true},
		Routes: []Route{
			{At: "POST /v1/definitions", Created: true, YAML: true, Note: "The body is the definition."},
			{
				At: "PUT /v1/definitions/{name}", ID: "putDefinition", Created: true, YAML: true, Title: "Define the workflow with this name",
				Description: "Like define, with the name in the path; a definition with another name is rejected.",
			},
		},
		Location: Adapt(func(r engine.DefineResult) string {
			if !r.Created {
				return ""
			}
			return "/v1/definitions/" + url.PathEscape(r.Name) + "?version=" + strconv.Itoa(r.Version)
		}),
	}, callEngine(Engine.Define))
	List = Add(Operation{
		ID: "listDefinitions", Group: "definitions", Title: "List workflows", Right: engine.RightRead,
		Description: "List every defined workflow with its description. Use it to find the type to start.",
		Tool:        Tool{Name: "workflow.list", ReadOnly: true},
		Routes:      []Route{{At: "GET /v1/definitions"}},
		Show:        Adapt(briefList),
	}, func(ctx context.Context, c Call, _ Empty) (DefinitionList, error) {
		all, err := c.Engine.List(ctx, c.Caller.Principal)
		return DefinitionList{Workflows: all, Count: len(all)}, err //nolint:wrapcheck // an *engine.Error
	})
	Describe = Add(Operation{
		ID: "describe", Group: "definitions", Title: "Describe a workflow", Right: engine.RightRead,
		Description: "Show one workflow in full: its states, actions, required fields, criteria, and the judge settings in force. Use it before advance to learn what an action requires.",
		Fields: []Field{
			{Name: "name", Help: "The workflow's name, from list."},
			{Name: "version", Range: &Range{Min: 1}, Help: "The version, from 1; omit it for the newest."},
			{Name: "id", Help: "Instead of name: an instance's id, for its version of the workflow.", HTTPHelp: fieldID.Help},
			{
				Name: "revision", Range: &Range{Min: 1}, Help: "With id: the version that the instance had at this revision.",
				HTTPHelp: "Show the past: the version that the instance had at this revision.",
			},
			fieldAt,
		},
		Tool: Tool{
			Name: "workflow.describe", ReadOnly: true,
			Note: "Give name for a workflow, or id for an instance's version of it. With revision or at, shows it as it was then.",
		},
		Routes: []Route{
			{
				At: "GET /v1/definitions/{name}", ID: "getDefinition", Without: []string{"revision"},
				Note: "Judge settings listed in `withheld` are shown only to reviewers, auditors and callers who may change the definition.",
			},
			{
				At: "GET /v1/instances/{id}/definition", ID: "instanceDefinition", Without: []string{"version"},
				Title: "Describe the workflow of an instance", Description: "The version that the instance has, or had at a revision or time.",
			},
		},
	}, callEngine(Engine.DescribeAt))
	Diagram = Add(Operation{
		ID: "diagram", Group: "definitions", Title: "Draw a workflow", Right: engine.RightRead,
		Description: "Draw a workflow, or an instance with its current state and path marked. The formats are Mermaid, DOT, SVG and plain text.",
		Fields: []Field{
			{Name: "name", Help: "A workflow's name."},
			{Name: "id", Help: "An instance's id."},
			{Name: "version", Range: &Range{Min: 1}, Help: "With name: the version, from 1; omit it for the newest."},
			{Name: "format", Enum: []string{"mermaid", "dot", "svg", "text"}, Help: "mermaid (the default), dot, svg or text."},
			{Name: "since", Help: "With name and svg: show at each transition how many requests were decided since this time, RFC 3339, and how many of them were refused."},
		},
		Tool: Tool{Name: "workflow.diagram", ReadOnly: true, Note: "Give name or id."},
		Routes: []Route{
			{At: "GET /v1/definitions/{name}/diagram", ID: "definitionDiagram"},
			{
				At: "GET /v1/instances/{id}/diagram", ID: "instanceDiagram", Without: []string{"version", "since"}, Title: "Draw an instance",
				Description: "Its workflow with its current state and path marked. The formats are Mermaid, DOT, SVG and plain text; svg also shows refusals and possible next actions.",
			},
		},
	}, callEngine(Engine.Diagram))
	GetJudge = Add(Operation{
		ID: "getJudge", Group: "judge", Title: "Show the judge configuration", Right: engine.RightRead,
		Description: "The judge settings in force for the caller's instances of the newest version.",
		Fields:      []Field{fieldName},
		Routes:      []Route{{At: "GET /v1/definitions/{name}/judge"}},
	}, func(ctx context.Context, c Call, req engine.DescribeRequest) (JudgeView, error) {
		d, err := c.Engine.DescribeAt(ctx, c.Caller.Principal, req)
		return JudgeView{Name: d.Name, Version: d.Version, Config: d.Judge}, err //nolint:wrapcheck // an *engine.Error
	})
	ConfigureJudge = Add(Operation{
		ID: "patchJudge", Group: "judge", Title: "Configure the judge", Right: engine.RightConfigure,
		Description: "Change the judge settings of a workflow, from the next decision on. Omitted settings stay. On an operator's workflow an agent may only tighten them, for its own instances.",
		Fields: []Field{
			fieldName,
			{Name: "enabled", Help: "Whether the judge's confidence threshold and model apply; the workflow's own rules always do."},
			{Name: "strictMode", Help: "Refuse decisions below minConfidence instead of warning."},
			{Name: "minConfidence", Range: &Range{0, 1}, Help: "The lowest confidence that approves, 0 to 1."},
			{Name: "useLLM", Help: "Ask the language model after every other layer approved."},
			{Name: "model", Help: "The model to ask; an operator has configured it."},
			{Name: "shared", Help: "Operators only: let every agent see and start a workflow that belongs to an agent."},
		},
		Tool:   Tool{Name: "workflow.judge.config"},
		Routes: []Route{{At: "PATCH /v1/definitions/{name}/judge"}},
	}, callEngine(Engine.ConfigureJudge))
	ClearRefusals = Add(Operation{
		ID: "clearRefusals", Group: "judge", Title: "Lift the loop guard", Right: engine.RightClear,
		Description: "Clear the model's refusals that the loop guard counts (loop_guard), so that the model is asked again. A review that waits only because of the guard is closed: request its action again. The decisions stay on record.",
		Fields: []Field{
			{Name: "id", Help: "The instance's id. Give at least one of id, workflow and principal."},
			{Name: "workflow", Help: "The workflow's name."},
			{Name: "principal", Help: "The principal that was refused, such as local:agent."},
			{Name: "action", Help: "The action; all actions if omitted."},
		},
		Tool:   Tool{Name: "workflow.judge.clear", Idempotent: true, Restricted: true},
		Routes: []Route{{At: "POST /v1/refusals/clear"}},
	}, callEngine(Engine.ClearRefusals))
)
