package mcpface

import (
	"context"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
)

// completer offers names and ids while a person types them: the arguments of the
// prompt, and the variables of the resources.
type completer struct{ face *Face }

// CompletePromptArgument completes the prompt's type and id. An instance's id is
// completed for the chosen type only.
func (c completer) CompletePromptArgument(ctx context.Context, prompt string, a mcp.CompleteArgument, chosen mcp.CompleteContext) (*mcp.Completion, error) {
	switch {
	case prompt != promptFollow:
	case a.Name == "type":
		return c.complete(ctx, a.Value, c.workflows)
	case a.Name == "id":
		return c.complete(ctx, a.Value, func(ctx context.Context) ([]string, bool, error) {
			return c.instances(ctx, chosen.Arguments["type"])
		})
	}
	return &mcp.Completion{}, nil
}

// CompleteResourceArgument completes the {name} and {id} of a resource template.
func (c completer) CompleteResourceArgument(ctx context.Context, uri string, a mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	switch {
	case a.Name == "name" && strings.HasPrefix(uri, definitions):
		return c.complete(ctx, a.Value, c.workflows)
	case a.Name == "id" && strings.HasPrefix(uri, instances):
		return c.complete(ctx, a.Value, func(ctx context.Context) ([]string, bool, error) { return c.instances(ctx, "") })
	case a.Name == "id" && strings.HasPrefix(uri, reviews):
		return c.complete(ctx, a.Value, c.reviews)
	}
	return &mcp.Completion{}, nil
}

// finder returns values to choose from, and whether there are more of them.
type finder func(context.Context) (values []string, more bool, err error)

func (c completer) complete(ctx context.Context, prefix string, find finder) (*mcp.Completion, error) {
	values, more, err := find.find(ctx)
	if err != nil {
		return nil, c.face.rpc(ctx, "completion", err)
	}
	out := completeWith(values, prefix)
	out.HasMore = out.HasMore || more
	return out, nil
}

func (f finder) find(ctx context.Context) (values []string, more bool, err error) {
	defer recoverError(&err)
	return f(ctx)
}

func (c completer) workflows(ctx context.Context) ([]string, bool, error) {
	all, err := c.face.cfg.Engine.List(ctx, callerOf(ctx))
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = d.Name
	}
	return names, false, err //nolint:wrapcheck // explained by the caller
}

// completionPage is how many of the newest instances are looked at.
const completionPage = 500

func (c completer) instances(ctx context.Context, workflow string) ([]string, bool, error) {
	page, err := c.face.cfg.Engine.Instances(ctx, callerOf(ctx), engine.InstancesRequest{Workflow: workflow, Limit: completionPage})
	ids := make([]string, len(page.Instances))
	for i, instance := range page.Instances {
		ids[i] = instance.ID
	}
	return ids, page.NextCursor != "", err //nolint:wrapcheck // explained by the caller
}

// reviews are those that wait.
func (c completer) reviews(ctx context.Context) ([]string, bool, error) {
	page, err := c.face.cfg.Engine.Reviews(ctx, callerOf(ctx), engine.ReviewsRequest{Limit: completionPage})
	ids := make([]string, len(page.Reviews))
	for i, r := range page.Reviews {
		ids[i] = r.ID
	}
	return ids, page.NextCursor != "", err //nolint:wrapcheck // explained by the caller
}

// completeWith are the values with the prefix, at most as many as the protocol takes.
func completeWith(values []string, prefix string) *mcp.Completion {
	const most = 100
	out := &mcp.Completion{}
	for _, v := range values {
		if !strings.HasPrefix(v, prefix) {
			continue
		}
		if out.Total++; len(out.Values) < most {
			out.Values = append(out.Values, v)
		}
	}
	out.HasMore = out.Total > len(out.Values)
	return out
}
