package console

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/fairshare"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

// maxStreams limits the live pages of gavel ui.
const maxStreams = 64

// command implements gavel ui.
type command struct {
	Port      int     `name:"port" default:"0" placeholder:"PORT" help:"The port on 127.0.0.1. Default: 0, a free one."`
	Principal *string `name:"principal" env:"GAVEL_REVIEWER" placeholder:"ID" help:"Your name in the record. Default: local:user: and your user name."`
	cli.SystemFlags
}

func (command) Help() string {
	return `Opens a store in your browser: what waits for you, why moves were allowed or refused, and
what agents are doing now. No server is needed, and a running gavel mcp or gavel serve is
not disturbed. Only this machine can reach the page, and the printed link works once.
With the configuration file of your servers (--config), pages about their modules are complete.

Examples:

    gavel ui
    gavel ui --store .workflows/gavel.db --config gavel.yaml

Exit codes: 0 stopped, 2 wrong usage, 3 the store cannot be used.`
}

// Run serves the console until ctx ends.
func (c *command) Run(ctx context.Context, con *cli.Console) (err error) {
	if c.Port < 0 || c.Port > 65535 {
		return term.UsageErrorf("give 0 for a free one", "--port must be 0 to 65535, not %d", c.Port)
	}
	who, err := cli.FindReviewer(c.Principal)
	if err != nil {
		return err
	}
	if at, err := c.Locate(con.Log, true); err != nil {
		return err
	} else if missing := at.MissingKey(); missing != "" && cli.IsFile(at.Path) {
		return term.UsageErrorf("put the key back, or restore it from a backup", "the key of the store is missing: %s", missing)
	}
	sys, err := c.OpenEquipped(ctx, con, cli.SystemOptions{Reviews: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cli.CloseInTime(con.Log, sys.Close)) }()
	if err := module.ConfigError(sys.Check(ctx)); err != nil {
		return err
	}
	return serveLocally(ctx, con, sys, c.Port, who)
}

// serveLocally serves the console to the user of this machine.
func serveLocally(ctx context.Context, con *cli.Console, sys *cli.System, port int, who engine.Principal) error {
	owner := &owner{identity: auth.Identity{Principal: who, Kind: auth.KindProgram}, bearer: rand.Text()}
	limits := fairshare.New(fairshare.Config{Permits: maxStreams})
	warnings := &cli.Warnings{Sys: sys}
	site, err := newConsole(module.SiteHost{
		Log: con.Log, Pages: sys.Extensions().Pages(), Gate: auth.NewGate(owner, auth.Options{Logger: con.Log}), Exchange: owner.exchange,
		Call: func(id auth.Identity) operation.Call {
			return operation.Call{Engine: sys.Engine, Caller: id, Channel: record.ChannelCLI, Sources: sys.ListSources, Services: sys.Extensions().Services()}
		},
		AcquireStream: limits.TryAcquire,
		Limit: func(h http.Handler) http.Handler {
			return listen.Admit(callerID, h)
		},
		IsSecure: func(*http.Request) bool { return false },
		Connect:  connectByCommand(sys.Location.Path), StoreName: sys.Location.String(),
		Warnings: warnings.Find, Models: sys.Model.ListNames(),
	})
	if err != nil {
		return term.UnknownErrorf("", "cannot set up the console: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle(base, site)
	mux.Handle("/", http.RedirectHandler(base, http.StatusSeeOther))
	server, err := listen.New(ctx, listen.Config{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Handler: mux, Logger: con.Log})
	if errors.Is(err, syscall.EADDRINUSE) {
		return term.UsageErrorf("leave out --port for a free one", "another program uses port %d", port)
	}
	if err != nil {
		return term.UnknownErrorf("", "cannot serve the console: %w", err)
	}
	con.Out.Printf("%s\n", server.URL()+base+linkPath+owner.newLink())
	con.Err.Printf("gavel: open this link, which works once. Enter prints a new one; Ctrl+C stops.\n")
	go func() {
		for lines := bufio.NewScanner(con.In); lines.Scan(); {
			con.Out.Printf("%s\n", server.URL()+base+linkPath+owner.newLink())
		}
	}()
	if err := server.Serve(ctx); err != nil {
		return term.UnknownErrorf("", "the listener failed: %w", err)
	}
	return nil
}

func callerID(ctx context.Context) string {
	id, _ := auth.FromContext(ctx)
	return id.ID
}

// connectByCommand is the configuration of an MCP client for a store on this machine.
func connectByCommand(store string) string {
	if abs, err := filepath.Abs(store); err == nil && store != "" {
		store = abs
	}
	text, _ := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{"gavel": map[string]any{ //nolint:errchkjson // strings only
		"command": "gavel", "args": []string{"mcp", "--store", store},
	}}}, "", "  ")
	return string(text)
}

// owner is the user of this machine, who signs in by links.
type owner struct {
	identity auth.Identity
	bearer   string // never shown

	mu   sync.Mutex
	link string // "" once it was used
}

func (o *owner) newLink() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.link = rand.Text()
	return o.link
}

// exchange accepts a link once.
func (o *owner) exchange(link string) (bearer string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.link == "" || subtle.ConstantTimeCompare([]byte(link), []byte(o.link)) != 1 {
		return "", false
	}
	o.link = ""
	return o.bearer, true
}

// Authenticate implements auth.Authenticator.
func (o *owner) Authenticate(_ context.Context, bearer string) (auth.Identity, error) {
	if subtle.ConstantTimeCompare([]byte(bearer), []byte(o.bearer)) != 1 {
		return auth.Identity{}, auth.ErrBadCredential
	}
	return o.identity, nil
}
