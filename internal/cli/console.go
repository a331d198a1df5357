package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
)

// Approval returns the approval that applies to the command; nil if the files are used as they are.
func (con *Console) Approval() module.Approval {
	if con.Settings == nil {
		return nil
	}
	return con.Settings.approval
}

// ListPlaces returns the store and the definition patterns that a configuration file names, resolved relative to
// it. Other keys are checked by the code that reads them.
func ListPlaces(file *config.File) (store string, definitions []string) {
	values, _ := file.Values([]config.Setting{{Key: config.KeyDefinitions, Form: config.List}})
	definitions = values[config.KeyDefinitions].List
	for i, pattern := range definitions {
		definitions[i] = locatePath(file.Dir(), pattern)
	}
	return locatePath(file.Dir(), file.Text(config.KeyStore)), definitions
}

// ReadDefinitions parses the definitions that match patterns.
func ReadDefinitions(patterns []string) (module.Definitions, error) {
	all, problems := module.Definitions{}, []error(nil)
	for _, pattern := range patterns {
		files, err := DefinitionFiles([]string{pattern})
		problems = append(problems, err)
		for _, file := range files {
			name, err1 := LocateFile(file)
			d, err2 := ParseDefinition(file)
			if err := errors.Join(err1, err2); err != nil {
				problems = append(problems, term.UsageErrorf("check it with: gavel lint", "%w", err))
				continue
			}
			all[name] = d
		}
	}
	return all, errors.Join(problems...)
}

// OpenExistingStore opens an existing store for reading. It returns nil for a store in memory, and if no store file
// has content.
func OpenExistingStore(ctx context.Context, flags StoreFlag) (store.Store, error) {
	if flags.Store == gavel.Memory {
		return nil, nil //nolint:nilnil // nil means that there is no store
	}
	place := StoreLocation{Path: flags.Store}
	if !place.IsDatabase() {
		places := flags.Candidates()
		at := slices.IndexFunc(places, func(path string) bool {
			info, err := os.Stat(path)
			return err == nil && info.Mode().IsRegular() && info.Size() > 0
		})
		if at < 0 {
			return nil, nil //nolint:nilnil // nil means that there is no store
		}
		place.Path = places[at]
	}
	db, _, err := OpenArchive(ctx, place)
	return db, err
}

// OpenOrCreateStore opens a store, creating it if necessary. Moves that need a person are parked for review.
func OpenOrCreateStore(ctx context.Context, con *Console, flags StoreFlag) (*System, error) {
	at, err := flags.Locate(con.Log, true)
	if err != nil {
		return nil, err
	}
	return OpenSystem(ctx, con.Log, at, SystemOptions{Reviews: true})
}

// LogFlags configure the log.
type LogFlags struct {
	LogLevel  string `name:"log-level" enum:"debug,info,warn,error" default:"warn" placeholder:"LEVEL" help:"Least important message to write to stderr: debug, info, warn (the default) or error."`
	LogFormat string `name:"log-format" enum:"text,json" default:"text" placeholder:"FORMAT" help:"The format of messages on stderr: text (the default), or json, one object per line."`
}

// Console holds the streams of a command. Commands get it injected and use no global stream.
type Console struct {
	In     io.Reader
	Out    *term.Terminal // results
	Err    *term.Terminal // everything else that a person reads
	RawOut io.Writer      // for protocols; never for people
	Log    *slog.Logger
	Level  *slog.LevelVar // of Log

	// Unsure is set if the result may be about another store than the intended one. Then the exit code is not 0.
	Unsure bool

	Errors   *slog.Logger  // the log for errors, if stderr is JSON lines
	Args     []string      // of the program
	Implied  bool          // Args were added because there were none
	Settings *FileSettings // the values from the configuration file

	// Parse parses arguments into a struct of commands, as the program does.
	Parse func(grammar any, args []string, stdout, stderr io.Writer, options ...kong.Option) (*kong.Context, *FileSettings, error)
	// CheckConfig finds the mistakes of a configuration file.
	CheckConfig func(path string) error
}

// LogJSON is the --log-format of JSON lines.
const LogJSON = "json"

// LogErrors makes all output to stderr lines of JSON.
func (con *Console) LogErrors(stderr io.Writer) {
	con.Errors = telemetry.NewLogger(stderr, slog.LevelInfo, true)
	con.Err = term.New(logLines{con.Errors})
}

// LogError is term's PrintError for a stderr with lines of JSON.
func LogError(log *slog.Logger, err error) int {
	f, ok := errors.AsType[*term.ExitError](err)
	if !ok {
		f = &term.ExitError{Code: term.ExitUnknown, Err: err}
	}
	if f.Err == nil {
		return f.Code
	}
	about := []any{"exit", f.Code}
	if f.Reason != "" {
		about = append(about, "code", f.Reason)
	}
	if f.Hint != "" {
		about = append(about, "hint", f.Hint)
	}
	if len(f.Lines) > 0 {
		about = append(about, "mistakes", f.Lines)
	}
	log.Error(strings.TrimSpace(f.Err.Error()), about...) //nolint:sloglint // the error is the message
	return f.Code
}

// WithoutSettings returns the environment without gavel's settings.
func WithoutSettings(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), IsSetting)
}

// IsSetting reports whether a variable configures gavel.
func IsSetting(name string) bool {
	return strings.HasPrefix(name, "GAVEL_") || strings.HasPrefix(name, "LLM_")
}

// logLines converts each line for a person into a log message. If programs read stderr, all of its output must have
// the form of their logs.
type logLines struct{ log *slog.Logger }

func (l logLines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line != "" {
			l.log.Info(line) //nolint:sloglint // the line is the message
		}
	}
	return len(p), nil
}

// LogLevel returns the level of that name.
func LogLevel(name string) (level slog.Level) {
	_ = level.UnmarshalText([]byte(name)) // the flag allows only valid names
	return level
}

// Converse prompts for lines of stdin and passes them to do. It returns when do is done or fails, when stdin ends,
// or when ctx ends.
func (con *Console) Converse(ctx context.Context, prompt string, do func(line string) (done bool, err error)) error {
	lines, failed := make(chan string), make(chan error, 1)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(con.In)
		in.Buffer(nil, 1<<20)
		for in.Scan() {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
		failed <- in.Err()
	}()
	for {
		con.Out.Printf("%s", prompt)
		select {
		case <-ctx.Done():
			return nil
		case line, more := <-lines:
			if !more {
				con.Out.Printf("\n")
				if err := <-failed; err != nil {
					return term.UsageErrorf("", "cannot read stdin: %w", err)
				}
				return nil
			}
			if done, err := do(strings.TrimSpace(line)); done || err != nil {
				return err
			}
		}
	}
}
