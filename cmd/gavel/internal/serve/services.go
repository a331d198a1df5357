package serve

import (
	"context"
	"errors"
	"log/slog"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
)

// Services are the background services that modules run next to a server.
type Services []*module.Service

// openServices creates the services of all modules, with the configuration in force. reviewBase is
// module.Host.ReviewBase.
func openServices(ctx context.Context, log *slog.Logger, sys *cli.System, path, reviewBase string) (Services, error) {
	file, err := cli.ConfigFlag{Config: path}.Load()
	if err != nil {
		return nil, err
	}
	var all Services
	for _, m := range module.All() {
		if m.Serve == nil {
			continue
		}
		s, err := m.Serve(module.Host{Engine: sys.Engine, Store: sys.Store, Log: log, ReviewBase: reviewBase})
		if err != nil {
			return nil, module.ConfigError(err)
		}
		take, err := s.Prepare(ctx, file)
		if err != nil {
			return nil, module.ConfigError(err)
		}
		take()
		all = append(all, s)
	}
	if sys.Meter != nil {
		sys.Meter.Services.Store((*[]*module.Service)(&all))
	}
	return all, nil
}

// run runs all services until the returned function is called, which waits for them.
func (all Services) run(ctx context.Context) (stop func()) {
	var stops []func()
	for _, s := range all {
		stops = append(stops, s.Run(ctx))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// Watch returns the parts of the configuration that services and extensions can reload.
func (all Services) Watch(extensions module.Extensions) (parts []*ConfigPart) {
	for _, p := range extensions.Parts() {
		part := &ConfigPart{Section: p.Sections[0], with: p.Sections[1:], Files: p.Files, onResult: p.OnResult}
		if p.Prepare != nil {
			part.Prepare = func(ctx context.Context, next *ConfigChange) (take func(), err error) {
				return p.Prepare(ctx, &next.Change)
			}
		}
		parts = append(parts, part)
	}
	for _, s := range all {
		parts = append(parts, &ConfigPart{
			Section: s.Sections[0], with: s.Sections[1:], Files: s.Files,
			Prepare: func(ctx context.Context, next *ConfigChange) (take func(), err error) {
				return s.Prepare(ctx, next.File)
			},
		})
	}
	return parts
}

// checkModules checks the sections of modules as far as that is possible without environment variables.
func checkModules(path string, definitions map[string]*workflow.Definition, log *slog.Logger) error {
	file, err := config.Load(path)
	if err != nil {
		return module.ConfigError(err)
	}
	check := module.Check{File: file, Definitions: definitions, Log: log}
	check.Procedures = module.Procedures(file)
	var wrong []error
	for _, m := range module.All() {
		if m.Check != nil {
			wrong = append(wrong, module.ConfigError(m.Check(check)))
		}
	}
	return errors.Join(wrong...)
}

// vettedDefiner defines only workflows that no extension rejects.
type vettedDefiner struct {
	cli.Definer
	extensions module.Extensions
}

// Define implements cli.Definer.
func (v vettedDefiner) Define(ctx context.Context, p engine.Principal, req engine.DefineRequest) (engine.DefineResult, error) {
	if d, err := workflow.ParseWithFiles(req.Source, req.Document, req.Files); err == nil {
		if err := v.extensions.Vet(d); err != nil {
			return engine.DefineResult{}, err
		}
	}
	return v.Definer.Define(ctx, p, req)
}

// useTokens gives the store's tokens to the extension that needs them.
func useTokens(sys *cli.System, tokens func() (*auth.Tokens, error)) {
	if user, ok := module.Find[module.TokenUser](sys.Extensions()); ok {
		user.UseTokens(tokens)
	}
}
