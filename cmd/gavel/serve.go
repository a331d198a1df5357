package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/listen"
)

type serveCmd struct {
	Definitions []string `name:"definitions" placeholder:"GLOB" help:"Load these workflow definitions as the operator's: a file, a folder or a pattern. Repeatable."`
	ToolNames   string   `name:"tool-names" enum:"auto,dotted,underscore" default:"auto" placeholder:"STYLE" help:"How tools are listed: dotted, underscore, or auto, by client, the default. Calls are accepted in both styles."`
	Reviews     bool     `name:"reviews" default:"true" negatable:"" help:"Let moves that need a person wait for one; reviewers decide them over MCP, over REST, or here with gavel review. --no-reviews refuses such moves. Default: on."`
	Elicit      bool     `name:"elicit" help:"Let the agent's own client ask its user too. Never for moves of high risk; recorded as human_via_client."`
	authFlags
	issuerFlags
	listenFlags
	rateFlags
	quotaFlags
	telemetryFlags
	configFlag
	storeFlag
	modelFlags
	anchorFlags
}

// Help shows examples.
func (serveCmd) Help() string {
	return `One listener: /mcp for MCP clients (streamable HTTP), /v1 and /openapi.json for other programs,
/healthz, /readyz and /metrics for what watches over it. docs/serve.md is the whole story.

Every caller shows a bearer token, made with gavel token create. At the first start there is
none: then serve writes an operator's token to operator.token beside the store, for you, and
prints an agent's token, once. With --auth none everybody who reaches the address is the local
agent: that is for loopback addresses only.

A request has to name this host: a loopback name, or what --allow-host adds. On an address that
others can reach give a certificate, or put a proxy that has one before it (--insecure-plain-http).

Every flag is a key of one file too (--config): gavel config. Changes of that file and of the
definitions are taken over while it runs, at once with SIGHUP; what has a mistake is refused,
and running instances stay with the version that they began with.

SIGTERM and SIGINT end it: no new connection, event streams end at once, and what was begun is
finished within --drain-timeout. A second one ends it at once.

Examples:

    gavel serve --definitions 'flows/*.json'
    gavel serve --listen 0.0.0.0:4285 --tls-cert tls.crt --tls-key tls.key --allow-host gavel.example.org
    curl -H "Authorization: Bearer $(cat .workflows/operator.token)" http://127.0.0.1:4285/v1/definitions`
}

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, con *console) error {
	hideSecrets()
	if err := c.check(ctx); err != nil {
		return err
	}
	path, err := c.storePath(con.log, true)
	if err != nil {
		return err
	}
	sys, err := c.open(ctx, con, path)
	if err != nil {
		return err
	}
	if err = c.serve(ctx, con, sys); ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // told to stop in the middle of the start
	}
	return errors.Join(err, closeInTime(con.log, sys.Close))
}

// check finds what can be told before anything is opened.
func (c *serveCmd) check(ctx context.Context) error {
	if c.Elicit && !c.Reviews {
		return term.UsageErrorf("drop --no-reviews", "--elicit is a way to decide reviews, and without reviews there are none")
	}
	if _, err := c.issuersFor(c.Auth); err != nil {
		return err
	}
	return errors.Join(c.issuerFlags.check(), c.rateFlags.check(), c.quotaFlags.check(), c.listenFlags.check(ctx, c.Auth))
}

// open opens the store with all that the flags configure.
func (c *serveCmd) open(ctx context.Context, con *console, path string) (*system, error) {
	with := equipment{reviews: c.Reviews, clientReviews: c.Elicit}
	var err error
	if with.model, err = c.modelFlags.open(con.log); err != nil {
		return nil, err
	}
	if with.sources, err = c.configFlag.open(con.log); err != nil {
		return nil, errors.Join(err, with.Close())
	}
	if with.anchors, err = c.signer(con.log, path); err != nil {
		return nil, errors.Join(err, with.Close())
	}
	with.quotas, with.metered = c.quotas(), newMetered(with)
	sys, err := openSystem(ctx, con.log, path, with)
	if err != nil {
		return nil, errors.Join(err, with.Close())
	}
	return sys, nil
}

// serve answers until ctx ends, and returns when what was begun is finished.
func (c *serveCmd) serve(ctx context.Context, con *console, sys *system) (err error) {
	watch := newDefinitionWatch(sys.engine, con.log, c.Definitions)
	if err := watch.start(ctx); err != nil {
		return err
	}
	if err := warnMissing(ctx, con.log, sys); err != nil {
		return err
	}
	issuers, err := c.issuersFor(c.Auth)
	if err != nil {
		return err
	}
	r := &routes{
		sys: sys, log: con.log, toolNames: c.ToolNames, reviews: c.Reviews, elicit: c.Elicit,
		issuerFlags: c.issuerFlags, telemetryFlags: c.telemetryFlags, rate: c.rateFlags,
		health: newHealth(con.log, sys, watch.trouble),
	}
	cfg := c.listenFlags.config(con.log)
	cfg.Handler, cfg.OnDrain, cfg.Unlimited = sys.metered.metrics.Instrument(r), r.drain, healthPaths
	server, err := listen.New(ctx, cfg)
	if err != nil {
		return term.UsageErrorf("", "cannot serve: %w", err)
	}
	sys.metered.listener.Store(server)
	defer func() { // what never came to serve
		if err != nil {
			err = errors.Join(err, server.Close())
		}
	}()
	who, err := c.authFlags.open(con, sys.path, server.Addr(), len(issuers) > 0)
	if err != nil {
		return err
	}
	known, err := newCallers(who.authenticator, issuers)
	if err != nil {
		return err
	}
	if err := r.mount(known, c.Auth == authNone); err != nil {
		return err
	}
	defer r.close()
	defer who.watch(con.log)()
	defer c.watch(ctx, con.log, sys)()
	if c.Reviews {
		defer watchReviews(ctx, con.log, sys.engine)()
	}
	defer forgiveOnHangup(con.log, sys.pool)()
	defer newReloader(con, c, r, known, watch).run(ctx)()
	con.err.Printf("gavel: serving %s (store %s)\n", server.URL(), sys.path)
	con.log.Info("serving", "address", server.URL(), "store", sys.path, "auth", c.Auth, "models", strings.Join(sys.model.names(), ", "))
	if err := server.Serve(ctx); err != nil {
		return term.UnknownErrorf("", "the listener failed: %w", err)
	}
	return nil
}

// every runs f now and then until the returned function is called, which runs it once more.
func every(interval time.Duration, f func()) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		again := time.NewTicker(interval)
		defer again.Stop()
		for {
			select {
			case <-quit:
				return
			case <-again.C:
				f()
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
		f()
	}
}

// recordUseEvery is how often it is written when tokens were used last.
const recordUseEvery = 5 * time.Minute

// watch writes now and then which tokens were used.
func (i identities) watch(log *slog.Logger) (stop func()) {
	if i.tokens == nil {
		return func() {}
	}
	return every(recordUseEvery, func() {
		if err := i.tokens.RecordUse(); err != nil {
			log.Warn("cannot note when tokens were used", "error", err)
		}
	})
}
