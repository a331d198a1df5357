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
	if prompt != promptFollow {
		return &mcp.Completion{}, nil
	}
	switch a.Name {
	case "type":
		return c.workflows(ctx, a.Value)
	case "id":
		return c.instances(ctx, chosen.Arguments["type"], a.Value)
	}
	return &mcp.Completion{}, nil
}

// CompleteResourceArgument completes the {name} and {id} of a resource template.
func (c completer) CompleteResourceArgument(ctx context.Context, uri string, a mcp.CompleteArgument, _ mcp.CompleteContext) (*mcp.Completion, error) {
	switch {
	case a.Name == "name" && strings.HasPrefix(uri, definitions):
		return c.workflows(ctx, a.Value)
	case a.Name == "id" && strings.HasPrefix(uri, instances):
		return c.instances(ctx, "", a.Value)
	}
	return &mcp.Completion{}, nil
}

func (c completer) workflows(ctx context.Context, prefix string) (*mcp.Completion, error) {
	all, err := c.face.cfg.Engine.List(ctx, c.face.cfg.Principal)
	if err != nil {
		return nil, c.face.rpc(ctx, "completion", err)
	}
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = d.Name
	}
	return starting(names, prefix), nil
}

// completionPage is how many of the newest instances are looked at.
const completionPage = 500

func (c completer) instances(ctx context.Context, workflow, prefix string) (*mcp.Completion, error) {
	page, err := c.face.cfg.Engine.Instances(ctx, c.face.cfg.Principal, engine.InstancesRequest{Workflow: workflow, Limit: completionPage})
	if err != nil {
		return nil, c.face.rpc(ctx, "completion", err)
	}
	ids := make([]string, len(page.Instances))
	for i, instance := range page.Instances {
		ids[i] = instance.ID
	}
	out := starting(ids, prefix)
	out.HasMore = out.HasMore || page.NextCursor != ""
	return out, nil
}

// starting are the values with the prefix, at most as many as the protocol takes.
func starting(values []string, prefix string) *mcp.Completion {
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
