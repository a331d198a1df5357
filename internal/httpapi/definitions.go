package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// DefineRequest registers a definition: the body is it.
type DefineRequest struct {
	// Definition is JSON or YAML.
	Definition Document `body:"definition"`
}

// PutDefinitionRequest registers a definition under the name that the path says.
type PutDefinitionRequest struct {
	// Name must be the definition's.
	Name string `path:"name"`
	// Definition is JSON or YAML.
	Definition Document `body:"definition"`
}

// DefinitionRequest asks for a definition.
type DefinitionRequest struct {
	// Name of the workflow.
	Name string `path:"name"`
	// Version, from 1; the newest when left out.
	Version int `query:"version"`
	// At asks for the newest version of that time (RFC 3339).
	At time.Time `query:"at"`
}

// DiagramRequest asks for a drawing of a definition.
type DiagramRequest struct {
	// Name of the workflow.
	Name string `path:"name"`
	// Format is mermaid (when left out) or dot.
	Format string `query:"format"`
}

// NameRequest names a workflow.
type NameRequest struct {
	// Name of the workflow.
	Name string `path:"name"`
}

// JudgeRequest changes the members that are given.
type JudgeRequest struct {
	// Name of the workflow.
	Name string `path:"name"`
	// Enabled switches the content and model layers, and minConfidence.
	Enabled *bool `json:"enabled"`
	// UseLLM asks a model.
	UseLLM *bool `json:"useLLM"`
	// StrictMode refuses what is below minConfidence instead of warning.
	StrictMode *bool `json:"strictMode"`
	// MinConfidence is from 0 to 1.
	MinConfidence *float64 `json:"minConfidence"`
	// Model is the name of one that an operator configured.
	Model *string `json:"model"`
	// Shared lets every agent see and start an agent's workflow. Only operators may give it.
	Shared *bool `json:"shared"`
}

// Empty is a request that says nothing more than where it goes.
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

// The operations on definitions.
var (
	Define = Operation[DefineRequest, engine.DefineResult]{
		Route: Route{
			Method: http.MethodPost, Path: "/v1/definitions", ID: "define", Tag: "definitions", Created: true, YAML: true,
			Summary:     "Define a workflow",
			Description: "Registers a definition, or a new version of one. The body is the definition. Registering the newest version again changes nothing and answers 200.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req DefineRequest) (engine.DefineResult, error) {
			return h.cfg.Engine.Define(ctx, who.Principal, defineRequest(req.Definition))
		},
		about: func(_ DefineRequest, res engine.DefineResult) headers { return defined(res) },
	}
	PutDefinition = Operation[PutDefinitionRequest, engine.DefineResult]{
		Route: Route{
			Method: http.MethodPut, Path: "/v1/definitions/{name}", ID: "putDefinition", Tag: "definitions", Created: true, YAML: true,
			Summary:     "Define the workflow with this name",
			Description: "As define, for who wants to name it in the address: a definition with another name is refused.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req PutDefinitionRequest) (engine.DefineResult, error) {
			define := defineRequest(req.Definition)
			define.Name = req.Name
			return h.cfg.Engine.Define(ctx, who.Principal, define)
		},
		about: func(_ PutDefinitionRequest, res engine.DefineResult) headers { return defined(res) },
	}
	ListDefinitions = Operation[Empty, DefinitionList]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/definitions", ID: "listDefinitions", Tag: "definitions",
			Summary: "List the workflows", Description: "The newest version of every definition that the caller may see.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, _ Empty) (DefinitionList, error) {
			all, err := h.cfg.Engine.List(ctx, who.Principal)
			return DefinitionList{Workflows: all, Count: len(all)}, err
		},
	}
	GetDefinition = Operation[DefinitionRequest, engine.DefinitionView]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/definitions/{name}", ID: "getDefinition", Tag: "definitions",
			Summary: "Show a workflow", Description: "The definition: the newest version, the one with a number, or the one of a time. How its judge is set up (`withheld`) is told to who may change it, and to reviewers and auditors.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req DefinitionRequest) (engine.DefinitionView, error) {
			return h.cfg.Engine.DescribeAt(ctx, who.Principal, engine.DescribeRequest{Name: req.Name, Version: req.Version, When: engine.When{At: req.At}})
		},
	}
	DefinitionDiagram = Operation[DiagramRequest, engine.DiagramResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/definitions/{name}/diagram", ID: "definitionDiagram", Tag: "definitions",
			Summary: "Draw a workflow", Description: "The newest version as Mermaid or DOT.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req DiagramRequest) (engine.DiagramResult, error) {
			return h.cfg.Engine.Diagram(ctx, who.Principal, engine.DiagramRequest{Name: req.Name, Format: req.Format})
		},
	}
	GetJudge = Operation[NameRequest, JudgeView]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/definitions/{name}/judge", ID: "getJudge", Tag: "judge",
			Summary: "Show the judge configuration", Description: "What is in force for the caller's instances of the newest version.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req NameRequest) (JudgeView, error) {
			d, err := h.cfg.Engine.DescribeAt(ctx, who.Principal, engine.DescribeRequest{Name: req.Name})
			return JudgeView{Name: d.Name, Version: d.Version, Config: d.Judge}, err
		},
	}
	PatchJudge = Operation[JudgeRequest, engine.JudgeConfigResult]{
		Route: Route{
			Method: http.MethodPatch, Path: "/v1/definitions/{name}/judge", ID: "patchJudge", Tag: "judge",
			Summary:     "Change the judge configuration",
			Description: "Changes the members that are given, from the next decision on. On an operator's definition an agent may only tighten, and only for its own instances.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req JudgeRequest) (engine.JudgeConfigResult, error) {
			return h.cfg.Engine.ConfigureJudge(ctx, who.Principal, engine.JudgeConfigRequest{Name: req.Name, Settings: workflow.JudgeSettings{
				Enabled: req.Enabled, UseLLM: req.UseLLM, StrictMode: req.StrictMode, MinConfidence: req.MinConfidence, Model: req.Model, Shared: req.Shared,
			}})
		},
	}
)

// defineRequest names the document so that it is read as what it was sent as.
func defineRequest(d Document) engine.DefineRequest {
	source := "body.json"
	if d.Media == yamlType {
		source = "body.yaml"
	}
	return engine.DefineRequest{Source: source, Document: d.Bytes}
}

func defined(res engine.DefineResult) headers {
	if !res.Created {
		return headers{}
	}
	return headers{location: "/v1/definitions/" + url.PathEscape(res.Name) + "?version=" + strconv.Itoa(res.Version)}
}
