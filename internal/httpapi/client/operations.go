package client

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/httpapi"
)

// WhoAmI says who the server takes the caller for.
func (c *Client) WhoAmI(ctx context.Context) (httpapi.WhoAmI, error) {
	return call(ctx, c, httpapi.Who, httpapi.Empty{})
}

// Define is engine.Define. A source whose name ends in .yaml or .yml is sent as YAML.
func (c *Client) Define(ctx context.Context, _ engine.Principal, req engine.DefineRequest) (engine.DefineResult, error) {
	return call(ctx, c, httpapi.Define, httpapi.DefineRequest{Definition: httpapi.DocumentOf(req.Source, req.Document)})
}

// List is engine.List.
func (c *Client) List(ctx context.Context, _ engine.Principal) ([]engine.DefinitionSummary, error) {
	r, err := call(ctx, c, httpapi.ListDefinitions, httpapi.Empty{})
	return r.Workflows, err
}

// Describe is engine.Describe.
func (c *Client) Describe(ctx context.Context, p engine.Principal, name string, version int) (engine.DefinitionView, error) {
	return c.DescribeAt(ctx, p, engine.DescribeRequest{Name: name, Version: version})
}

// DescribeAt is engine.DescribeAt.
func (c *Client) DescribeAt(ctx context.Context, _ engine.Principal, req engine.DescribeRequest) (engine.DefinitionView, error) {
	if req.ID != "" {
		return call(ctx, c, httpapi.InstanceDefinition, httpapi.InstanceRequest{ID: req.ID, Revision: req.Revision, At: req.At})
	}
	return call(ctx, c, httpapi.GetDefinition, httpapi.DefinitionRequest{Name: req.Name, Version: req.Version, At: req.At})
}

// ConfigureJudge is engine.ConfigureJudge, of the settings that can be changed so.
func (c *Client) ConfigureJudge(ctx context.Context, _ engine.Principal, req engine.JudgeConfigRequest) (engine.JudgeConfigResult, error) {
	s := req.Settings
	return call(ctx, c, httpapi.PatchJudge, httpapi.JudgeRequest{
		Name: req.Name, Enabled: s.Enabled, UseLLM: s.UseLLM, StrictMode: s.StrictMode, MinConfidence: s.MinConfidence, Model: s.Model,
	})
}

// Diagram is engine.Diagram.
func (c *Client) Diagram(ctx context.Context, _ engine.Principal, req engine.DiagramRequest) (engine.DiagramResult, error) {
	if req.ID != "" {
		return call(ctx, c, httpapi.InstanceDiagram, httpapi.InstanceDiagramRequest{ID: req.ID, Format: req.Format})
	}
	return call(ctx, c, httpapi.DefinitionDiagram, httpapi.DiagramRequest{Name: req.Name, Format: req.Format})
}

// Start is engine.Start.
func (c *Client) Start(ctx context.Context, _ engine.Principal, req engine.StartRequest) (engine.StartResult, error) {
	return call(ctx, c, httpapi.Start, httpapi.StartRequest{Key: req.Key, Type: req.Type, Context: req.Context})
}

// Advance is engine.Advance.
func (c *Client) Advance(ctx context.Context, _ engine.Principal, req engine.AdvanceRequest) (engine.AdvanceResult, error) {
	return call(ctx, c, httpapi.Advance, httpapi.AdvanceRequest{
		ID: req.ID, Key: req.Key, ExpectedRevision: req.ExpectedRevision, Action: req.Action, Data: req.Data,
	})
}

// Validate is engine.Validate.
func (c *Client) Validate(ctx context.Context, _ engine.Principal, req engine.AdvanceRequest) (engine.ValidateResult, error) {
	return call(ctx, c, httpapi.Validate, httpapi.ValidateRequest{ID: req.ID, ExpectedRevision: req.ExpectedRevision, Action: req.Action, Data: req.Data})
}

// Decide is engine.Decide. A definition that comes with the request is to be JSON.
func (c *Client) Decide(ctx context.Context, _ engine.Principal, req engine.DecideRequest) (engine.DecideResult, error) {
	return call(ctx, c, httpapi.Decide, httpapi.DecideRequest{
		Key: req.Key, Workflow: req.Workflow, Version: req.Version, Definition: req.Definition,
		State: req.State, Action: req.Action, Data: req.Data, Context: req.Context,
	})
}

// Status is engine.Status.
func (c *Client) Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error) {
	return c.StatusAt(ctx, p, id, engine.When{})
}

// StatusAt is engine.StatusAt.
func (c *Client) StatusAt(ctx context.Context, _ engine.Principal, id string, w engine.When) (engine.StatusResult, error) {
	return call(ctx, c, httpapi.GetInstance, httpapi.InstanceRequest{ID: id, Revision: w.Revision, At: w.At})
}

// CanExecute is engine.CanExecute.
func (c *Client) CanExecute(ctx context.Context, _ engine.Principal, id string, states []string) (engine.CanExecuteResult, error) {
	return call(ctx, c, httpapi.CanExecute, httpapi.CanExecuteRequest{ID: id, States: states})
}

// Cancel is engine.Cancel.
func (c *Client) Cancel(ctx context.Context, _ engine.Principal, req engine.CancelRequest) (engine.CancelResult, error) {
	return call(ctx, c, httpapi.Cancel, httpapi.CancelRequest{ID: req.ID, Key: req.Key, ExpectedRevision: req.ExpectedRevision, Reason: req.Reason})
}

// Undo is engine.Undo.
func (c *Client) Undo(ctx context.Context, _ engine.Principal, req engine.UndoRequest) (engine.UndoResult, error) {
	return call(ctx, c, httpapi.Undo, httpapi.UndoRequest{ID: req.ID, Key: req.Key, ExpectedRevision: req.ExpectedRevision})
}

// Redo is engine.Redo.
func (c *Client) Redo(ctx context.Context, _ engine.Principal, req engine.UndoRequest) (engine.UndoResult, error) {
	return call(ctx, c, httpapi.Redo, httpapi.UndoRequest{ID: req.ID, Key: req.Key, ExpectedRevision: req.ExpectedRevision})
}

// Checkpoint is engine.Checkpoint.
func (c *Client) Checkpoint(ctx context.Context, _ engine.Principal, req engine.CheckpointRequest) (engine.CheckpointResult, error) {
	return call(ctx, c, httpapi.Checkpoint, httpapi.CheckpointRequest{ID: req.ID, Key: req.Key, Description: req.Description, Metadata: req.Metadata})
}

// ListCheckpoints is engine.ListCheckpoints.
func (c *Client) ListCheckpoints(ctx context.Context, _ engine.Principal, id string) (engine.CheckpointsResult, error) {
	return call(ctx, c, httpapi.ListCheckpoints, httpapi.IDRequest{ID: id})
}

// Rollback is engine.Rollback.
func (c *Client) Rollback(ctx context.Context, _ engine.Principal, req engine.RollbackRequest) (engine.RollbackResult, error) {
	return call(ctx, c, httpapi.Rollback, httpapi.RollbackRequest{ID: req.ID, Key: req.Key, ExpectedRevision: req.ExpectedRevision, CheckpointID: req.CheckpointID})
}

// Instances is engine.Instances.
func (c *Client) Instances(ctx context.Context, _ engine.Principal, req engine.InstancesRequest) (engine.InstancesResult, error) {
	return call(ctx, c, httpapi.ListInstances, httpapi.InstancesRequest{
		Workflow: req.Workflow, State: req.State, Status: req.Status, Cursor: req.Cursor, Limit: req.Limit,
	})
}

func historyRequest(req engine.HistoryRequest) httpapi.HistoryRequest {
	return httpapi.HistoryRequest{ID: req.ID, After: req.AfterSeq, Limit: req.Limit, Revision: req.Until.Revision, At: req.Until.At}
}

// History is engine.History.
func (c *Client) History(ctx context.Context, _ engine.Principal, req engine.HistoryRequest) (engine.HistoryResult, error) {
	return call(ctx, c, httpapi.History, historyRequest(req))
}

// Timeline is engine.Timeline.
func (c *Client) Timeline(ctx context.Context, _ engine.Principal, req engine.HistoryRequest) (engine.TimelineResult, error) {
	return call(ctx, c, httpapi.Timeline, historyRequest(req))
}

// Tail is engine.Tail, as a page.
func (c *Client) Tail(ctx context.Context, _ engine.Principal, req engine.TailRequest) (engine.TailResult, error) {
	if req.WorkflowID != "" {
		return call(ctx, c, httpapi.InstanceEvents, httpapi.InstanceEventsRequest{ID: req.WorkflowID, After: &req.After, Limit: req.Limit})
	}
	return call(ctx, c, httpapi.Events, httpapi.EventsRequest{Workflow: req.Workflow, After: &req.After, Limit: req.Limit})
}

// Decisions is engine.Decisions.
func (c *Client) Decisions(ctx context.Context, _ engine.Principal, req engine.DecisionsRequest) (engine.DecisionsResult, error) {
	q := req.Query
	ask := httpapi.DecisionsRequest{
		Workflow: q.Workflow, Instance: q.Instance, Owner: q.Owner, Principal: q.Principal, Action: q.Action,
		Outcome: q.Outcome, DecidedBy: q.DecidedBy, Assurance: q.Assurance, Code: q.Code, Degraded: q.Degraded,
		MinConfidence: q.MinConfidence, MaxConfidence: q.MaxConfidence, Since: q.Since, Until: q.Until, Text: q.Text,
		Cursor: req.Cursor, Limit: req.Limit,
	}
	for _, k := range q.Kinds {
		ask.Kinds = append(ask.Kinds, string(k))
	}
	return call(ctx, c, httpapi.Decisions, ask)
}

// Statistics is engine.Statistics.
func (c *Client) Statistics(ctx context.Context, _ engine.Principal, req engine.StatisticsRequest) (engine.StatisticsResult, error) {
	return call(ctx, c, httpapi.Statistics, httpapi.StatisticsRequest{Workflow: req.Workflow, Since: req.Since, Until: req.Until})
}

// Reviews is engine.Reviews.
func (c *Client) Reviews(ctx context.Context, _ engine.Principal, req engine.ReviewsRequest) (engine.ReviewsResult, error) {
	return call(ctx, c, httpapi.ListReviews, httpapi.ReviewsRequest{
		Status: req.Status, Instance: req.WorkflowID, Workflow: req.Workflow, Cursor: req.Cursor, Limit: req.Limit,
	})
}

// Review is engine.Review.
func (c *Client) Review(ctx context.Context, _ engine.Principal, id string) (engine.ReviewView, error) {
	return call(ctx, c, httpapi.GetReview, httpapi.ReviewRequest{ID: id})
}

// Resolve is engine.Resolve. The channel is not sent: it is record.ChannelAPI.
func (c *Client) Resolve(ctx context.Context, _ engine.Principal, req engine.ResolveRequest) (engine.ResolveResult, error) {
	return call(ctx, c, httpapi.Resolve, httpapi.ResolveRequest{ID: req.ID, Key: req.Key, Decision: req.Decision, Reason: req.Reason})
}
