package author

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/script"
)

// ScriptCommand has the commands that run and test scripts.
type ScriptCommand struct {
	Run  scriptRunCmd  `cmd:"" help:"Run one validator on one input and print its verdict."`
	Test scriptTestCmd `cmd:"" help:"Run a table of validator tests."`
}

type scriptRunCmd struct {
	File     string `arg:"" name:"file" help:"The validator's source; - reads stdin."`
	Data     string `name:"data" default:"{}" placeholder:"JSON" help:"The action's data, or @FILE."`
	Context  string `name:"context" default:"{}" placeholder:"JSON" help:"The instance's context, or @FILE."`
	Evidence string `name:"evidence" default:"{}" placeholder:"JSON" help:"The evidence by name, or @FILE."`
	JSON     bool   `name:"json" help:"Print the verdict as JSON."`
}

func (c *scriptRunCmd) Run(ctx context.Context, con *cli.Console) error {
	source, err := cli.ReadSource(con, c.File)
	if err != nil {
		return err
	}
	data, err := cli.ReadJSONArgument("--data", c.Data)
	if err != nil {
		return err
	}
	state, err := cli.ReadJSONArgument("--context", c.Context)
	if err != nil {
		return err
	}
	fetched, err := cli.ReadJSONArgument("--evidence", c.Evidence)
	if err != nil {
		return err
	}
	box, err := cli.NewSandbox(con.Log)
	if err != nil {
		return err
	}
	defer func() { _ = box.Close() }() // its workers have no state
	reply, err := box.Pool.Run(ctx, script.Batch{
		Caller: gavel.Operator.ID, Owner: cli.OperatorOwner, Now: time.Now(), Seed: 1, Data: data, Context: state, Evidence: fetched, Console: true,
		Validators: []script.Script{{Name: filepath.Base(c.File), Kind: script.Validator, Source: string(source)}},
	})
	if err != nil {
		return term.UnknownErrorf("try again", "cannot run the validator: %w", err)
	}
	r := reply.Results[0]
	err = con.Print(c.JSON, scriptVerdict{Result: r, TookMs: reply.Took.Milliseconds(), Unhardened: reply.Unhardened}, func() { printVerdict(con, r) })
	return cmp.Or(err, cli.ExitBadUnless(r.Code == script.OK && r.Valid))
}

type scriptVerdict struct {
	script.Result
	TookMs     int64    `json:"tookMs"`
	Unhardened []string `json:"unhardened,omitempty"`
}

func printVerdict(con *cli.Console, r script.Result) {
	for _, line := range r.Console {
		con.Out.Printf("console: %s\n", line)
	}
	if r.Code != script.OK {
		con.Out.Printf("failed (%s): %s\n", r.Code, r.Detail)
		return
	}
	verdict := con.Out.Green("valid")
	if !r.Valid {
		verdict = con.Out.Red("invalid")
	}
	defer con.Out.Printf("%s, confidence %s\n", verdict, judge.FormatConfidence(r.Confidence))
	if r.Reason != "" {
		con.Out.Printf("reason: %s\n", r.Reason)
	}
	for _, v := range r.Violations {
		con.Out.Printf("violation: %s\n", v)
	}
	for _, s := range r.Suggestions {
		con.Out.Printf("suggestion: %s\n", s)
	}
}

type scriptTestCmd struct {
	File string `arg:"" name:"file" help:"A JSON list of cases."`
	JSON bool   `name:"json" help:"Print the reports as JSON."`
}

func (c *scriptTestCmd) Run(ctx context.Context, con *cli.Console) error {
	raw, err := os.ReadFile(c.File)
	if err != nil {
		return term.UsageErrorf("", "cannot read the cases: %w", err)
	}
	folder, err := os.OpenRoot(filepath.Dir(c.File)) // cases cannot read files outside their folder
	if err != nil {
		return term.UsageErrorf("", "cannot open the cases' folder: %w", err)
	}
	defer func() { _ = folder.Close() }()
	cases, err := script.ReadCases(raw, func(name string) ([]byte, error) { return fs.ReadFile(folder.FS(), filepath.ToSlash(name)) })
	if err != nil {
		return term.UsageErrorf("", "%s: %w", c.File, err)
	}
	box, err := cli.NewSandbox(slog.New(slog.DiscardHandler)) // some cases kill their worker on purpose
	if err != nil {
		return err
	}
	defer func() { _ = box.Close() }() // its workers have no state
	var reports []script.CaseReport
	sum, err := box.Pool.RunCases(ctx, cases, func(r script.CaseReport) {
		reports = append(reports, r)
		if !c.JSON {
			printCase(con, r)
		}
	})
	if err != nil {
		return term.UnknownErrorf("try again", "cannot run the cases: %w", err)
	}
	err = con.Print(c.JSON, scriptReport{Cases: reports, CaseSummary: sum}, func() {
		con.Out.Printf("%d ms", sum.Took.Duration().Milliseconds())
		if sum.PeakMemory > 0 {
			con.Out.Printf(", a worker's memory at most %d MiB", (sum.PeakMemory+1<<20-1)>>20)
		}
		con.Out.Printf("\n%d passed, %d failed\n", sum.Passed, sum.Failed)
	})
	return cmp.Or(err, cli.ExitBadUnless(sum.Failed == 0))
}

type scriptReport struct {
	Cases []script.CaseReport `json:"cases"`
	script.CaseSummary
}

func printCase(con *cli.Console, r script.CaseReport) {
	if r.Pass {
		con.Out.Printf("%s  %s: %s (%d ms)\n", con.Out.Green("ok  "), r.Name, r.Got, r.Took.Duration().Milliseconds())
		return
	}
	con.Out.Printf("%s  %s: %s\n", con.Out.Red("FAIL"), r.Name, r.Miss)
}
