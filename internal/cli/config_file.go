package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

// FileSettings provides the values of flags from the configuration file, if neither the command line nor the
// environment sets them. It implements kong.Resolver.
type FileSettings struct {
	file   *config.File
	values map[string]config.Value
	List   []EffectiveSetting // the settings of the command, from any origin
	read   bool
	Known  func() ([]config.Setting, []*kong.Flag, error) // what the file may set
	// Approved finds the version of the file that a person approved for a command; nil if the file is used as is.
	Approved func(command string, flag func(name string) string) (module.Approval, error)
	approval module.Approval // what Approved returned; nil if there is no approval
	Unpin    func()
	Err      error // why the file is rejected; its valid settings are still used, to find further mistakes
}

// Validate implements kong.Resolver.
func (*FileSettings) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver.
func (s *FileSettings) Resolve(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !s.read {
		s.read = true
		s.Err = s.load(ctx)
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

func (s *FileSettings) valueOf(ctx *kong.Context, flag *kong.Flag) (config.Value, bool) {
	setting, ok := SettingOf(commandOf(ctx), flag)
	if !ok || s.file == nil {
		return config.Value{}, false
	}
	v, ok := s.values[setting.Name()]
	if ok && isPath(flag) {
		v.Text, v.List = locatePath(s.file.Dir(), v.Text), slices.Clone(v.List)
		for i, item := range v.List {
			v.List[i] = locatePath(s.file.Dir(), item)
		}
	}
	return v, ok
}

// flagWord matches a flag in a message.
var flagWord = regexp.MustCompile(`--([a-z][a-z-]*)`)

// LocateError prefixes each mistake that names a flag from the file with its line in the file.
func (s *FileSettings) LocateError(ctx *kong.Context, err error) error {
	return s.LocateErrorIn(ctx, "", err)
}

// LocateErrorIn is LocateError for mistakes in a section of the file. Mistakes that name no flag get the line of
// the section.
func (s *FileSettings) LocateErrorIn(ctx *kong.Context, section string, err error) error {
	if err == nil || s.file == nil {
		return err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, s.LocateErrorIn(ctx, section, one))
		}
		return errors.Join(all...)
	}
	wrong, ok := errors.AsType[*term.ExitError](err)
	if !ok || wrong.Code != term.ExitUsage || wrong.Err == nil {
		return err
	}
	where := func(text string) string {
		name := flagWord.FindStringSubmatch(text)
		for _, flag := range ctx.Flags() {
			if name == nil || flag.Name != name[1] {
				continue
			}
			if origin, at := s.Origin(ctx, flag); origin == FromFile {
				return at + ": "
			}
		}
		if line := s.file.Line("", section); line > 0 && name == nil && !strings.HasPrefix(text, s.file.Path()) {
			return fmt.Sprintf("%s:%d: ", s.file.Path(), line)
		}
		return ""
	}
	located := *wrong
	if at := where(wrong.Err.Error()); at != "" {
		located.Err = fmt.Errorf("%s%w", at, wrong.Err)
	}
	located.Lines = slices.Clone(wrong.Lines)
	for i, line := range located.Lines {
		located.Lines[i] = where(line) + line
	}
	return &located
}

// load reads the file that --config or its variable names. For a command that answers an agent, it reads the approved
// text.
func (s *FileSettings) load(ctx *kong.Context) error {
	text := map[string]string{}
	for _, f := range ctx.Flags() {
		text[f.Name], _ = ctx.FlagValue(f).(string)
	}
	path := text["config"]
	if path == "" || s.Approved == nil {
		return s.open(path)
	}
	a, err := s.Approved(commandOf(ctx), func(name string) string { return text[name] })
	if err != nil {
		return err
	}
	if s.approval = a; a != nil { // every part of this process reads the approved text
		if s.Unpin, err = config.Pin(path, a.Text()); err != nil {
			return err
		}
	}
	return s.open(path)
}

func (s *FileSettings) open(path string) error {
	if path == "" {
		return nil
	}
	known, _, err := s.Known()
	if err != nil {
		return err
	}
	file, err := config.Load(path)
	if err != nil {
		return module.ConfigError(err)
	}
	s.file = file
	if s.values, err = file.Values(known); err != nil {
		return module.ConfigError(err)
	}
	return nil
}

// LogFormat returns the log format in the file, even if other settings in it are wrong.
func (s *FileSettings) LogFormat() string { return s.values[config.KeyLogFormat].Text }

func commandOf(ctx *kong.Context) string { return CommandName(ctx.Selected()) }

// CommandName returns the words of a command, without the program's name.
func CommandName(node *kong.Node) string {
	var words []string
	for ; node != nil && node.Type == kong.CommandNode; node = node.Parent {
		words = append(words, node.Name)
	}
	slices.Reverse(words)
	return strings.Join(words, " ")
}

// KeepVariablesForSettings disables the automatic environment variables of flags that are not settings. Flags with a
// key in the configuration file, --config and --server keep them, because they determine where and how gavel runs.
// The task of a single command, its reason and its principal must be given on its command line.
func KeepVariablesForSettings(parser *kong.Kong) error {
	var visit func(node *kong.Node)
	visit = func(node *kong.Node) {
		for _, f := range node.Flags {
			_, hasKey := SettingOf(CommandName(node), f)
			if len(f.Envs) == 0 && !hasKey && f.Name != "config" && f.Name != "server" {
				f.Envs = []string{"-"}
			}
		}
		for _, child := range node.Children {
			visit(child)
		}
	}
	visit(parser.Model.Node)
	return nil
}

// variableOf returns the environment variable that sets a flag, "" for none.
func variableOf(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return name
		}
	}
	return ""
}

// ServerSections are the commands whose own flags have sections in the configuration file.
var ServerSections = []string{config.SectionServe, config.SectionMCP}

// sharedKeys maps the flags that have one key for all commands.
var sharedKeys = map[string]string{
	"store": config.KeyStore, "store-key": config.KeyStoreKey, "definitions": config.KeyDefinitions,
	"log-level": config.KeyLogLevel, "log-format": config.KeyLogFormat,
	"llm-model": "model.name",
}

// sharedSections maps prefixes of flags to sections that apply to all commands.
var sharedSections = map[string]string{"llm-": config.SectionModel, "anchor-": config.SectionAnchors, "quota-": config.SectionQuotas}

// FindKey returns the section and key of a command's flag; ok is false if it has none. The command includes its parent
// commands, as in "token create".
func FindKey(command string, flag *kong.Flag) (section, key string, ok bool) {
	words := strings.Fields(command)
	if len(words) > 0 && slices.ContainsFunc(module.Commands(""), func(c module.Command) bool { return c.Unconfigured && c.Name == words[0] }) {
		return "", "", false
	}
	if name, shared := sharedKeys[flag.Name]; shared {
		section, key, ok = strings.Cut(name, ".")
		if !ok {
			section, key = "", name
		}
		return section, key, true
	}
	for prefix, section := range sharedSections {
		if rest, found := strings.CutPrefix(flag.Name, prefix); found {
			return section, camelCase(rest), true
		}
	}
	if len(words) == 0 || flag.Name == "help" || flag.Name == "config" || flag.Name == "json" {
		return "", "", false
	}
	if words[0] == "token" && flag.Name == "tokens" {
		return config.SectionServe, "tokens", true
	}
	if section := flag.Tag.Get("section"); section != "" {
		return section, camelCase(flag.Name), true
	}
	if last := words[len(words)-1]; slices.Contains(ServerSections, last) {
		return last, camelCase(flag.Name), true
	}
	return "", "", false
}

func camelCase(name string) string {
	words := strings.Split(name, "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// ListSettings returns all settings that the file may have, with their flags, in the order of the commands' flags.
func ListSettings(app *kong.Application) (all []config.Setting, flags []*kong.Flag) {
	seen := map[string]bool{}
	add := func(command string, of []*kong.Flag) {
		for _, f := range of {
			if s, ok := SettingOf(command, f); ok && !seen[s.Name()] {
				seen[s.Name()] = true
				all, flags = append(all, s), append(flags, f)
			}
		}
	}
	add("", app.Flags)
	for _, child := range app.Children {
		if slices.Contains(ServerSections, child.Name) {
			add(child.Name, child.Flags)
		}
	}
	return all, flags
}

// SettingOf returns the setting of a command's flag; false if it has none.
func SettingOf(command string, f *kong.Flag) (config.Setting, bool) {
	section, key, ok := FindKey(command, f)
	if !ok {
		return config.Setting{}, false
	}
	s := config.Setting{Section: section, Key: key, Form: formOf(f.Target.Type())}
	if s.Form == config.Text && f.Enum != "" {
		s.Choices = f.EnumSlice()
	}
	return s, true
}

func formOf(t reflect.Type) config.Form {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Duration]() {
		return config.Span
	}
	switch t.Kind() {
	case reflect.Bool:
		return config.Switch
	case reflect.Int, reflect.Int64:
		return config.Whole
	case reflect.Float64:
		return config.Number
	case reflect.Slice:
		return config.List
	default:
		return config.Text
	}
}

// isPath reports whether a flag's value is a path. In the file, paths are relative to the file's folder.
func isPath(f *kong.Flag) bool {
	return slices.Contains([]string{"FILE", "PATH", "GLOB"}, f.PlaceHolder)
}

// locatePath resolves a path from the file, relative to dir, the file's folder.
func locatePath(dir, place string) string {
	if place == "" || place == gavel.Memory || filepath.IsAbs(place) || gavel.IsDatabase(place) || IsKeyText(place) || CheckStore(place) != nil {
		return place
	}
	return filepath.Join(dir, place)
}
