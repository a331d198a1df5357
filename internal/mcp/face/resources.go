package face

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
)

const (
	scheme      = "workflow://"
	definitions = scheme + "definitions"
	instances   = scheme + "instances"
	reviews     = scheme + "reviews"
	typeJSON    = "application/json"
	typeMermaid = "text/vnd.mermaid"
	typeSVG     = "image/svg+xml"
)

// addResources registers what clients can read without a tool call.
func (f *Face) addResources() {
	f.wire.Server.AddResource(
		mcp.NewResource(definitions, "Workflows", mcp.WithResourceDescription("Every defined workflow."), mcp.WithMIMEType(typeJSON)),
		f.reader(typeJSON, func(ctx context.Context, _ string) (string, error) {
			all, err := f.cfg.Engine.List(ctx, callerOf(ctx))
			return writeDocument(operation.DefinitionList{Workflows: all, Count: len(all)}, err)
		}))
	f.wire.Server.AddResource(
		mcp.NewResource(instances, "Instances", mcp.WithResourceDescription("Your instances, newest first."), mcp.WithMIMEType(typeJSON)),
		f.reader(typeJSON, func(ctx context.Context, _ string) (string, error) {
			return writeDocument(f.cfg.Engine.Instances(ctx, callerOf(ctx), engine.InstancesRequest{}))
		}))
	templates := []template{
		{definitions + "/{name}", "Workflow", "One workflow in full.", typeJSON, func(ctx context.Context, name string) (string, error) {
			return writeDocument(f.cfg.Engine.DescribeAt(ctx, callerOf(ctx), engine.DescribeRequest{Name: name}))
		}},
		{instances + "/{id}", "Instance", "The current state of an instance.", typeJSON, func(ctx context.Context, id string) (string, error) {
			return writeDocument(f.cfg.Engine.StatusAt(ctx, callerOf(ctx), id, engine.When{}))
		}},
		{instances + "/{id}/history", "Decisions", "The decisions about an instance, oldest first.", typeJSON, func(ctx context.Context, id string) (string, error) {
			return writeDocument(f.cfg.Engine.History(ctx, callerOf(ctx), engine.HistoryRequest{ID: id}))
		}},
		{instances + "/{id}/diagram", "Diagram", "The workflow with the instance's state and path marked.", typeMermaid, func(ctx context.Context, id string) (string, error) {
			d, err := f.cfg.Engine.Diagram(ctx, callerOf(ctx), engine.DiagramRequest{ID: id})
			return d.Diagram, err
		}},
		{instances + "/{id}/diagram.svg", "Drawing", "The same as an image, with refusals and possible next actions.", typeSVG, func(ctx context.Context, id string) (string, error) {
			d, err := f.cfg.Engine.Diagram(ctx, callerOf(ctx), engine.DiagramRequest{ID: id, Format: "svg"})
			return d.Diagram, err
		}},
	}
	if f.cfg.Reviews {
		templates = append(templates, template{reviews + "/{id}", "Review", "A move that waits for a person: the request, why the judge did not decide, and how the review ended.", typeJSON, func(ctx context.Context, id string) (string, error) {
			return writeDocument(f.cfg.Engine.Review(ctx, callerOf(ctx), id))
		}})
	}
	for _, t := range templates {
		f.wire.Server.AddResourceTemplate(
			mcp.NewResourceTemplate(t.uri, t.name, mcp.WithTemplateDescription(t.help), mcp.WithTemplateMIMEType(t.mime)),
			f.reader(t.mime, t.read))
	}
}

// template is a resource template.
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

// reader handles reads of workflow://KIND/SUBJECT[/VIEW] by calling read with the subject.
func (f *Face) reader(mime string, read func(context.Context, string) (string, error)) func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	return func(ctx context.Context, req mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		text, err := read(ctx, subjectOf(req.Params.URI))
		if err != nil {
			return nil, f.Explain(ctx, req.Params.URI, err)
		}
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: req.Params.URI, MIMEType: mime, Text: text}}, nil
	}
}

// subjectOf returns the second segment of a resource's path, unescaped.
func subjectOf(uri string) string {
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

// Look returns the position of a resource. It returns an error if the resource does not exist or cannot be subscribed
// to.
func (f *Face) Look(ctx context.Context, uri string) (s wire.ResourcePosition, err error) {
	defer recoverError(&err)
	kind, _, _ := strings.Cut(strings.TrimPrefix(uri, scheme), "/")
	id := subjectOf(uri)
	s.Until = map[string]time.Time{}
	var reviews []engine.ReviewSummary
	switch {
	case id == "" || !strings.HasPrefix(uri, scheme) || !isSubscribable(uri):
	case kind == "instances":
		r, err := f.cfg.Engine.StatusAt(ctx, callerOf(ctx), id, engine.When{})
		if err != nil {
			return s, err //nolint:wrapcheck // explained by the caller
		}
		s.Instance, s.Seq, reviews = id, r.Seq, r.Reviews
	case kind == "reviews" && f.cfg.Reviews:
		r, err := f.cfg.Engine.Review(ctx, callerOf(ctx), id)
		if err != nil {
			return s, err //nolint:wrapcheck // explained by the caller
		}
		s.Instance, s.Review, s.Seq, reviews = r.Instance, id, r.Position.Seq, []engine.ReviewSummary{r.ReviewSummary}
	}
	if s.Instance == "" {
		return s, &engine.Error{
			Code: engine.CodeInvalidArgument, Path: "/uri", Message: fmt.Sprintf("Clients cannot subscribe to the resource %.200q.", uri),
			Hint: "They can subscribe to an instance (workflow://instances/{id}), its history, its diagram, and a review.",
		}
	}
	for _, r := range reviews {
		if r.Status == record.ReviewOpen && time.Now().Before(r.ExpiresAt) {
			s.Until[r.ID] = r.ExpiresAt
		}
	}
	return s, nil
}

// isSubscribable reports whether a URI has the form of a resource that clients can subscribe to.
func isSubscribable(uri string) bool {
	segments := strings.Split(strings.TrimPrefix(uri, scheme), "/")
	switch len(segments) {
	case 2:
		return true
	case 3:
		return segments[0] == "instances" && slices.Contains([]string{"history", "diagram", "diagram.svg"}, segments[2])
	default:
		return false
	}
}

// Feed returns the feed of events for subscribers.
func (f *Face) Feed() *engine.Feed { return f.cfg.Engine.Feed() }

// Explain converts an error about a resource, for which older protocol versions have a special code.
func (f *Face) Explain(ctx context.Context, what string, err error) *wire.Error {
	e := f.newRPCError(ctx, what, err)
	switch engine.CodeOf(err) {
	case engine.CodeUnknownWorkflow, engine.CodeUnknownInstance, engine.CodeUnknownReview:
		if !wire.ClientOf(ctx).Modern {
			e.Code = mcp.RESOURCE_NOT_FOUND
		}
	default: // the code is specific enough
	}
	return e
}

// newRPCError converts an error where the protocol has no error result: for prompts and completions.
func (f *Face) newRPCError(ctx context.Context, what string, err error) *wire.Error {
	e := f.explain(ctx, what, err)
	code := mcp.INVALID_PARAMS
	switch e.Code {
	case engine.CodeInternal, engine.CodeUnavailable, engine.CodeUntrustedRules, engine.CodeValuesUnreadable, engine.CodeBusy, engine.CodeCancelled:
		code = mcp.INTERNAL_ERROR
	default: // the request itself is wrong
	}
	return rpcError(code, string(e.Code), e.Message, e.Hint)
}

func rpcError(code int, name, message, hint string) *wire.Error {
	return &wire.Error{Code: code, Message: strings.TrimSpace(message + " " + hint), Data: wire.ErrorData{Code: name, Message: message, Hint: hint}}
}
