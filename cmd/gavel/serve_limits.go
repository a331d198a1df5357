package main

import (
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// quotaFlags bound what one principal may take.
type quotaFlags struct {
	Definitions int           `name:"quota-definitions" default:"100" placeholder:"N" help:"The most workflows that one principal may own; 0 is no limit. No quota binds operators. Default: 100."`
	Instances   int           `name:"quota-instances" default:"10000" placeholder:"N" help:"The most instances of one principal that have not ended; 0 is no limit. Default: 10000."`
	States      int           `name:"quota-states" default:"500" placeholder:"N" help:"The most states of a definition that no operator brings; 0 is no limit. Default: 500."`
	Transitions int           `name:"quota-transitions" default:"2000" placeholder:"N" help:"The most transitions of it, each route counted; 0 is no limit. Default: 2000."`
	Schemas     int           `name:"quota-schema-bytes" default:"65536" placeholder:"BYTES" help:"The most bytes that its schemas have together; 0 is no limit. Default: 65536 (64 KiB)."`
	Bytes       int64         `name:"quota-bytes" default:"268435456" placeholder:"BYTES" help:"The most that is recorded for one principal in an hour; 0 is no limit. Default: 268435456 (256 MiB)."`
	WorkerTime  time.Duration `name:"quota-worker-time" default:"30m" placeholder:"TIME" help:"How long scripts may run for one principal in an hour; 0 is no limit. Default: 30m."`
	ModelTokens int64         `name:"quota-model-tokens" default:"2000000" placeholder:"N" help:"The most tokens that models read and write for one principal in an hour; 0 is no limit. Default: 2000000."`
}

func (f quotaFlags) check() error {
	for name, n := range map[string]int64{
		"definitions": int64(f.Definitions), "instances": int64(f.Instances), "bytes": f.Bytes,
		"states": int64(f.States), "transitions": int64(f.Transitions), "schema-bytes": int64(f.Schemas),
		"worker-time": int64(f.WorkerTime), "model-tokens": f.ModelTokens,
	} {
		if n < 0 {
			return term.UsageErrorf("", "--quota-%s is nothing (0, no limit) or more", name)
		}
	}
	return nil
}

func (f quotaFlags) quotas() engine.Quotas {
	return engine.Quotas{
		Definitions: f.Definitions, Running: f.Instances, Bytes: f.Bytes, WorkerTime: f.WorkerTime, ModelTokens: f.ModelTokens,
		States: f.States, Transitions: f.Transitions, SchemaBytes: f.Schemas,
	}
}

// rateFlags bound how often one principal may call.
type rateFlags struct {
	Rate  float64 `name:"rate" default:"1000" placeholder:"N" help:"Requests a second that one principal may send, operators apart; 0 is no limit. Default: 1000."`
	Burst int     `name:"rate-burst" default:"2000" placeholder:"N" help:"Requests that it may send at once. Default: 2000."`
}

func (f rateFlags) check() error {
	if f.Rate < 0 || math.IsNaN(f.Rate) || math.IsInf(f.Rate, 0) {
		return term.UsageErrorf("", "--rate is nothing (0, no limit) or more")
	}
	if f.Rate > 0 && f.Burst < 1 {
		return term.UsageErrorf("", "--rate-burst is 1 or more, not %d", f.Burst)
	}
	return nil
}

// throttle is the rate of each principal, which can be changed while it is in use.
type throttle struct {
	next http.Handler
	now  atomic.Pointer[http.Handler]
}

func newThrottle(next http.Handler, f rateFlags) *throttle {
	t := &throttle{next: next}
	t.set(f)
	return t
}

// set begins to count anew.
func (t *throttle) set(f rateFlags) {
	h := t.next
	if f.Rate > 0 {
		h = auth.RateLimit(f.Rate, f.Burst)(t.next)
	}
	t.now.Store(&h)
}

// ServeHTTP implements http.Handler.
func (t *throttle) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*t.now.Load()).ServeHTTP(w, r) }
