package gavel

import (
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

// Operation is something that a Client can be asked for: Do asks with a Req, and the answer is a Res.
type Operation[Req, Res any] = operation.Typed[Req, Res]

// The requests of operations that package engine has none for.
type (
	// StatusRequest asks where an instance is, or was.
	StatusRequest = operation.StatusRequest
	// IDRequest names an instance or a review.
	IDRequest = operation.IDRequest
)

// The operations of a Client: gavel.Advance.Do(ctx, client, engine.AdvanceRequest{...}).
var (
	Define     = operation.Define
	List       = operation.List // of a struct{}{}
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
