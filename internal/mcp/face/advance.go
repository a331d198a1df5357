package face

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

// advance performs an action. If the move was just parked and an operator allowed it, advance asks a person through the
// client. Clients that use a modern protocol version repeat the call with the answer.
func (f *Face) advance(ctx context.Context, raw json.RawMessage, again mcp.MultiRoundTripParams, req engine.AdvanceRequest) (*mcp.CallToolResult, error) {
	repeated := again.RequestState != "" || len(again.InputResponses) > 0
	if repeated && f.cfg.Elicit {
		switch t, err := f.elicitations.redeem(ctx, again.RequestState, callBinding(callerOf(ctx).ID, raw)); {
		case err == nil:
			return f.resumeCall(ctx, t, again.InputResponses)
		case !errors.Is(err, clientstate.ErrState):
			return nil, engine.StoreError("take the answer", err)
		}
	}
	r, err := f.cfg.Engine.Advance(ctx, callerOf(ctx), req)
	switch {
	case err != nil:
		return nil, err
	case r.Review == nil || r.Review.Status != record.ReviewOpen || !f.cfg.Elicit:
		return f.newAdvanceResult(ctx, r, "")
	case repeated:
		return f.newAdvanceResult(ctx, r, "The answer in the call does not belong to an open question.")
	default:
		return f.askPerson(ctx, raw, r)
	}
}

// newAdvanceResult returns the outcome of a move, with a note on the question to a person.
func (f *Face) newAdvanceResult(ctx context.Context, r engine.AdvanceResult, note string) (*mcp.CallToolResult, error) {
	refused := operation.Advance.Refused(r)
	if r.Note = note; r.Review != nil {
		refused = r.Review.Status != record.ReviewResolved || r.Review.Decision != judge.Approve
		r.Review.Next = f.styleNames(ctx, r.Review.Next)
		if r.Replayed && r.Review.Status != record.ReviewOpen { // the rest of the answer describes the time when the review ended
			r.Note = strings.TrimSpace(note + " " + f.styleNames(ctx, "The review has ended; workflow.status shows the current state of the instance."))
		}
	}
	return f.newResult(operation.Advance.Show(r), refused)
}

// statusTools names the tools that show the outcome of a review.
func (f *Face) statusTools() string {
	if f.tools.named[operation.Reviews.Tool.Name] != nil {
		return operation.Status.Tool.Name + " or " + operation.Reviews.Tool.Name
	}
	return operation.Status.Tool.Name
}

// askPerson asks a person about a parked move through the client, if that is possible. The answer then shows the
// person's decision; otherwise it shows that the move waits.
func (f *Face) askPerson(ctx context.Context, raw json.RawMessage, r engine.AdvanceResult) (*mcp.CallToolResult, error) {
	client := wire.ClientOf(ctx)
	if !hasForms(client.Capabilities) {
		return f.newAdvanceResult(ctx, r, "")
	}
	view, err := f.cfg.Engine.Review(ctx, callerOf(ctx), r.Review.ID)
	if err != nil || view.Status != record.ReviewOpen || view.Risk == judge.RiskHigh ||
		!f.elicitations.canAsk(ctx, view.Instance, view.Action, view.ReviewSummary.Revision) {
		return f.newAdvanceResult(ctx, r, "") // the move is parked, even if the form cannot be shown
	}
	if client.Modern {
		state, err := f.elicitations.issue(ctx, view.ID, view.ReviewSummary.Revision, callBinding(callerOf(ctx).ID, raw))
		if err != nil {
			return f.newAdvanceResult(ctx, r, "") // the move is parked
		}
		return server.NewInputRequestBuilder(state).Elicit(formKey, reviewForm(view)).ToolResult(), nil
	}
	limited, cancel := context.WithTimeout(ctx, f.cfg.ElicitTimeout)
	defer cancel()
	reply, err := wire.Ask(limited, string(mcp.MethodElicitationCreate), reviewForm(view))
	if err != nil {
		return f.newAdvanceResult(ctx, r, "A person was asked through the client, but there was no answer.") // the review stays open
	}
	return f.resolveReply(ctx, view, reply)
}

// resumeCall continues a call that was answered with a form.
func (f *Face) resumeCall(ctx context.Context, t elicitationState, replies mcp.InputResponses) (*mcp.CallToolResult, error) {
	view, err := f.cfg.Engine.Review(ctx, callerOf(ctx), t.Review)
	if err != nil {
		return nil, err
	}
	if view.Status != record.ReviewOpen || view.ReviewSummary.Revision != t.Revision {
		return f.newReviewResult(ctx, view, view.Escalation.Decision, "")
	}
	raw, err := json.Marshal(replies[formKey])
	if err != nil {
		raw = nil // unusable
	}
	return f.resolveReply(ctx, view, raw)
}

// resolveReply carries out a person's answer. An unclear answer leaves the move parked.
func (f *Face) resolveReply(ctx context.Context, view engine.ReviewView, raw json.RawMessage) (*mcp.CallToolResult, error) {
	word, err := readForm(raw)
	switch {
	case err != nil:
		return f.newReviewResult(ctx, view, view.Escalation.Decision, "The client's answer does not match the form.")
	case word.decision == "":
		return f.newReviewResult(ctx, view, view.Escalation.Decision, "The person asked through the client did not decide it.")
	}
	person := engine.Principal{ID: string(record.ChannelClient) + ":" + callerOf(ctx).ID, Role: engine.RoleReviewer}
	r, err := f.cfg.Engine.Resolve(ctx, person, engine.ResolveRequest{
		ID: view.ID, Decision: word.decision, Reason: word.reason, Channel: record.ChannelClient,
	})
	if err != nil {
		return f.newReviewResult(ctx, view, view.Escalation.Decision, "The person's decision could not be carried out: "+f.explain(ctx, "workflow.advance", err).Message)
	}
	if r.Decision.Outcome == "" { // the review was void before it was judged
		return f.newReviewResult(ctx, view, view.Escalation.Decision, "")
	}
	return f.newReviewResult(ctx, view, r.Decision, "")
}

// newReviewResult answers with the present state of a review.
func (f *Face) newReviewResult(ctx context.Context, was engine.ReviewView, d engine.Decision, note string) (*mcp.CallToolResult, error) {
	now, err := f.cfg.Engine.Review(ctx, callerOf(ctx), was.ID)
	if err != nil {
		return nil, err
	}
	return f.newAdvanceResult(ctx, engine.AdvanceResult{
		Position: now.Position, From: was.From, Action: was.Action, Decision: d, Review: &now.ReviewSummary,
	}, note)
}
