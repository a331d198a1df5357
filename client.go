package gavel

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/httpapi/client"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// Client asks as one principal: a System of this program, or a server. Errors are *engine.Error
// either way, and a refusal is none.
type Client struct {
	operation.Caller
	close func()
}

// As returns a Client that asks the System as p, who the program vouches for.
func (s *System) As(p engine.Principal) *Client {
	return &Client{operation.Call{Engine: s.Engine, Caller: auth.Identity{Principal: p, Kind: auth.KindProgram}, Sources: s.listSources}, func() {}}
}

// ClientConfig names a server, and the token that says who asks.
type ClientConfig = client.Config

// Dial returns a Client of the server: gavel serve, or a Handler. It does not connect yet.
func Dial(cfg ClientConfig) (*Client, error) {
	c, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{c, c.Close}, nil
}

// Close lets go of connections.
func (c *Client) Close() { c.close() }

// Define adds a workflow, or a version of one.
func (c *Client) Define(ctx context.Context, r engine.DefineRequest) (engine.DefineResult, error) {
	return operation.Define.Do(ctx, c, r)
}

// List lists the workflows.
func (c *Client) List(ctx context.Context) ([]engine.DefinitionSummary, error) {
	list, err := operation.List.Do(ctx, c, operation.Empty{})
	return list.Workflows, err
}

// Describe shows a workflow.
func (c *Client) Describe(ctx context.Context, r engine.DescribeRequest) (engine.DefinitionView, error) {
	return operation.Describe.Do(ctx, c, r)
}

// Start starts an instance.
func (c *Client) Start(ctx context.Context, r engine.StartRequest) (engine.StartResult, error) {
	return operation.Start.Do(ctx, c, r)
}

// Advance asks for an action of an instance.
func (c *Client) Advance(ctx context.Context, r engine.AdvanceRequest) (engine.AdvanceResult, error) {
	return operation.Advance.Do(ctx, c, r)
}

// Validate asks whether an action would pass, and moves nothing.
func (c *Client) Validate(ctx context.Context, r engine.AdvanceRequest) (engine.ValidateResult, error) {
	return operation.Validate.Do(ctx, c, r)
}

// Decide judges an action without an instance.
func (c *Client) Decide(ctx context.Context, r engine.DecideRequest) (engine.DecideResult, error) {
	return operation.Decide.Do(ctx, c, r)
}

// Status shows where an instance is, or was.
func (c *Client) Status(ctx context.Context, id string, w engine.When) (engine.StatusResult, error) {
	return operation.Status.Do(ctx, c, operation.StatusRequest{ID: id, When: w})
}

// Instances lists instances.
func (c *Client) Instances(ctx context.Context, r engine.InstancesRequest) (engine.InstancesResult, error) {
	return operation.Instances.Do(ctx, c, r)
}

// Cancel ends an instance.
func (c *Client) Cancel(ctx context.Context, r engine.CancelRequest) (engine.MovedResult, error) {
	return operation.Cancel.Do(ctx, c, r)
}

// Checkpoint names the present state of an instance.
func (c *Client) Checkpoint(ctx context.Context, r engine.CheckpointRequest) (engine.CheckpointResult, error) {
	return operation.Checkpoint.Do(ctx, c, r)
}

// Rollback takes an instance back to a checkpoint.
func (c *Client) Rollback(ctx context.Context, r engine.RollbackRequest) (engine.MovedResult, error) {
	return operation.Rollback.Do(ctx, c, r)
}

// History lists the decisions of an instance.
func (c *Client) History(ctx context.Context, r engine.HistoryRequest) (engine.HistoryResult, error) {
	return operation.History.Do(ctx, c, r)
}

// Reviews lists moves that wait for a person.
func (c *Client) Reviews(ctx context.Context, r engine.ReviewsRequest) (engine.ReviewsResult, error) {
	return operation.Reviews.Do(ctx, c, r)
}

// Review shows one of them.
func (c *Client) Review(ctx context.Context, id string) (engine.ReviewView, error) {
	return operation.Review.Do(ctx, c, operation.IDRequest{ID: id})
}

// Resolve decides one of them.
func (c *Client) Resolve(ctx context.Context, r engine.ResolveRequest) (engine.ResolveResult, error) {
	return operation.Resolve.Do(ctx, c, r)
}
