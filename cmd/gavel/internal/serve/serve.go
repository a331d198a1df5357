package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

// Servers has the commands whose flags cover all settings. Parsing the flags of the other commands would take longer
// than most commands run.
type Servers struct {
	cli.LogFlags

	MCP   MCPCommand `cmd:"" name:"mcp"`
	Serve Command    `cmd:""`
}

// Command serves over HTTP.
type Command struct {
	Definitions []string `name:"definitions" placeholder:"GLOB" help:"Load these workflow definitions as the operator's: a file, a folder or a pattern. Repeatable."`
	reviewFlags
	toolFlags
	authFlags
	issuerFlags
	listenFlags
	rateFlags
	quotaFlags
	telemetryFlags
	cli.SystemFlags
}

// Run serves until ctx ends.
func (c *Command) Run(ctx context.Context, con *cli.Console) error {
	cli.HideSecrets()
	if err := c.check(ctx); err != nil {
		return err
	}
	sys, err := c.OpenEquipped(ctx, con, cli.SystemOptions{
		Serves: true, Reviews: c.Reviews, ClientReviews: c.Elicit, Quotas: c.quotas(), Meter: &cli.Meter{},
	})
	if err != nil {
		return err
	}
	if err = c.serve(ctx, con, sys); ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // stopped by a signal during startup
	}
	sys.Extensions().Close() // before CloseInTime: connections to other servers may take seconds to save their state
	return errors.Join(err, cli.CloseInTime(con.Log, sys.Close))
}

func (c *Command) check(ctx context.Context) error {
	_, err := issuersFor(c.ConfigFlag, c.Auth)
	return cmp.Or(err, c.checkReviews(), errors.Join(c.issuerFlags.check(), c.rateFlags.check(), c.listenFlags.checkForm(), c.listenFlags.check(ctx, c.Auth)))
}

// serve answers until ctx ends, and returns once requests in progress are finished.
func (c *Command) serve(ctx context.Context, con *cli.Console, sys *cli.System) (err error) {
	watch := cli.NewDefinitionWatch(vettedDefiner{sys.Engine, sys.Extensions()}, con.Log, c.Definitions)
	if err := watch.Start(ctx); err != nil {
		return err
	}
	useTokens(sys, c.authFlags.tokensOpener(sys))
	if err := module.ConfigError(sys.Check(ctx)); err != nil {
		return err
	}
	if err := warnMissing(ctx, con.Log, sys); err != nil {
		return err
	}
	issuers, err := issuersFor(c.ConfigFlag, c.Auth)
	if err != nil {
		return err
	}
	r := &routes{sys: sys, log: con.Log, flags: c, health: NewHealth(con.Log, sys, watch.FindTrouble), extra: sys.Extensions().Routes()}
	sys.Meter.Health.Store(r.health)
	cfg := c.listenFlags.config(con.Log)
	cfg.Handler, cfg.OnDrain, cfg.Unlimited, cfg.Wrap = sys.Meter.Metrics.Instrument(r), r.drain, healthPaths, r.extra.Form
	server, err := listen.New(ctx, cfg)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return term.UsageErrorf("stop that program, or give another --listen (port 0 takes a free one)", "cannot serve on %s: another program listens there", c.Listen)
		}
		return term.UsageErrorf("", "cannot serve: %w", err)
	}
	sys.Meter.Listener.Store(server)
	defer func() { // close the listener if the server never started
		if err != nil {
			err = errors.Join(err, server.Close())
		}
	}()
	who, err := c.authFlags.open(con, sys, server.Addr(), len(issuers) > 0)
	if err != nil {
		return err
	}
	known, err := newCallers(who, issuers)
	if err != nil {
		return err
	}
	r.address = server.URL()
	if err := r.mount(known); err != nil {
		return err
	}
	defer r.endpoint.Close()
	defer watchTokens(ctx, con.Log, who)()
	defer c.Watch(ctx, con.Log, sys)()
	if c.Reviews {
		defer watchReviews(ctx, con.Log, sys.Engine)()
	}
	services, err := openServices(ctx, con.Log, sys, c.Config, sys.Extensions().ReviewBase(r.siteAddress()))
	if err != nil {
		return err
	}
	defer services.run(ctx)()
	defer sys.Extensions().Run(ctx)()
	defer resetQuarantineOnHangup(con.Log, sys.Pool)()
	defer newReloader(con, c, r, known, watch, services.Watch(sys.Extensions())...).run(ctx)()
	if log := cmp.Or(con.Errors, con.Log); log.Enabled(ctx, slog.LevelInfo) {
		log.Info("serving", "address", server.URL(), "store", sys.Location.String(), "auth", c.Auth, "tls", c.TLSCert != "",
			"version", cli.ReadBuild().Version, "definitions", strings.Join(c.Definitions, ", "), "models", strings.Join(sys.Model.ListNames(), ", "))
	} else {
		con.Err.Printf("gavel: serving %s (store %s)\n", server.URL(), sys.Location)
	}
	defer func() { con.Log.Info("ended", "address", server.URL()) }()
	if err := server.Serve(ctx); err != nil {
		return term.UnknownErrorf("", "the listener failed: %w", err)
	}
	return nil
}

// recordUseInterval is how often the last use of tokens is written.
const recordUseInterval = 5 * time.Minute

// watchTokens writes periodically, and at the end, which tokens were used.
func watchTokens(ctx context.Context, log *slog.Logger, who auth.Authenticator) (stop func()) {
	tokens, ok := who.(*auth.Tokens)
	if !ok {
		return func() {}
	}
	record := func(context.Context) {
		if err := tokens.RecordUse(); err != nil {
			log.Warn("cannot record the last use of tokens", "error", err)
		}
	}
	end := cli.RunEvery(ctx, recordUseInterval, recordUseInterval, record)
	return func() {
		end()
		record(ctx)
	}
}

type listenFlags struct {
	Listen       string        `name:"listen" default:"127.0.0.1:4285" placeholder:"HOST:PORT" help:"The address to listen on; port 0 takes a free one. Default: 127.0.0.1:4285, reachable only from this machine."`
	TLSCert      string        `name:"tls-cert" placeholder:"FILE" help:"The certificate (PEM, with its chain) for HTTPS. Reloaded when it changes."`
	TLSKey       string        `name:"tls-key" placeholder:"FILE" help:"The certificate's private key (PEM)."`
	TLSClientCA  string        `name:"tls-client-ca" placeholder:"FILE" help:"Require client certificates signed by one of these (PEM). Clients also need their token."`
	PlainHTTP    bool          `name:"insecure-plain-http" help:"Serve without TLS on an address that other machines can reach. For a proxy that terminates TLS, or a trusted network: anyone on the network path can read the tokens."`
	AllowHost    []string      `name:"allow-host" placeholder:"HOST" help:"A host name of this server, in addition to loopback names and the address itself. Repeatable."`
	AllowOrigin  []string      `name:"allow-origin" placeholder:"ORIGIN" help:"Let web pages of this origin (https://app.example.org) call the server. Repeatable."`
	MaxBody      int64         `name:"max-body" default:"4194304" placeholder:"BYTES" help:"Maximum size of a request body. Default: 4194304."`
	MaxHeader    int           `name:"max-header" default:"32768" placeholder:"BYTES" help:"Maximum total size of request headers. Default: 32768."`
	MaxConns     int           `name:"max-conns" default:"4096" placeholder:"N" help:"Maximum connections. A further one closes the connection that has been idle longest. Default: 4096."`
	MaxRequests  int           `name:"max-requests" default:"2048" placeholder:"N" help:"Maximum requests in flight, half of that for one principal. Default: 2048."`
	MaxStreams   int           `name:"max-streams" default:"2048" placeholder:"N" help:"Maximum event streams, half of that for one principal. Default: 2048."`
	HeaderTime   time.Duration `name:"read-header-timeout" default:"10s" placeholder:"TIME" help:"Time limit for the headers of a request. Default: 10s."`
	BodyTime     time.Duration `name:"body-timeout" default:"30s" placeholder:"TIME" help:"Time limit for the body of a request. Default: 30s."`
	WriteTime    time.Duration `name:"write-timeout" default:"30s" placeholder:"TIME" help:"Time limit for the client to read each part of an answer. Default: 30s."`
	IdleTime     time.Duration `name:"idle-timeout" default:"2m" placeholder:"TIME" help:"How long a connection without a request stays open. Default: 2m."`
	DrainTimeout time.Duration `name:"drain-timeout" default:"30s" placeholder:"TIME" help:"How long requests in flight may continue after SIGTERM. Default: 30s."`
}

func (f listenFlags) config(log *slog.Logger) listen.Config {
	return listen.Config{
		Addr: f.Listen, Logger: log, CertFile: f.TLSCert, KeyFile: f.TLSKey, ClientCAFile: f.TLSClientCA,
		AllowedHosts: f.AllowHost, AllowedOrigins: f.AllowOrigin,
		MaxBody: f.MaxBody, MaxHeader: f.MaxHeader, MaxConns: f.MaxConns, MaxRequests: f.MaxRequests, MaxStreams: f.MaxStreams,
		ReadHeaderTimeout: f.HeaderTime, BodyTimeout: f.BodyTime, WriteTimeout: f.WriteTime, IdleTimeout: f.IdleTime,
		DrainTimeout: f.DrainTimeout,
	}
}

// checkForm checks what does not depend on this machine: addresses, limits, and certificates without a key.
func (f listenFlags) checkForm() error {
	var wrong []error
	if _, _, err := net.SplitHostPort(f.Listen); err != nil {
		wrong = append(wrong, term.UsageErrorf("give HOST:PORT, such as 127.0.0.1:4285", "--listen: %w", err))
	}
	if all, ok := f.config(nil).Validate().(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			if field, ok := errors.AsType[*listen.FieldError](err); ok && flagOfField[field.Field] != "" {
				err = errors.New(flagOfField[field.Field] + ": " + field.Message)
			}
			wrong = append(wrong, term.UsageErrorf("", "%w", err))
		}
	}
	return errors.Join(wrong...)
}

// flagOfField maps fields that flags can set wrongly to those flags. checkFlags rejects limits below 0, and 0 is the
// default.
var flagOfField = map[string]string{
	"CertFile": "--tls-cert", "KeyFile": "--tls-key", "ClientCAFile": "--tls-client-ca",
	"MaxHeader": "--max-header", "AllowedHosts": "--allow-host", "AllowedOrigins": "--allow-origin",
}

// check rejects an insecure listener: no authentication, or tokens in plain text, on an address that other machines
// can reach.
func (f listenFlags) check(ctx context.Context, auth string) error {
	host, _, err := net.SplitHostPort(f.Listen)
	if err != nil || loopbackOnly(ctx, host) {
		return nil //nolint:nilerr // checkForm reports it
	}
	if auth == authNone {
		return term.UsageErrorf("use tokens (--auth token), or --listen 127.0.0.1:4285",
			"--auth none admits anyone who reaches the address, and other machines can reach %s", f.Listen)
	}
	if f.TLSCert == "" && !f.PlainHTTP {
		return term.UsageErrorf("give --tls-cert and --tls-key; or --insecure-plain-http if a proxy terminates TLS",
			"on %s tokens would travel unencrypted", f.Listen)
	}
	return nil
}

// loopbackOnly reports whether all addresses of a host belong to this machine.
func loopbackOnly(ctx context.Context, host string) bool {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", strings.Trim(host, "[]"))
	return err == nil && len(found) > 0 && !slices.ContainsFunc(found, func(a netip.Addr) bool { return !a.Unmap().IsLoopback() })
}

type quotaFlags struct {
	Definitions int           `name:"quota-definitions" default:"100" placeholder:"N" help:"Maximum workflows that a principal may own; 0 is no limit. No quota applies to operators. Default: 100."`
	Instances   int           `name:"quota-instances" default:"10000" placeholder:"N" help:"Maximum running instances of a principal; 0 is no limit. Default: 10000."`
	States      int           `name:"quota-states" default:"500" placeholder:"N" help:"Maximum states of a definition that is not an operator's; 0 is no limit. Default: 500."`
	Transitions int           `name:"quota-transitions" default:"2000" placeholder:"N" help:"Maximum transitions of such a definition, counting each route; 0 is no limit. Default: 2000."`
	Schemas     int           `name:"quota-schema-bytes" default:"65536" placeholder:"BYTES" help:"Maximum total size of its schemas; 0 is no limit. Default: 65536 (64 KiB)."`
	Bytes       int64         `name:"quota-bytes" default:"268435456" placeholder:"BYTES" help:"Maximum bytes recorded for a principal per hour; 0 is no limit. Default: 268435456 (256 MiB)."`
	WorkerTime  time.Duration `name:"quota-worker-time" default:"30m" placeholder:"TIME" help:"How long scripts may run for a principal per hour; 0 is no limit. Default: 30m."`
	Shared      bool          `name:"quota-shared" help:"Count the hour across all servers of the store. Without it, each server counts alone."`
	ModelTokens int64         `name:"quota-model-tokens" default:"2000000" placeholder:"N" help:"Maximum tokens that models read and write for a principal per hour; 0 is no limit. Default: 2000000."`
}

func (f quotaFlags) quotas() engine.Quotas {
	return engine.Quotas{
		Definitions: f.Definitions, Running: f.Instances, Bytes: f.Bytes, WorkerTime: f.WorkerTime, ModelTokens: f.ModelTokens,
		Shared: f.Shared, States: f.States, Transitions: f.Transitions, SchemaBytes: f.Schemas,
	}
}

type rateFlags struct {
	// Rate is nil until AfterApply.
	Rate  *float64 `name:"rate" placeholder:"N" help:"Requests per second that a principal other than an operator may send; 0 is no limit, the default with --auth none. Default: 1000."`
	Burst int      `name:"rate-burst" default:"2000" placeholder:"N" help:"Requests that it may send in a burst. Default: 2000."`
}

// AfterApply sets the rate, whose default depends on another flag. With --auth none all callers are one local
// principal: a limit would throttle the only agent of a sidecar, and separate no one.
func (c *Command) AfterApply() error { //nolint:unparam // the form that kong calls
	if c.Rate != nil {
		return nil
	}
	c.Rate = new(1000.0)
	if c.Auth == authNone {
		c.Rate = new(0.0)
	}
	return nil
}

func (f rateFlags) check() error {
	if *f.Rate > 0 && f.Burst < 1 {
		return term.UsageErrorf("", "--rate-burst must be 1 or more, not %d", f.Burst)
	}
	return nil
}

// expireInterval is how often reviews are checked for expiry. Nothing depends on it: an overdue review resolves nothing,
// even before it is expired.
const expireInterval = time.Minute

type expirer interface {
	ExpireReviews(ctx context.Context) (int, error)
}

// watchReviews expires overdue reviews immediately and every minute, until ctx ends or the returned function is
// called, which waits for it.
func watchReviews(ctx context.Context, log *slog.Logger, reviews expirer) (stop func()) {
	return cli.RunEvery(ctx, 0, expireInterval, func(ctx context.Context) {
		n, err := reviews.ExpireReviews(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			log.Warn("cannot check reviews for expiry; trying again in a minute", "error", err)
		case n > 0:
			log.Info("reviews expired without a decision", "number", n)
		}
	})
}
