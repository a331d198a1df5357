package console

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
)

//go:embed assets/definitions.html
var definitionsTemplates string

//go:embed assets/definition.html
var definitionTemplates string

// Limits of the pages of definitions.
const (
	maxDefinitions  = 200
	maxVersions     = 12
	maxTransitions  = 200
	maxLintIssues   = 50
	maxLines        = 400   // of a difference
	maxLine         = 1_000 // characters of a line
	maxChoices      = 300   // states or actions in a list to choose from
	maxDiagramBytes = 512 << 10
)

// definitionsData is what the list of definitions shows.
type definitionsData struct {
	Query     string
	Workflows []engine.DefinitionSummary
	Found     int // before the list was cut
	Defined   int
}

// definitionsPage lists the newest versions of all definitions.
func definitionsPage() module.Page {
	return module.Page{
		Path: "definitions", Title: "Definitions", Place: module.InMenu, Order: 40, Needs: engine.RightRead,
		Templates: definitionsTemplates, Regions: []string{"workflows"},
		Load: func(ctx context.Context, v module.Visit) (any, error) { return loadDefinitions(ctx, v) },
	}
}

func loadDefinitions(ctx context.Context, v module.Visit) (d definitionsData, err error) {
	all, err := ask(ctx, v, operation.List, operation.Empty{})
	if err != nil {
		return d, err
	}
	d.Query, d.Defined = strings.TrimSpace(v.Values.Get("q")), len(all.Workflows)
	for _, w := range all.Workflows {
		if strings.Contains(strings.ToLower(w.Name+" "+w.Description), strings.ToLower(d.Query)) {
			d.Workflows = append(d.Workflows, w)
		}
	}
	d.Found = len(d.Workflows)
	d.Workflows = d.Workflows[:min(d.Found, maxDefinitions)]
	return d, nil
}

// definitionData is what the page of a definition shows.
type definitionData struct {
	engine.DefinitionView
	// Newest is the number of versions.
	Newest   int
	Versions []versionLink
	// Against is the version that Lines compares with; 0 if there is none.
	Against   int
	Lines     []diffLine
	MoreLines int
	// Diagram is "" if it is too large to show.
	Diagram template.HTML
	// Transitions are those of the definition and those that were asked for. States and Actions are choices; nil if
	// there are too many.
	Transitions     []transitionRow
	MoreTransitions int
	States, Actions []string
	// Period is how far back the figures reach; 0 if the decisions are too many to be counted.
	Period     time.Duration
	CutPeriod  bool
	Issues     []workflow.Issue
	MoreIssues int
	// State, Action and Data fill in the form of the playground.
	State, Action, Data string
}

// PageTitle implements titled.
func (d definitionData) PageTitle() string { return d.Name }

type versionLink struct {
	Version int
	Query   string
	Current bool
}

// transitionRow is a transition with its figures.
type transitionRow struct {
	State, Action, Targets string
	Asked, Refused         int64
	// Share is the share of refusals, and Width the same in percent.
	Share  float64
	Width  int
	Median float64
	Codes  string
	// Unknown reports that the definition has no such transition. Query fills in the playground.
	Unknown bool
	Query   string
}

// definitionPage shows one definition with its traffic, its lint, the changes of a version, and a playground.
func definitionPage(host module.SiteHost) module.Page {
	recent := &recentDefinitions{data: map[definitionKey]definitionData{}}
	load := func(ctx context.Context, v module.Visit) (definitionData, error) { return recent.load(ctx, host, v) }
	return module.Page{
		Path: "definitions/{name}", Title: "Definition", Needs: engine.RightRead,
		Templates: definitionTemplates, Regions: []string{"definition", "diagram", "traffic", "playground", "difference", "lint", "document"},
		Load:    func(ctx context.Context, v module.Visit) (any, error) { return load(ctx, v) },
		Follow:  func(v module.Visit) engine.TailRequest { return engine.TailRequest{Workflow: v.Path("name")} },
		Answers: map[string]func(context.Context, module.Visit) (any, error){"decide": func(ctx context.Context, v module.Visit) (any, error) { return judgeTrial(ctx, v) }},
		Files: map[string]func(context.Context, module.Visit) (module.File, error){
			"definition.json": func(ctx context.Context, v module.Visit) (module.File, error) {
				d, err := describeVersion(ctx, v, v.Values.Get("version"))
				return module.File{Name: d.Name + "-" + strconv.Itoa(d.Version) + ".json", Type: "application/json", Content: []byte(indentJSON(d.Definition))}, err
			},
			"difference.txt": func(ctx context.Context, v module.Visit) (module.File, error) {
				d, err := load(ctx, v)
				if err != nil {
					return module.File{}, err
				}
				text, err := compareVersions(ctx, v, d)
				return module.File{Name: d.Name + ".diff", Type: "text/plain; charset=utf-8", Content: []byte(text)}, err
			},
		},
	}
}

// definitionKey identifies what is shown of a definition. The hash is that of the newest version.
type definitionKey struct {
	who   engine.Principal
	hash  string
	query string
}

// definitionAge is how long the figures of a definition are reused: a busy workflow changes them all the time.
const definitionAge = 5 * time.Second

// maxRecent limits how many pages are kept, because a visitor chooses the query.
const maxRecent = 64

// recentDefinitions keeps what was loaded a moment ago.
type recentDefinitions struct {
	mu    sync.Mutex
	since time.Time
	data  map[definitionKey]definitionData
}

func (r *recentDefinitions) load(ctx context.Context, host module.SiteHost, v module.Visit) (definitionData, error) {
	newest, err := describeVersion(ctx, v, "")
	if err != nil {
		return definitionData{}, err
	}
	key := definitionKey{v.Call.Caller.Principal, newest.Hash, v.Values.Encode()}
	if d, ok := r.find(key); ok {
		return d, nil
	}
	d, err := loadDefinition(ctx, host, v, newest)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.data[key] = d
	}
	return d, err
}

func (r *recentDefinitions) find(key definitionKey) (definitionData, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now().Sub(r.since) > definitionAge || len(r.data) >= maxRecent {
		clear(r.data)
		r.since = now()
	}
	d, ok := r.data[key]
	return d, ok
}

// describeVersion returns a version of the page's workflow; "" is the newest.
func describeVersion(ctx context.Context, v module.Visit, version string) (engine.DefinitionView, error) {
	n, err := strconv.Atoi(cmp.Or(version, "0"))
	if err != nil || n < 0 {
		return engine.DefinitionView{}, &engine.Error{Code: engine.CodeInvalidArgument, Path: "/version", Message: "A version is a number from 1.", Hint: "Leave it out for the newest."}
	}
	return ask(ctx, v, operation.Describe, engine.DescribeRequest{Name: v.Path("name"), Version: n})
}

func loadDefinition(ctx context.Context, host module.SiteHost, v module.Visit, newest engine.DefinitionView) (d definitionData, err error) {
	d = definitionData{DefinitionView: newest, Newest: newest.Version, State: v.Values.Get("state"), Action: v.Values.Get("action")}
	if version := v.Values.Get("version"); version != "" && version != strconv.Itoa(newest.Version) {
		if d.DefinitionView, err = describeVersion(ctx, v, version); err != nil {
			return d, err
		}
	}
	for n := d.Newest; n > 0 && len(d.Versions) < maxVersions; n-- {
		d.Versions = append(d.Versions, versionLink{n, "?version=" + strconv.Itoa(n), n == d.Version})
	}
	d.Against = max(0, d.Version-1)
	if n, err := strconv.Atoi(v.Values.Get("against")); err == nil && n > 0 && n <= d.Newest && n != d.Version {
		d.Against = n
	}
	text, err := compareVersions(ctx, v, d)
	if err != nil {
		return d, err
	}
	d.Lines, d.MoreLines = readDiff(text)
	def, err := workflow.Parse("definition", d.Definition)
	if err != nil {
		return d, err
	}
	if err := d.lint(host, v); err != nil {
		return d, err
	}
	d.fillIn(def)
	if err := d.countTraffic(ctx, v, def); err != nil {
		return d, err
	}
	return d, nil
}

// compareVersions returns the difference to the version before.
func compareVersions(ctx context.Context, v module.Visit, d definitionData) (string, error) {
	if d.Against == 0 {
		return "", nil
	}
	before, err := describeVersion(ctx, v, strconv.Itoa(d.Against))
	if err != nil {
		return "", err
	}
	return cli.ShowDiff(d.Name, []byte(indentJSON(before.Definition)+"\n"), []byte(indentJSON(d.Definition)+"\n")), nil
}

// diffLine is a line of a difference: Kind is "+", "-", "@" or " ".
type diffLine struct{ Kind, Text string }

// readDiff returns the first lines of a unified diff, and how many follow.
func readDiff(text string) (lines []diffLine, more int) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "--- ") && len(lines) == 0 || strings.HasPrefix(line, "+++ ") && len(lines) == 0 || line == "" {
			continue
		}
		if len(lines) == maxLines {
			more++
			continue
		}
		lines = append(lines, diffLine{line[:1], cutText(showMarks(line[1:]), maxLine)})
	}
	return lines, more
}

// lint runs the rules that need no compiler: the engine compiled the definition when it accepted it.
func (d *definitionData) lint(host module.SiteHost, v module.Visit) error {
	req := workflow.LintRequest{Source: d.Name, Document: d.Definition, Models: host.Models, Trusted: d.Operator}
	if v.Call.Sources != nil {
		req.Sources = []string{}
		for _, s := range v.Call.Sources() {
			req.Sources = append(req.Sources, s.Name)
		}
	}
	encoded, err := req.Encode()
	if err != nil {
		return err
	}
	_, issues, err := req.ParseAnswer(workflow.AnswerLintRequest(encoded))
	d.Issues = issues[:min(len(issues), maxLintIssues)]
	d.MoreIssues = len(issues) - len(d.Issues)
	return err
}

// fillIn prepares the form of the playground for the transition in the address.
func (d *definitionData) fillIn(def *workflow.Definition) {
	for _, state := range def.StateNames {
		d.States = append(d.States, state)
		for _, action := range def.States[state].Actions {
			if !slices.Contains(d.Actions, action) && len(d.Actions) <= maxChoices {
				d.Actions = append(d.Actions, action)
			}
		}
	}
	if len(d.States) > maxChoices || len(d.Actions) > maxChoices {
		d.States, d.Actions = nil, nil
	}
	d.State = cmp.Or(d.State, def.InitialState)
	s := def.States[d.State]
	if s == nil || d.Action == "" && len(s.Actions) == 0 {
		return
	}
	d.Action = cmp.Or(d.Action, slices.Concat(s.Actions, []string{""})[0])
	if t := s.Transitions[d.Action]; t != nil && len(t.RequiredFields) > 0 {
		example := map[string]any{}
		for _, f := range t.RequiredFields {
			if !strings.ContainsFunc(f, isHidden) {
				example[f] = ""
			}
		}
		raw, _ := json.Marshal(example) //nolint:errchkjson // strings only
		d.Data = indentJSON(raw)
	}
}

// periods are the periods for which decisions are counted: a shorter one if a longer one takes too long.
var periods = []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour}

// maxCounting limits the time of counting the decisions of one period.
const maxCounting = 500 * time.Millisecond

// countTraffic loads the figures of the transitions.
func (d *definitionData) countTraffic(ctx context.Context, v module.Visit, def *workflow.Definition) error {
	var counted engine.StatisticsResult
	for _, period := range periods {
		within, cancel := context.WithTimeout(ctx, maxCounting)
		found, err := ask(within, v, operation.Statistics, engine.StatisticsRequest{Workflow: d.Name, Since: now().Add(-period)})
		timeout := within.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil {
			counted, d.Period = found, period
			break
		}
		if !timeout {
			return err
		}
	}
	d.CutPeriod = d.Period != periods[0]
	if err := d.draw(ctx, v); err != nil {
		return err
	}
	d.Transitions = listTransitions(def, counted)
	if n := len(d.Transitions) - maxTransitions; n > 0 {
		slices.SortStableFunc(d.Transitions, func(a, b transitionRow) int { return cmp.Compare(b.Asked, a.Asked) })
		d.Transitions, d.MoreTransitions = d.Transitions[:maxTransitions], n
	}
	return nil
}

// draw draws the version, with the figures of the period that could be counted.
func (d *definitionData) draw(ctx context.Context, v module.Visit) error {
	req := engine.DiagramRequest{Name: d.Name, Version: d.Version, Format: "svg"}
	if d.Period > 0 {
		req.Since = now().Add(-d.Period)
	}
	drawn, err := ask(ctx, v, operation.Diagram, req)
	if len(drawn.Diagram) <= maxDiagramBytes {
		d.Diagram = template.HTML(drawn.Diagram) //nolint:gosec // the renderer escapes every text
	}
	return err
}

func listTransitions(def *workflow.Definition, counted engine.StatisticsResult) (rows []transitionRow) {
	type key struct{ state, action string }
	figures := map[key]engine.TransitionStatistics{}
	for _, t := range counted.Transitions {
		figures[key{t.State, t.Action}] = t
	}
	add := func(row transitionRow) {
		t := figures[key{row.State, row.Action}]
		delete(figures, key{row.State, row.Action})
		row.Asked, row.Refused, row.Median = t.Decisions, t.Rejected, t.TookMedianMs
		if t.Decisions > 0 {
			row.Share = float64(t.Rejected) / float64(t.Decisions)
			row.Width = int(row.Share*100 + 0.5)
		}
		for i, c := range t.Codes {
			if i < 3 {
				row.Codes += strings.Repeat(", ", min(i, 1)) + c.Name + " " + strconv.FormatInt(c.Count, 10)
			}
		}
		rows = append(rows, row)
	}
	for _, state := range def.StateNames {
		for _, action := range def.States[state].Actions {
			var targets []string
			for _, r := range def.States[state].Transitions[action].Routes {
				if !slices.Contains(targets, r.Target) {
					targets = append(targets, r.Target)
				}
			}
			query := url.Values{"state": {state}, "action": {action}}
			add(transitionRow{State: state, Action: action, Targets: strings.Join(targets, ", "), Query: "?" + query.Encode() + "#playground"})
		}
	}
	for _, t := range counted.Transitions { // in their order
		if _, left := figures[key{t.State, t.Action}]; left {
			add(transitionRow{State: t.State, Action: t.Action, Unknown: t.Action != ""})
		}
	}
	return rows
}

// judgeTrial judges an action for the playground. Nothing is recorded.
func judgeTrial(ctx context.Context, v module.Visit) (engine.DecideResult, error) {
	version, err := strconv.Atoi(cmp.Or(v.Values.Get("version"), "0"))
	if err != nil {
		return engine.DecideResult{}, &engine.Error{Code: engine.CodeInvalidArgument, Path: "/version", Message: "The version is not a number.", Hint: "Load the page again."}
	}
	document := func(name string) json.RawMessage { return bytes.TrimSpace([]byte(v.Values.Get(name))) }
	return ask(ctx, v, operation.Decide, engine.DecideRequest{
		Workflow: v.Path("name"), Version: version, State: v.Values.Get("state"), Action: v.Values.Get("action"), Data: document("data"), Context: document("context"),
	})
}
