package face

import (
	"context"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
)

// completer completes names and ids that a person types: the arguments of the prompt, and the variables of the
// resources.
type completer struct{ face *Face }

// CompletePromptArgument completes the prompt's type and id. If a type is chosen, it completes only ids of its
// instances.
func (c completer) CompletePromptArgument(ctx context.Context, prompt string, a mcp.CompleteArgument, chosen mcp.CompleteContext) (*mcp.Completion, error) {
	switch {
	case prompt == promptFollow && a.Name == "type":
		return c.workflows(ctx, a.Value)
	case prompt == promptFollow && a.Name == "id":
		return c.instances(ctx, a.Value, chosen.Arguments["type"])
	}
	return &mcp.Completion{}, nil
}

// CompleteResourceArgument completes {name} and {id} of a resource template.
func (c completer) CompleteResourceArgument(ctx context.Context, uri string, a mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	switch {
	case a.Name == "name" && strings.HasPrefix(uri, definitions):
		return c.workflows(ctx, a.Value)
	case a.Name == "id" && strings.HasPrefix(uri, instances):
		return c.instances(ctx, a.Value, "")
	case a.Name == "id" && strings.HasPrefix(uri, reviews):
		page, err := c.face.cfg.Engine.Reviews(ctx, callerOf(ctx), engine.ReviewsRequest{Limit: completionPage})
		return completePrefix(ctx, c.face, a.Value, page.Reviews, func(r engine.ReviewSummary) string { return r.ID }, page.NextCursor, err)
	}
	return &mcp.Completion{}, nil
}

func (c completer) workflows(ctx context.Context, prefix string) (*mcp.Completion, error) {
	all, err := c.face.cfg.Engine.List(ctx, callerOf(ctx))
	return completePrefix(ctx, c.face, prefix, all, func(d engine.DefinitionSummary) string { return d.Name }, "", err)
}

// completionPage is the number of the newest instances or reviews that completion examines.
const completionPage = 500

func (c completer) instances(ctx context.Context, prefix, workflow string) (*mcp.Completion, error) {
	page, err := c.face.cfg.Engine.Instances(ctx, callerOf(ctx), engine.InstancesRequest{Workflow: workflow, Limit: completionPage})
	return completePrefix(ctx, c.face, prefix, page.Instances, func(i engine.InstanceSummary) string { return i.ID }, page.NextCursor, err)
}

// completePrefix returns the listed names with the prefix, at most as many as the protocol allows.
func completePrefix[T any](ctx context.Context, f *Face, prefix string, listed []T, name func(T) string, next string, err error) (*mcp.Completion, error) {
	if err != nil {
		return nil, f.newRPCError(ctx, "completion", err)
	}
	const most = 100
	out := &mcp.Completion{}
	for _, one := range listed {
		if !strings.HasPrefix(name(one), prefix) {
			continue
		}
		if out.Total++; len(out.Values) < most {
			out.Values = append(out.Values, name(one))
		}
	}
	out.HasMore = out.Total > len(out.Values) || next != ""
	return out, nil
}
