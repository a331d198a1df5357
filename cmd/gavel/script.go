package main

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/script"
)

type scriptCmd struct {
	Run  scriptRunCmd  `cmd:"" help:"Run one validator on one input and print its verdict."`
	Test scriptTestCmd `cmd:"" help:"Run a table of validator tests."`
}

type scriptRunCmd struct {
	File     string `arg:"" name:"file" help:"The validator's source; - reads stdin."`
	Data     string `name:"data" default:"{}" placeholder:"JSON" help:"The action's data, or @FILE."`
	Context  string `name:"context" default:"{}" placeholder:"JSON" help:"The instance's context, or @FILE."`
	Evidence string `name:"evidence" default:"{}" placeholder:"JSON" help:"What the gate fetched, by name, or @FILE."`
	JSON     bool   `name:"json" help:"Print the verdict as JSON."`
}

func (c *scriptRunCmd) Run(ctx context.Context, con *console) error {
	source, err := readSource(con, c.File)
	if err != nil {
		return err
	}
	data, err := jsonArgument("--data", c.Data)
	if err != nil {
		return err
	}
	state, err := jsonArgument("--context", c.Context)
	if err != nil {
		return err
	}
	fetched, err := jsonArgument("--evidence", c.Evidence)
	if err != nil {
		return err
	}
	box, err := newSandbox(con.log)
	if err != nil {
		return err
	}
	defer func() { _ = box.Close() }() // its workers have no state
	reply, err := box.Pool.Run(ctx, script.Batch{
		Caller: gavel.Operator.ID, Owner: operatorOwner, Now: time.Now(), Seed: 1, Data: data, Context: state, Evidence: fetched, Console: true,
		Validators: []script.Script{{Name: filepath.Base(c.File), Kind: script.Validator, Source: string(source)}},
	})
	if err != nil {
		return term.UnknownErrorf("try again", "cannot run the validator: %w", err)
	}
	r := reply.Results[0]
	err = con.print(c.JSON, scriptVerdict{Result: r, TookMs: reply.Took.Milliseconds(), Unhardened: reply.Unhardened}, func() { printVerdict(con, r) })
	return cmp.Or(err, badUnless(r.Code == script.OK && r.Valid))
}

type scriptVerdict struct {
	script.Result
	TookMs     int64    `json:"tookMs"`
	Unhardened []string `json:"unhardened,omitempty"`
}

func printVerdict(con *console, r script.Result) {
	for _, line := range r.Console {
		con.out.Printf("console: %s\n", line)
	}
	if r.Code != script.OK {
		con.out.Printf("failed (%s): %s\n", r.Code, r.Detail)
		return
	}
	verdict := con.out.Green("valid")
	if !r.Valid {
		verdict = con.out.Red("invalid")
	}
	defer con.out.Printf("%s, confidence %s\n", verdict, judge.FormatConfidence(r.Confidence))
	if r.Reason != "" {
		con.out.Printf("reason: %s\n", r.Reason)
	}
	for _, v := range r.Violations {
		con.out.Printf("violation: %s\n", v)
	}
	for _, s := range r.Suggestions {
		con.out.Printf("suggestion: %s\n", s)
	}
}

type scriptTestCmd struct {
	File string `arg:"" name:"file" help:"A JSON list of cases."`
	JSON bool   `name:"json" help:"Print the reports as JSON."`
}

func (c *scriptTestCmd) Run(ctx context.Context, con *console) error {
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
	box, err := newSandbox(slog.New(slog.DiscardHandler)) // some cases kill their worker on purpose
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
	err = con.print(c.JSON, scriptReport{Cases: reports, CaseSummary: sum}, func() {
		con.out.Printf("%d ms", sum.Took.Duration().Milliseconds())
		if sum.PeakMemory > 0 {
			con.out.Printf(", a worker's memory at most %d MiB", (sum.PeakMemory+1<<20-1)>>20)
		}
		con.out.Printf("\n%d passed, %d failed\n", sum.Passed, sum.Failed)
	})
	return cmp.Or(err, badUnless(sum.Failed == 0))
}

type scriptReport struct {
	Cases []script.CaseReport `json:"cases"`
	script.CaseSummary
}

func printCase(con *console, r script.CaseReport) {
	if r.Pass {
		con.out.Printf("%s  %s: %s (%d ms)\n", con.out.Green("ok  "), r.Name, r.Got, r.Took.Duration().Milliseconds())
		return
	}
	con.out.Printf("%s  %s: %s\n", con.out.Red("FAIL"), r.Name, r.Miss)
}

// readSource reads a source file, or stdin for "-". It reads at most 1 MiB, the limit of the sandbox.
func readSource(con *console, name string) ([]byte, error) {
	source, err := readInput(con.stdin, name, 1<<20)
	if err != nil {
		return nil, term.UsageErrorf("", "cannot read %s: %w", name, err)
	}
	return source, nil
}

// readInput reads at most limit bytes of a file, or of stdin for "-".
func readInput(stdin io.Reader, name string, limit int64) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // read only
		stdin = f
	}
	return io.ReadAll(io.LimitReader(stdin, limit))
}

func jsonArgument(flag, value string) (json.RawMessage, error) {
	raw := []byte(value)
	if len(value) > 0 && value[0] == '@' {
		var err error
		if raw, err = os.ReadFile(value[1:]); err != nil {
			return nil, term.UsageErrorf("", "%s: %w", flag, err)
		}
	}
	doc, err := workflow.CheckDocument(raw)
	if err != nil {
		return nil, term.UsageErrorf("give a JSON object, or @FILE with one in it", "%s: %w", flag, err)
	}
	return doc, nil
}
