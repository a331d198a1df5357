package mcpface

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
)

const (
	scheme      = "workflow://"
	definitions = scheme + "definitions"
	instances   = scheme + "instances"
	reviews     = scheme + "reviews"
	typeJSON    = "application/json"
	typeMermaid = "text/vnd.mermaid"
)

// addResources offers what can be read without a tool call.
func (f *Face) addResources() {
	f.server.AddResource(
		mcp.NewResource(definitions, "Workflows", mcp.WithResourceDescription("Every defined workflow."), mcp.WithMIMEType(typeJSON)),
		f.reader(typeJSON, func(ctx context.Context, _ string) (string, error) {
			all, err := f.cfg.Engine.List(ctx, callerOf(ctx))
			return writeDocument(operation.DefinitionList{Workflows: all, Count: len(all)}, err)
		}))
	f.server.AddResource(
		mcp.NewResource(instances, "Instances", mcp.WithResourceDescription("Your instances, newest first."), mcp.WithMIMEType(typeJSON)),
		f.reader(typeJSON, func(ctx context.Context, _ string) (string, error) {
			return writeDocument(f.cfg.Engine.Instances(ctx, callerOf(ctx), engine.InstancesRequest{}))
		}))
	templates := []template{
		{definitions + "/{name}", "Workflow", "One workflow in full.", typeJSON, func(ctx context.Context, name string) (string, error) {
			return writeDocument(f.cfg.Engine.DescribeAt(ctx, callerOf(ctx), engine.DescribeRequest{Name: name}))
		}},
		{instances + "/{id}", "Instance", "Where an instance stands.", typeJSON, func(ctx context.Context, id string) (string, error) {
			return writeDocument(f.cfg.Engine.StatusAt(ctx, callerOf(ctx), id, engine.When{}))
		}},
		{instances + "/{id}/history", "Decisions", "The decisions about an instance, oldest first.", typeJSON, func(ctx context.Context, id string) (string, error) {
			return writeDocument(f.cfg.Engine.History(ctx, callerOf(ctx), engine.HistoryRequest{ID: id}))
		}},
		{instances + "/{id}/diagram", "Diagram", "The workflow with the instance's state and path marked.", typeMermaid, func(ctx context.Context, id string) (string, error) {
			d, err := f.cfg.Engine.Diagram(ctx, callerOf(ctx), engine.DiagramRequest{ID: id})
			return d.Diagram, err
		}},
	}
	if f.cfg.Reviews {
		templates = append(templates, template{reviews + "/{id}", "Review", "A move that waits for a person: what was asked, what keeps the judge from deciding, and how it ended.", typeJSON, func(ctx context.Context, id string) (string, error) {
			return writeDocument(f.cfg.Engine.Review(ctx, callerOf(ctx), id))
		}})
	}
	for _, t := range templates {
		f.server.AddResourceTemplate(
			mcp.NewResourceTemplate(t.uri, t.name, mcp.WithTemplateDescription(t.help), mcp.WithTemplateMIMEType(t.mime)),
			f.reader(t.mime, t.read))
	}
}

// template is a family of resources.
type template struct {
	uri, name, help, mime string
	read                  func(ctx context.Context, subject string) (string, error)
}

func writeDocument(v any, err error) (string, error) {
	if err != nil {
		return "", err
	}
	doc, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the resource: %w", err)
	}
	return string(doc), nil
}

// reader answers a read of workflow://KIND/SUBJECT[/VIEW] with what read says of
// the subject.
func (f *Face) reader(mime string, read func(context.Context, string) (string, error)) func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	return func(ctx context.Context, req mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		text, err := safely(ctx, read, subject(req.Params.URI))
		if err != nil {
			return nil, f.rpcNotFound(ctx, req.Params.URI, err)
		}
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: req.Params.URI, MIMEType: mime, Text: text}}, nil
	}
}

func safely(ctx context.Context, read func(context.Context, string) (string, error), subject string) (text string, err error) {
	defer caught(&err)
	return read(ctx, subject)
}

// subject is the second segment of a resource's path, unescaped.
func subject(uri string) string {
	segments := strings.Split(strings.TrimPrefix(uri, scheme), "/")
	if len(segments) < 2 {
		return ""
	}
	s, err := url.PathUnescape(segments[1])
	if err != nil {
		return segments[1]
	}
	return s
}

// rpcNotFound is rpc for a resource, for which older protocol versions have a code.
func (f *Face) rpcNotFound(ctx context.Context, what string, err error) error {
	e := f.rpc(ctx, what, err)
	switch engine.CodeOf(err) {
	case engine.CodeUnknownWorkflow, engine.CodeUnknownInstance, engine.CodeUnknownReview:
		if !server.IsModernRequest(ctx) {
			e.Code = codeNotFound
		}
	default: // the code says enough
	}
	return e
}

// rpc explains an error where the protocol has no result for it: prompts and
// completions.
func (f *Face) rpc(ctx context.Context, what string, err error) rpcError {
	e := f.explain(ctx, what, err)
	code := codeInvalidParams
	switch e.Code {
	case engine.CodeInternal, engine.CodeUnavailable, engine.CodeUntrustedRules, engine.CodeBusy, engine.CodeCancelled:
		code = codeInternal
	default: // what the client asked for is what is wrong
	}
	return rpcError{Code: code, Message: e.Error(), Data: rpcData{Code: string(e.Code), Message: e.Message, Hint: e.Hint}}
}
