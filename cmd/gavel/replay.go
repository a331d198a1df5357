package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine/embed"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/replay"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/values"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/prompts"
)

type replayCmd struct {
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only decisions of this workflow."`
	timeFilter
	Definition  []string `name:"definition" placeholder:"FILE" help:"Judge under the definition in this file instead of the one of then; only decisions of its workflow. Repeatable."`
	Least       *float64 `name:"min-confidence" placeholder:"C" help:"Judge with this minConfidence, 0 to 1; it only warns where strictMode is off."`
	Strict      bool     `name:"strict" help:"Judge with strictMode."`
	Mode        string   `name:"mode" enum:"recorded,replay,record,record-missing,live" default:"recorded" placeholder:"MODE" help:"Where the model's answers come from: recorded (the default; what it answered then), replay (the cassette alone), record, record-missing, or live."`
	Ask         string   `name:"model" placeholder:"NAME" help:"Ask this model, also where a definition names another one. Default: --llm-model."`
	Prompt      string   `name:"prompt" placeholder:"ID" help:"Let recorded answers count only if they were asked for with this prompt, as it is today; ask with it where the model is asked."`
	Tape        string   `name:"cassette" placeholder:"FILE" help:"The model's recorded answers."`
	MaxFlips    *int64   `name:"max-flips" placeholder:"N" help:"Exit with 4 when more decisions than this come out otherwise."`
	MaxApproved *int64   `name:"max-new-approvals" placeholder:"N" help:"Exit with 4 when more than this are approved now that were not then."`
	MaxLeft     string   `name:"max-not-replayed" placeholder:"SHARE" help:"Exit with 3 when a larger share than this cannot be judged again."`
	Shadow      bool     `name:"shadow" help:"Judge nothing; only sum up what was decided in shadow mode."`
	List        int      `name:"list" default:"100" placeholder:"N" help:"List this many flips of each direction. Default: 100."`
	Workers     int      `name:"workers" placeholder:"N" help:"Judge this many at once. Default: one for each processor."`
	Out         []string `name:"out" placeholder:"FILE" help:"Write the report, too: .txt, .json or .html. Repeatable."`
	JSON        bool     `name:"json" help:"Print JSON."`
	storeFlag
	modelFlags
}

func (replayCmd) Help() string {
	return `Puts recorded decisions to the judge once more, each exactly as it was put: context, facts,
data, rights and the evidence that was fetched. What comes out otherwise is listed, moves
that would be approved now and were not then first. Without a change, nothing should.

The store is only read; nothing is fetched, counted or cached. What a model answered then
is its answer now, unless --mode asks it again. What cannot be judged again is counted with
the reason. docs/replay.md has the reasons and the limits of all this.

Examples:

    gavel replay
    gavel replay --definition flows/review.yaml --max-new-approvals 0
    gavel replay --workflow review --since 30d --min-confidence 0.9 --json
    gavel replay --mode live --model gpt-5-mini --workflow review --max-flips 5
    gavel replay --shadow

Exit codes: 0 fine, 1 the definition is bad, 2 wrong usage, 3 could not find out, 4 more
flips or new approvals than allowed.`
}

func (c *replayCmd) Run(ctx context.Context, con *console) (err error) {
	cfg, about, err := c.settings()
	if err != nil {
		return err
	}
	at, err := c.place(con.log, false)
	if err != nil {
		return err
	}
	about.Store = at.String()
	db, key, err := openArchive(ctx, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	cfg.From = db
	if key == nil {
		con.log.Warn("the store's key is not there; contexts are not held against their digests, and sealed values cannot be read", "key", cmp.Or(at.missingKey(), "--store-key"))
	}
	if key != nil {
		cfg.Query.Digester, cfg.Query.Values = record.NewDigester(key), values.NewKeyring(db, key)
	}
	box, err := newSandbox(con.log)
	if err != nil {
		return err
	}
	defer func() { _ = box.Close() }() // the workers hold nothing
	cfg.Compiler = box.Compiler
	if err := c.redefine(ctx, box, &cfg, &about); err != nil {
		return err
	}
	if err := c.known(ctx, db, cfg.Change.Definitions); err != nil {
		return err
	}
	asked, err := c.openModel(con, &cfg, &about)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, asked.Close()) }()
	progress := con.err.NewProgress()
	cfg.Progress = func(done int64) { progress.Update("%d decisions", done) }
	r, err := replay.Run(ctx, cfg)
	progress.Finish("")
	if err != nil {
		return engineFailure(err)
	}
	return c.conclude(con, about, r)
}

func (c *replayCmd) settings() (cfg replay.Config, about replay.About, err error) {
	about = replay.About{Changed: []string{}, Selected: []string{}, Answers: "as they were recorded"}
	since, until, err := c.times(time.Now())
	if err != nil {
		return cfg, about, err
	}
	cfg.Query = replay.QuestionQuery{Workflow: c.Workflow, Since: since, Until: until}
	cfg.ShadowOnly, cfg.Workers, cfg.Listed = c.Shadow, c.Workers, c.List
	cfg.Gates = replay.Gates{MaxFlips: c.MaxFlips, MaxNewApprovals: c.MaxApproved}
	if c.MaxLeft != "" {
		share, err := parseShare(c.MaxLeft)
		if err != nil {
			return cfg, about, term.UsageErrorf("", "--max-not-replayed: %w", err)
		}
		cfg.Gates.MaxNotReplayed = &share
	}
	if err := cfg.Gates.Validate(); err != nil {
		return cfg, about, term.UsageErrorf("", "%w", err)
	}
	for flag, text := range map[string]string{"workflow": c.Workflow, "since": c.Since, "until": c.Until} {
		if text != "" {
			about.Selected = append(about.Selected, flag+" "+text)
		}
	}
	slices.Sort(about.Selected)
	if c.List < 1 || c.Workers < 0 || c.Workers > 1000 {
		return cfg, about, term.UsageErrorf("", "--list is 1 or more, --workers 0 to 1000")
	}
	if err := checkExtensions(c.Out, ".txt", ".json", ".html"); err != nil {
		return cfg, about, err
	}
	return cfg, about, c.change(&cfg, &about)
}

// change takes what is to be otherwise from the flags.
func (c *replayCmd) change(cfg *replay.Config, about *replay.About) error {
	if c.Shadow {
		if c.Least != nil || c.Strict || c.Prompt != "" || c.Ask != "" || len(c.Definition) > 0 || cfg.Gates.Any() || c.Mode != "recorded" {
			return term.UsageErrorf("leave --shadow out to judge again", "--shadow only sums up what was decided; it goes without changes and limits")
		}
		return nil
	}
	if c.Least != nil {
		if !(*c.Least >= 0 && *c.Least <= 1) {
			return term.UsageErrorf("", "--min-confidence is %v, must be 0 to 1", *c.Least)
		}
		cfg.Change.MinConfidence = c.Least
		about.Changed = append(about.Changed, fmt.Sprintf("minConfidence %v", *c.Least))
	}
	if c.Strict {
		cfg.Change.StrictMode = &c.Strict
		about.Changed = append(about.Changed, "strictMode")
	}
	if c.Prompt != "" {
		p, err := prompts.Render(c.Prompt, prompts.Input{})
		if err != nil {
			return term.UsageErrorf("", "--prompt: %w", err)
		}
		if c.Mode == "recorded" {
			cfg.Change.PromptDigest = p.Digest
		} else {
			cfg.Change.Prompt = p.ID
		}
		about.Changed = append(about.Changed, "prompt "+p.ID+" "+p.Digest)
	}
	return nil
}

// redefine reads the other definitions; one with errors is not judged by.
func (c *replayCmd) redefine(ctx context.Context, box *embed.Sandbox, cfg *replay.Config, about *replay.About) error {
	files, err := definitionFiles(c.Definition)
	if err != nil {
		return err
	}
	for _, file := range files {
		linted, err := lintOne(ctx, workflow.LintOptions{Compiler: box.Compiler, Owner: operatorOwner}, file)
		if err != nil {
			return err
		}
		bad := &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("%s cannot be judged by", file)}
		for _, issue := range linted.Issues {
			if issue.Severity == workflow.SeverityError {
				bad.Lines = append(bad.Lines, issueLine(file, issue))
			}
		}
		if len(bad.Lines) > 0 {
			return bad
		}
		d := linted.definition
		if cfg.Change.Definitions == nil {
			cfg.Change.Definitions = map[string]*workflow.Definition{}
		}
		if cfg.Change.Definitions[d.Name] != nil {
			return term.UsageErrorf("", "%s defines %q, which another file defines already", file, d.Name)
		}
		if c.Workflow != "" && c.Workflow != d.Name {
			return term.UsageErrorf("", "%s defines %q, and --workflow is %q", file, d.Name, c.Workflow)
		}
		cfg.Change.Definitions[d.Name] = d
		cfg.Query.Workflow = d.Name
		about.Changed = append(about.Changed, fmt.Sprintf("definition %s %s", d.Name, d.Hash))
	}
	if len(cfg.Change.Definitions) > 1 {
		cfg.Query.Workflow = ""
	}
	return nil
}

// known refuses workflows that the store does not have: a limit on them would always hold.
func (c *replayCmd) known(ctx context.Context, db replay.Archive, definitions map[string]*workflow.Definition) error {
	names := slices.Collect(maps.Keys(definitions))
	if c.Workflow != "" {
		names = append(names, c.Workflow)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		_, err := db.Definition(ctx, name, 0)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return term.UsageErrorf("gavel history stats lists what was decided", "the store has no workflow %q", name)
		case err != nil:
			return term.UnknownErrorf("", "cannot read the definition: %w", err)
		}
	}
	return nil
}

// openModel is the model that is asked now; nil where recorded answers count.
func (c *replayCmd) openModel(con *console, cfg *replay.Config, about *replay.About) (*model, error) {
	switch {
	case c.Mode == "recorded" && (c.Ask != "" || c.Tape != ""):
		return nil, term.UsageErrorf("--mode live asks it, --mode replay --cassette FILE plays its answers back", "recorded decisions hold the answers of the models that were asked then; --model and --cassette need another --mode")
	case c.Mode == "recorded" || c.Shadow:
		return nil, nil
	}
	if c.Ask != "" {
		c.Model, cfg.Change.DefaultModel = c.Ask, true
		about.Changed = append(about.Changed, "model "+c.Ask)
	}
	if c.Model == "" {
		return nil, term.UsageErrorf("give --model, or set LLM_JUDGE_MODEL", "--mode %s needs a model", c.Mode)
	}
	c.Budget = 0 // what a principal may ask for is about moves
	m, err := c.openMeasured(con.log, c.Mode, c.Tape)
	if err != nil {
		return nil, err
	}
	if cfg.Model, err = m.measured(m.cassette != nil); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	about.Answers = c.Mode + ", model " + c.Model
	return m, nil
}

type replayed struct {
	About replay.About `json:"about"`
	replay.Report
}

type shadowed struct {
	About replay.About `json:"about"`
	replay.Shadow
}

func (c *replayCmd) conclude(con *console, about replay.About, r replay.Report) error {
	doc, page := any(replayed{about, r}), r.Page(about)
	if c.Shadow {
		doc, page = shadowed{about, r.Shadow}, r.Shadow.Page(about)
	}
	render := renderPage(page)
	render[".json"] = func(w io.Writer) error { return writeIndented(w, doc) }
	// Files come first: whoever reads the text may stop reading, and end this program.
	if err := errors.Join(render.writeFiles(c.Out), printOr(con, c.JSON, doc, render[".txt"])); err != nil {
		return err
	}
	switch {
	case r.Regression:
		return &term.ExitError{Code: term.ExitRegression}
	case !r.Evaluated:
		return &term.ExitError{Code: term.ExitUnknown}
	}
	return nil
}

func writeIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
