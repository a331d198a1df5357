package chain

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

const sectionChains = "chains"

//go:embed schema.json
var schemas []byte

func init() {
	module.Register(module.Module{
		Name:     "chain",
		Commands: commands(),
		Sections: []module.Section{{Name: sectionChains, About: "Steps across MCP servers: [chains](../chains.md). Changes, also of definitions, apply immediately; of the retention, within an hour; of state, at the next start.", Show: showSection}},
		Schemas:  schemas,
		Formats:  []module.Format{{Name: "chain", About: "a chain (JSON Schema 2020-12)", Schema: func() any { return FormatSchema() }}},
		Check: func(c module.Check) error {
			_, err := readChains(c.File, nil)
			return err
		},
		Lint:   []module.LintRule{{Name: "chains", Read: readEntryRule}},
		Extend: extend,
		Procedures: func(file *config.File) []operation.Procedure {
			section, _ := readChains(file, nil) // Check reports mistakes in it
			return section.procedures()
		},
	})
}

// showSection shows the values of the section, with passwords removed from addresses.
func showSection(section *document.Node) (all []module.Shown, err error) {
	for _, key := range section.Keys() {
		text := section.Get(key).Text
		if d := driver.Find(text); d != nil {
			text = d.Describe(text)
		}
		all = append(all, module.Shown{Key: key, Value: text})
	}
	return all, nil
}

// readEntryRule returns a check of a definition's states against the chains of a configuration file.
func readEntryRule(file *config.File) (check func(*workflow.Definition) error, err error) {
	section, err := readChains(file, nil)
	if err != nil {
		return nil, err
	}
	known := map[string]*Definition{}
	if section != nil {
		known = section.byName
	}
	return func(d *workflow.Definition) error {
		if issues := CheckEntries([]*workflow.Definition{d}, known)[d.Name]; len(issues) > 0 {
			return &workflow.ParseError{Source: file.Path(), Issues: issues}
		}
		return nil
	}, nil
}

// completeRun returns the runs whose id begins with the typed text.
func completeRun(ctx context.Context, at operation.Caller, typed string, most int) (found []operation.Completion, err error) {
	const prefix, whole = "run-", len("run-019d0a11-7a41-7c35-8bd6-a7a9f1f3c1d2")
	if strings.HasPrefix(typed, prefix) && len(typed) == whole {
		return nil, nil
	}
	i := slices.IndexFunc(operation.All(), func(op *operation.Operation) bool { return op.ID == "getRun" })
	if _, err := at.Ask(ctx, operation.All()[i], &RunRequest{Run: typed}); engine.CodeOf(err) != engine.CodeUnknownInstance {
		return nil, nil // an exact custom id, or runs cannot be queried
	}
	for page := (ListRuns{Limit: 500}); ; {
		list, err := AskRuns.Do(ctx, at, page)
		if err != nil {
			return nil, err //nolint:wrapcheck // an *engine.Error
		}
		for _, run := range list.Runs {
			if strings.HasPrefix(run.Run, typed) || strings.HasPrefix(run.Run, prefix+typed) {
				found = append(found, operation.Completion{Value: run.Run, About: fmt.Sprintf("%s, %s", run.Chain, run.Status)})
			}
		}
		if page.Cursor = list.NextCursor; page.Cursor == "" || len(found) > most {
			return found, nil
		}
	}
}

// commands returns the commands gavel chain and gavel schedule.
func commands() []module.Command {
	const chain, schedule = "chain", "schedule"
	below := func(parent, name, help, detail string, op *cli.OperationSpec) module.Command {
		return module.Command{Parent: parent, Name: name, Help: help, Detail: detail, New: cli.NewOperationCommand(op)}
	}
	change := func(op *operation.Operation, positional ...string) *cli.OperationSpec {
		return &cli.OperationSpec{
			Operation: op, Positional: append([]string{"run"}, positional...), BadCodes: []engine.Code{engine.CodeInstanceEnded, engine.CodeConflict},
			Text: func(_ context.Context, con *cli.Console, a cli.Answer) error {
				if run, ok := a.Result.(RunView); ok {
					con.Out.Printf("%s is %s\n", run.Run, con.Out.Outcome(string(run.Status)))
				}
				return nil
			},
		}
	}
	reschedule := func(op *operation.Operation) *cli.OperationSpec {
		return &cli.OperationSpec{Operation: op, Positional: []string{"chain"}, BadCodes: []engine.Code{engine.CodeConflict}, Text: printSchedule}
	}
	return []module.Command{
		{Name: chain, Group: "agents", Help: "Run steps across MCP servers, and check their definitions.", Detail: detailOf(chain)},
		{Parent: chain, Name: "lint", Help: "Check definitions of chains.", New: func() any { return &lintCommand{} }},
		{Parent: chain, Name: "graph", Help: "Draw a chain.", New: func() any { return &graphCommand{} }},
		{Parent: chain, Name: "run", Help: "Run a chain locally, and show its steps.", New: func() any { return &runCommand{} }},
		{Parent: chain, Name: "start", Help: "Start a run of a chain on a server.", New: func() any { return &startCommand{} }},
		{Parent: chain, Name: "list", Help: "List runs, newest first, or chains.", New: func() any { return &listCommand{} }},
		{Parent: chain, Name: "show", Help: "Show a run: its steps, waits and output.", New: func() any { return &showCommand{} }},
		below(chain, "signal", "Send a signal to a run.", detailOf("chain signal"), change(AskSignal.Operation, "name")),
		below(chain, "cancel", "End a run permanently.", detailOf("chain cancel"), change(AskCancel.Operation)),
		{Parent: chain, Name: "cancel-entry", Help: "Free an instance whose state waits for a chain that never ran.", New: func() any { return &cancelEntryCommand{} }},
		below(chain, "pause", "Stop a run before its next step.", detailOf("chain pause"), change(AskPause.Operation)),
		below(chain, "resume", "Continue a paused run.", detailOf("chain resume"), change(AskResume.Operation)),
		below(chain, "redrive", "Run a failed run again from the step that failed.", detailOf("chain redrive"), change(AskRedrive.Operation)),
		{Name: schedule, Group: "agents", Help: "Show, pause and trigger the schedules of chains.", Detail: detailOf(schedule)},
		below(schedule, "list", "List schedules, with the next run and the last tick of each.", detailOf("schedule list"), &cli.OperationSpec{
			Operation: AskSchedules.Operation, Rows: scheduleRows, EmptyText: cli.EmptyText("no chain has a schedule"), OptionalColumns: []string{"ACTS FOR"},
		}),
		below(schedule, "pause", "Pause a schedule, so that its ticks start no runs.", detailOf("schedule pause"), reschedule(AskPauseSchedule.Operation)),
		below(schedule, "resume", "Resume a paused schedule from now on.", detailOf("schedule resume"), reschedule(AskResumeSchedule.Operation)),
		below(schedule, "trigger", "Request a run now.", detailOf("schedule trigger"), reschedule(AskTrigger.Operation)),
	}
}

//go:embed help.txt
var helpText string

// detailOf returns the help text of a command.
func detailOf(command string) string {
	_, text, _ := strings.Cut(helpText, "=== "+command+"\n")
	text, _, _ = strings.Cut(text, "\n=== ")
	return strings.TrimRight(text, "\n")
}
