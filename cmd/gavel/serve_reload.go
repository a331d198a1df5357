package main

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/config"
)

// lookEvery is how often files are looked at that a server was configured with.
const lookEvery = time.Second

// reloader keeps a running server as its configuration and its definitions are.
type reloader struct {
	con        *console
	routes     *routes
	callers    *callers
	watch      *definitionWatch
	configured *configWatch

	mu       sync.Mutex // of what follows
	inForce  []effective
	issuers  string // the section auth
	evidence string // the section evidence
	path     string // of the file, "" for none
	notTaken map[string]bool
}

// listReloadables are the settings that a running server takes over, with how.
func listReloadables() map[string]func(r *reloader, c *commands) {
	quotas := func(r *reloader, c *commands) { r.routes.sys.Engine.SetQuotas(c.Serve.quotas()) }
	rate := func(r *reloader, c *commands) { r.routes.setRate(c.Serve.rateFlags) }
	return map[string]func(*reloader, *commands){
		"logLevel":    func(r *reloader, c *commands) { r.con.level.Set(logLevel(c.LogLevel)) },
		"definitions": func(r *reloader, c *commands) { r.watch.patterns = c.Serve.Definitions },
		"serve.rate":  rate, "serve.rateBurst": rate,
		"quotas.definitions": quotas, "quotas.instances": quotas, "quotas.bytes": quotas, "quotas.shared": quotas, "quotas.workerTime": quotas, "quotas.modelTokens": quotas,
		"quotas.states": quotas, "quotas.transitions": quotas, "quotas.schemaBytes": quotas,
	}
}

func newReloader(con *console, c *serveCmd, r *routes, known *callers, watch *definitionWatch, more ...*configPart) *reloader {
	l := &reloader{
		con: con, routes: r, callers: known, watch: watch, path: c.Config,
		inForce: slices.Clone(con.settings.list), notTaken: map[string]bool{},
		issuers: con.settings.section(config.SectionAuth), evidence: con.settings.section(config.SectionEvidence),
	}
	parts := append([]*configPart{{prepare: l.prepare}}, more...)
	l.configured = newConfigWatch(con.log, c.Config, parts...)
	return l
}

// run looks at the files until the returned function is called; SIGHUP has them read at once.
func (r *reloader) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	endLooking := runEvery(ctx, lookEvery, lookEvery, func(ctx context.Context) { r.look(ctx, false) })
	endHangups := onHangup(func() {
		r.look(ctx, true)
		r.con.log.Info("the configuration was read", "cause", "SIGHUP")
	})
	return func() {
		cancel()
		endHangups()
		endLooking()
	}
}

func (r *reloader) look(ctx context.Context, atOnce bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.configured.look(ctx, atOnce)
	r.watch.look(ctx, atOnce)
}

// oneLine is all that an error says to a person.
func oneLine(err error) string {
	return strings.Join(append(slices.DeleteFunc(issuesOf(err), func(line string) bool { return line == err.Error() }), err.Error()), "; ")
}

// prepare reads flags, environment and file as the start did, and checks all of it; take takes over what it can.
func (r *reloader) prepare(ctx context.Context, next *configChange) (take func(), err error) {
	if _, err := checkConfig(r.path); err != nil {
		return nil, err
	}
	var cmds commands
	parsed, settings, err := parseArguments(&cmds, r.con.args, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	if err := cmds.Serve.check(ctx); err != nil {
		return nil, err
	}
	issuers, err := cmds.Serve.issuersFor(cmds.Serve.Auth)
	if err != nil {
		return nil, err
	}
	trust, err := r.callers.prepareTrust(issuers)
	if err != nil {
		return nil, err
	}
	return func() {
		if text := settings.section(config.SectionAuth); text != r.issuers || next.again {
			trust()
			if text != r.issuers {
				r.con.log.Info("issuers are taken over", "issuers", len(issuers))
			}
			r.issuers = text
		}
		r.take(&cmds, settings.effective(parsed))
		if text := settings.section(config.SectionEvidence); text != r.evidence {
			r.later(config.SectionEvidence, text)
		}
	}, nil
}

// take takes over what changed, and says what only a new start would.
func (r *reloader) take(c *commands, next []effective) {
	apply := listReloadables()
	for i, e := range next {
		if i >= len(r.inForce) || r.inForce[i].Key != e.Key || reflect.DeepEqual(r.inForce[i].Value, e.Value) {
			continue
		}
		if f := apply[e.Key]; f != nil {
			f(r, c)
			r.con.log.Info("a setting is taken over", "key", e.Key, "value", valueText(e.Value), "was", valueText(r.inForce[i].Value))
			r.inForce[i] = e
		} else {
			r.later(e.Key, e.Value)
		}
	}
}

// later says once of each value that it needs a new start.
func (r *reloader) later(key string, value any) {
	if said := fmt.Sprint(key, "=", value); !r.notTaken[said] {
		r.notTaken[said] = true
		r.con.log.Warn("a changed setting counts from the next start on", "key", key)
	}
}

// section is the text of a section that holds more than settings, "" for none.
func (s *fileSettings) section(name string) string { return string(s.file.Section(name).JSON()) }
