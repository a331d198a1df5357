package gavel

import (
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/rest/client"
)

// Client performs operations as one principal, on a System of this program or on a server. Errors are
// *engine.Error in both cases. A refusal is not an error.
type Client struct {
	operation.Caller
	close func()
}

// As returns a Client that acts on the System as p. The program vouches for p.
func (s *System) As(p engine.Principal) *Client {
	return &Client{operation.Call{Engine: s.Engine, Caller: auth.Identity{Principal: p, Kind: auth.KindProgram}, Sources: s.ListSources}, func() {}}
}

// ClientConfig holds a server's address and the caller's token.
type ClientConfig = client.Config

// Dial returns a Client of a server: gavel serve, or a Handler. It opens no connection yet.
func Dial(cfg ClientConfig) (*Client, error) {
	c, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{c, c.Close}, nil
}

// Close releases the Client's connections.
func (c *Client) Close() { c.close() }

// Operation is an operation of a Client: Do takes a Req and returns a Res.
type Operation[Req, Res any] = operation.Typed[Req, Res]

// Requests of operations for which package engine has no type.
type (
	// StatusRequest asks for an instance, as it is or as it was.
	StatusRequest = operation.StatusRequest
	// IDRequest names an instance or a review.
	IDRequest = operation.IDRequest
)

// The operations of a Client: gavel.Advance.Do(ctx, client, engine.AdvanceRequest{...}).
var (
	Define     = operation.Define
	List       = operation.List // takes a struct{}{}
	Describe   = operation.Describe
	Start      = operation.Start
	Advance    = operation.Advance
	Validate   = operation.Validate
	Decide     = operation.Decide
	Status     = operation.Status
	Instances  = operation.Instances
	Cancel     = operation.Cancel
	Checkpoint = operation.Checkpoint
	Rollback   = operation.Rollback
	History    = operation.History
	Reviews    = operation.Reviews
	Review     = operation.Review
	Resolve    = operation.Resolve
)
