package serve

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/term"
)

// pollInterval is how often the configured files are checked for changes.
const pollInterval = time.Second

// reloader applies changes to the configuration and the definitions to a running server.
type reloader struct {
	con        *cli.Console
	routes     *routes
	callers    *callers
	watch      *cli.DefinitionWatch
	configured *ConfigWatch

	mu           sync.Mutex // protects the fields below
	current      []cli.EffectiveSetting
	issuers      string          // the text of the section auth
	path         string          // of the configuration file, "" for none
	needsRestart map[string]bool // changes that need a restart and were already logged, as "key=value"
}

// ListReloadables returns the functions that apply a changed setting to a running server, by the key of the setting.
func ListReloadables() map[string]func(r *reloader, c *Servers) {
	quotas := func(r *reloader, c *Servers) { r.routes.sys.Engine.SetQuotas(c.Serve.quotas()) }
	rate := func(r *reloader, c *Servers) { r.routes.setRate(c.Serve.rateFlags) }
	return map[string]func(*reloader, *Servers){
		"logLevel":    func(r *reloader, c *Servers) { r.con.Level.Set(cli.LogLevel(c.LogLevel)) },
		"definitions": func(r *reloader, c *Servers) { r.watch.Patterns = c.Serve.Definitions },
		"serve.rate":  rate, "serve.rateBurst": rate,
		"quotas.definitions": quotas, "quotas.instances": quotas, "quotas.bytes": quotas, "quotas.shared": quotas, "quotas.workerTime": quotas, "quotas.modelTokens": quotas,
		"quotas.states": quotas, "quotas.transitions": quotas, "quotas.schemaBytes": quotas,
	}
}

func newReloader(con *cli.Console, c *Command, r *routes, known *callers, watch *cli.DefinitionWatch, more ...*ConfigPart) *reloader {
	l := &reloader{
		con: con, routes: r, callers: known, watch: watch, path: c.Config,
		current: slices.Clone(con.Settings.List), needsRestart: map[string]bool{},
		issuers: con.Settings.Section(config.SectionAuth),
	}
	parts := append([]*ConfigPart{{Prepare: l.prepare}}, more...)
	l.configured = NewConfigWatch(con.Log, c.Config, parts...)
	return l
}

// run checks the files for changes until the returned function is called. SIGHUP makes it check them immediately.
func (r *reloader) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	endLooking := cli.RunEvery(ctx, pollInterval, pollInterval, func(ctx context.Context) { r.poll(ctx, false) })
	endHangups := onHangup(func() {
		r.poll(ctx, true)
		r.con.Log.Info("the configuration was read", "cause", "SIGHUP")
	})
	return func() {
		cancel()
		endHangups()
		endLooking()
	}
}

func (r *reloader) poll(ctx context.Context, atOnce bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.configured.Look(ctx, atOnce)
	r.watch.Poll(ctx, atOnce)
}

// oneLine returns the complete text of an error on one line.
func oneLine(err error) string {
	return strings.Join(append(slices.DeleteFunc(term.ListLines(err), func(line string) bool { return line == err.Error() }), err.Error()), "; ")
}

// prepare parses flags, environment and file as at startup, and checks them. The returned function applies what a
// running server can apply.
func (r *reloader) prepare(ctx context.Context, next *ConfigChange) (take func(), err error) {
	if _, err := CheckConfig(r.con, r.path); err != nil {
		return nil, err
	}
	var cmds Servers
	parsed, settings, err := r.con.Parse(&cmds, r.con.Args, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	if err := cmds.Serve.check(ctx); err != nil {
		return nil, err
	}
	issuers, err := issuersFor(cmds.Serve.ConfigFlag, cmds.Serve.Auth)
	if err != nil {
		return nil, err
	}
	trust, err := r.callers.prepareTrust(issuers)
	if err != nil {
		return nil, err
	}
	return func() {
		if text := settings.Section(config.SectionAuth); text != r.issuers || next.again {
			trust()
			if text != r.issuers {
				r.con.Log.Info("changed issuers are in force", "issuers", len(issuers))
			}
			r.issuers = text
		}
		r.apply(&cmds, settings.Effective(parsed))
	}, nil
}

// apply applies the changed settings that need no restart, and logs the others.
func (r *reloader) apply(c *Servers, next []cli.EffectiveSetting) {
	apply := ListReloadables()
	for i, e := range next {
		if i >= len(r.current) || r.current[i].Key != e.Key || reflect.DeepEqual(r.current[i].Value, e.Value) {
			continue
		}
		if f := apply[e.Key]; f != nil {
			f(r, c)
			r.con.Log.Info("a changed setting is in force", "key", e.Key, "value", cli.FormatValue(e.Value), "was", cli.FormatValue(r.current[i].Value))
			r.current[i] = e
		} else {
			r.logNeedsRestart(e.Key, e.Value)
		}
	}
}

// logNeedsRestart logs that a changed setting takes effect only after a restart, once for each new value.
func (r *reloader) logNeedsRestart(key string, value any) {
	if said := fmt.Sprint(key, "=", value); !r.needsRestart[said] {
		r.needsRestart[said] = true
		r.con.Log.Warn("a changed setting takes effect only after a restart", "key", key)
	}
}
