package face

import (
	"context"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
)

// promptFollow is the only prompt.
const promptFollow = "follow-workflow"

// addPrompt registers the prompt: how to follow a workflow to its end.
func (f *Face) addPrompt() {
	f.wire.Server.AddPrompt(mcp.NewPrompt(promptFollow,
		mcp.WithPromptDescription("Follow a workflow step by step to its end, without skipping steps or claiming unapproved ones."),
		mcp.WithArgument("type", mcp.ArgumentDescription("The workflow to start.")),
		mcp.WithArgument("id", mcp.ArgumentDescription("The instance to continue, instead of starting one.")),
	), func(ctx context.Context, req mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		begin, err := f.firstStep(ctx, req.Params.Arguments["type"], req.Params.Arguments["id"])
		if err != nil {
			return nil, f.newRPCError(ctx, "prompt "+promptFollow, err)
		}
		return mcp.NewGetPromptResult("Follow a workflow", []mcp.PromptMessage{
			mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent(begin+f.styleNames(ctx, followRules))),
		}), nil
	})
}

// firstStep returns the first step: continuing an instance, starting one of a workflow, or choosing a workflow.
func (f *Face) firstStep(ctx context.Context, workflow, id string) (string, error) {
	switch {
	case id != "":
		s, err := f.cfg.Engine.StatusAt(ctx, callerOf(ctx), id, engine.When{})
		if err != nil {
			return "", err //nolint:wrapcheck // explained by the caller
		}
		return fmt.Sprintf(f.styleNames(ctx, "Continue the instance %q of the workflow %q. %s Call workflow.status to see what each action requires."),
			s.ID, s.Workflow, s.Progress), nil
	case workflow != "":
		d, err := f.cfg.Engine.DescribeAt(ctx, callerOf(ctx), engine.DescribeRequest{Name: workflow})
		if err != nil {
			return "", err //nolint:wrapcheck // explained by the caller
		}
		about := strings.TrimSpace(fmt.Sprintf("Follow the workflow %q. %s", d.Name, d.Description))
		return about + fmt.Sprintf(f.styleNames(ctx, "\nStart it: call workflow.start with type %q."), d.Name), nil
	default:
		return f.styleNames(ctx, "Call workflow.list, choose the workflow that fits the task, and start it with workflow.start."), nil
	}
}

const followRules = `
Then, until complete is true:
1. Choose one of nextActions. Do its work first, for real.
2. Call workflow.advance with the action and, in data, the fields that next requires and what you did: names, numbers, results. If next lists writes, send no other field.
3. If the outcome is reject, nothing moved: fix exactly what the findings name and try again, or choose another action. Do not send the same data twice.
4. If it is escalate, a person must decide: say so, and continue with other legal actions only.
Set a checkpoint before a step that may go wrong. When you are unsure where you are, call workflow.status: the state it shows is the only truth. Never report a step as done that was not approved.`
