package mcpface

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
)

// addPrompt offers the one prompt: how to follow a workflow to its end.
func (f *Face) addPrompt() {
	f.server.AddPrompt(mcp.NewPrompt("follow-workflow",
		mcp.WithPromptDescription("Follow a workflow step by step to its end, without skipping and without claiming what was not approved."),
		mcp.WithArgument("type", mcp.ArgumentDescription("The workflow to start.")),
		mcp.WithArgument("id", mcp.ArgumentDescription("The instance to go on with, instead of starting one.")),
	), func(ctx context.Context, req mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		begin := "Call workflow.list, choose the workflow that fits the task, and start it with workflow.start."
		if t := req.Params.Arguments["type"]; t != "" {
			if _, err := f.cfg.Engine.Describe(ctx, f.cfg.Principal, t, 0); err != nil {
				return nil, f.resourceError(ctx, "prompt follow-workflow", err)
			}
			begin = fmt.Sprintf("Call workflow.describe with name %q to see what each action demands, then workflow.start with type %q.", t, t)
		}
		if id := req.Params.Arguments["id"]; id != "" {
			if _, err := f.cfg.Engine.Status(ctx, f.cfg.Principal, id); err != nil {
				return nil, f.resourceError(ctx, "prompt follow-workflow", err)
			}
			begin = fmt.Sprintf("Call workflow.status with id %q to see where it stands.", id)
		}
		return mcp.NewGetPromptResult("Follow a workflow", []mcp.PromptMessage{
			mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent(begin+followRules)),
		}), nil
	})
}

const followRules = `
Then, until complete is true:
1. Choose one of nextActions. Do the work that it stands for first, for real.
2. Call workflow.advance with the action and, in data, what you did and its evidence.
3. If the answer is REJECTED, nothing moved: mend exactly what the violations name and try again, or choose another action. Do not send the same data twice.
4. If it is ESCALATED, a person must decide: say so, and go on with other legal actions only.
Set a checkpoint before a step that may go wrong. When you are unsure where you are, call workflow.status: the state it shows is the only truth. Never report a step as done that was not approved.`
