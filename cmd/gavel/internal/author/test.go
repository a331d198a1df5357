package author

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/suite"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// TestCommand runs tests of workflows.
type TestCommand struct {
	Paths    []string `arg:"" name:"path" help:"Files of tests, or folders: every *.test.yaml, *.test.yml and *.test.json below them."`
	Coverage bool     `name:"coverage" help:"List what the tests did not reach."`
	Least    float64  `name:"min-coverage" placeholder:"PERCENT" help:"Fail if the tests reach less than this share of the transitions."`
	JUnit    string   `name:"junit" placeholder:"FILE" help:"Also write a JUnit report."`
	JSON     bool     `name:"json" help:"Print JSON."`
	Watch    bool     `name:"watch" short:"w" help:"Run again whenever a file changes, until you stop it."`
}

// Run runs the tests, with --watch until ctx ends.
func (c *TestCommand) Run(ctx context.Context, con *cli.Console) error {
	if !(c.Least >= 0 && c.Least <= 100) {
		return term.UsageErrorf("", "--min-coverage is %v, must be 0 to 100", c.Least)
	}
	if !c.Watch {
		return c.runOnce(ctx, con)
	}
	if c.JSON || c.JUnit != "" {
		return term.UsageErrorf("", "--watch cannot be used with --json or --junit")
	}
	for seen := ""; ; {
		now := c.fingerprint()
		if now != seen {
			seen = now
			if err := c.runOnce(ctx, con); err != nil && ctx.Err() == nil {
				con.Err.PrintError(err)
			}
			con.Out.Printf("\nWatching %s; press Ctrl-C to stop.\n", strings.Join(c.Paths, " "))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(300 * time.Millisecond):
		}
	}
}

func (c *TestCommand) fingerprint() string {
	var b strings.Builder
	files, _ := testFiles(c.Paths) // the run reports unreadable files
	for _, path := range files {
		paths := []string{path}
		if doc, err := os.ReadFile(path); err == nil {
			if f, err := suite.Parse(path, doc); err == nil {
				paths = append(paths, f.Definition())
				if req, err := cli.ReadDefinition(f.Definition()); err == nil {
					cli.NoteFiles(&req, func(named string) { paths = append(paths, named) })
					_, _ = workflow.ParseWithFiles(req.Source, req.Document, req.Files) // the run reports mistakes
				}
			}
		}
		for _, p := range paths {
			if info, err := os.Stat(p); err == nil { //nolint:gosec // the user names the files
				fmt.Fprintf(&b, "%s %d %d\n", p, info.Size(), info.ModTime().UnixNano())
			}
		}
	}
	return b.String()
}

// TestReport is the JSON result of gavel test.
type TestReport struct {
	OK     bool           `json:"ok"`
	Tests  int            `json:"tests"`
	Failed int            `json:"failed"`
	Files  []suite.Report `json:"files"`
}

func (c *TestCommand) runOnce(ctx context.Context, con *cli.Console) error {
	files, err := testFiles(c.Paths)
	if err != nil {
		return err
	}
	box, err := cli.NewSandbox(con.Log)
	if err != nil {
		return err
	}
	defer func() { _ = box.Close() }() // the workers have no state
	report := TestReport{OK: true, Files: []suite.Report{}}
	for _, path := range files {
		r, err := runTests(ctx, box, con.Log, path)
		if err != nil {
			return err
		}
		report.Files = append(report.Files, r)
		report.Tests += len(r.Tests)
		report.Failed += r.Failed()
		report.OK = report.OK && r.Failed() == 0 && r.Coverage.Transitions.Percent() >= c.Least
	}
	if c.JUnit != "" {
		err = writeJUnit(c.JUnit, report.Files, c.Least)
	}
	err = errors.Join(err, con.Print(c.JSON, report, func() { c.print(con, report) }))
	return cmp.Or(err, cli.ExitBadUnless(report.OK))
}

func runTests(ctx context.Context, box *gavel.Sandbox, log *slog.Logger, path string) (suite.Report, error) {
	doc, err := os.ReadFile(path)
	if err != nil {
		return suite.Report{}, term.UnknownErrorf("", "cannot read %s: %w", path, err)
	}
	f, err := suite.Parse(path, doc)
	if err != nil {
		if _, ok := errors.AsType[document.Errors](err); ok {
			return suite.Report{}, term.UsageErrorf("gavel test --help shows the form of a test file", "%w", err)
		}
		return suite.Report{}, term.UsageErrorf("", "%w", err)
	}
	definition, err := cli.ReadDefinition(f.Definition())
	if err != nil {
		return suite.Report{}, term.UsageErrorf("workflow: is a path, relative to the file of tests", "%s: cannot read its workflow: %w", path, err)
	}
	r, err := suite.Run(ctx, f, definition, func(fetcher judge.Fetcher, model judge.Layer) (*engine.Engine, func() error, error) {
		return openForTests(ctx, box, log, fetcher, model)
	})
	if known, ok := errors.AsType[*engine.Error](err); ok && known.Code == engine.CodeInvalidDefinition && len(known.Issues) > 0 {
		return r, cli.ParseError(definition.Source, "workflow definition", &workflow.ParseError{Issues: known.Issues})
	}
	if err != nil {
		log.Debug("tests could not be run", "file", path, "error", err)
		return r, cli.EngineFailure(err)
	}
	return r, nil
}

func openForTests(ctx context.Context, box *gavel.Sandbox, log *slog.Logger, fetcher judge.Fetcher, model judge.Layer) (*engine.Engine, func() error, error) {
	sys, err := gavel.Open(ctx, gavel.Config{
		Sandbox: box, Logger: log, Fetcher: fetcher, Model: func(judge.Memory) (judge.Layer, error) { return model, nil },
	})
	if err != nil {
		return nil, nil, err
	}
	return sys.Engine, sys.Close, nil
}

// print prints a line for every test, followed by its problems if it failed.
func (c *TestCommand) print(con *cli.Console, report TestReport) {
	for _, r := range report.Files {
		con.Out.Printf("%s (%s)\n", term.Clean(r.Path), term.Clean(r.Workflow))
		for _, t := range r.Tests {
			verdict := "pass"
			if len(t.Problems) > 0 {
				verdict = "FAIL"
			}
			con.Out.Printf("  %s  %s (%s)\n", verdict, term.Clean(t.Name), term.Count(t.Steps, "step"))
			for _, p := range t.Problems {
				con.Out.Printf("        line %d, step %s: %s\n", p.Line, term.Clean(p.Step), term.Clean(p.Message))
			}
		}
		cover := r.Coverage
		con.Out.Printf("  covered: states %s, transitions %s, refusals %s, validators %s\n",
			formatShare(cover.States), formatShare(cover.Transitions), formatShare(cover.Refusals), formatShare(cover.Validators))
		if c.Coverage {
			for _, what := range []struct {
				name  string
				share suite.Share
			}{{"states", cover.States}, {"transitions", cover.Transitions}, {"refusals", cover.Refusals}, {"validators", cover.Validators}} {
				for _, missing := range what.share.Missing {
					con.Out.Printf("  not reached (%s): %s\n", what.name, term.Clean(missing))
				}
			}
		}
		if percent := cover.Transitions.Percent(); percent < c.Least {
			con.Out.Printf("  FAIL  %.0f %% of the transitions were reached, %.0f %% are required\n", percent, c.Least)
		}
	}
	con.Out.Printf("%d passed, %d failed\n", report.Tests-report.Failed, report.Failed)
}

func formatShare(s suite.Share) string { return fmt.Sprintf("%d/%d", s.Reached, s.All) }

func writeJUnit(path string, reports []suite.Report, least float64) error {
	var b bytes.Buffer
	err := suite.WriteJUnit(&b, reports, least)
	if err == nil {
		err = os.WriteFile(path, b.Bytes(), 0o644) //nolint:gosec // not secret
	}
	if err != nil {
		return term.UnknownErrorf("", "cannot write the report: %w", err)
	}
	return nil
}

func testFiles(paths []string) ([]string, error) {
	return cli.FindFiles(paths, "file of tests", cli.TestEndings...)
}
