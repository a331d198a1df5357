package main

import (
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/internal/config"
)

// configVariable names the configuration file for commands without --config too.
const configVariable = "GAVEL_CONFIG"

// fileSettings gives flags the values that the configuration file has for them, where
// neither the command line nor the environment does. It implements kong.Resolver.
type fileSettings struct {
	file   *config.File
	values map[string]config.Value
	list   []effective // the settings of the command, wherever they are from
	read   bool
	err    error // why the file is refused
}

// Validate implements kong.Resolver.
func (*fileSettings) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver.
func (s *fileSettings) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !s.read {
		s.read = true
		if s.err = s.load(ctx); s.err != nil {
			return nil, s.err
		}
	}
	v, ok := s.valueOf(ctx, flag)
	if !ok || variableOf(flag) != "" {
		return nil, nil
	}
	if v.List == nil {
		return v.Text, nil
	}
	list := make([]any, len(v.List))
	for i, item := range v.List {
		list[i] = item
	}
	return list, nil
}

// valueOf is what the file says for a flag of the command.
func (s *fileSettings) valueOf(ctx *kong.Context, flag *kong.Flag) (config.Value, bool) {
	b, ok := bind(commandOf(ctx), flag)
	if !ok || s.file == nil {
		return config.Value{}, false
	}
	v, ok := s.values[b.Name()]
	if ok && isPath(flag) {
		v.Text, v.List = located(s.file.Dir(), v.Text), slices.Clone(v.List)
		for i, item := range v.List {
			v.List[i] = located(s.file.Dir(), item)
		}
	}
	return v, ok
}

// load reads the file that the command line or the environment names, for commands that
// something in it could be for.
func (s *fileSettings) load(ctx *kong.Context) error {
	path := ""
	for _, f := range ctx.Flags() {
		switch f.Name {
		case "config":
			path, _ = ctx.FlagValue(f).(string)
			return s.open(ctx.Model, path)
		case "store":
			path = os.Getenv(configVariable)
		}
	}
	return s.open(ctx.Model, path)
}

func (s *fileSettings) open(app *kong.Application, path string) error {
	if path == "" {
		return nil
	}
	file, err := config.Load(path)
	if err != nil {
		return badConfig(err)
	}
	if s.values, err = file.Values(settingsOf(bindings(app))); err != nil {
		return badConfig(err)
	}
	s.file = file
	return nil
}

// commandOf is the command that runs, with the words before it: "token create".
func commandOf(ctx *kong.Context) string {
	var words []string
	for node := ctx.Selected(); node != nil && node.Type == kong.CommandNode; node = node.Parent {
		words = append(words, node.Name)
	}
	slices.Reverse(words)
	return strings.Join(words, " ")
}

// variableOf is the environment variable that a flag has its value from, "" for none.
func variableOf(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return name
		}
	}
	return ""
}
