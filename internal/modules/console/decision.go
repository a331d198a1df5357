package console

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// decisionParts are templates about decisions that several pages share; decisionTemplates are those of the page.
var (
	//go:embed assets/layers.html
	decisionParts string
	//go:embed assets/decision.html
	decisionTemplates string
)

// decisionData is what the page of a decision shows.
type decisionData struct {
	engine.HistoryEntry
	explained

	Instance engine.StatusResult
}

// PageTitle implements titled.
func (d decisionData) PageTitle() string {
	return firstOf(d.Action, "start") + " in " + d.Instance.Workflow
}

// Answer returns the decision's first sentence and the rest of its text.
func (d decisionData) Answer() (lines [2]string) {
	lines[0], lines[1] = splitSentence(describeRefusal(d.Decision))
	return lines
}

func decisionPage() module.Page {
	return module.Page{
		Path: "instances/{id}/decisions/{seq}", Title: "Decision", Place: module.Nowhere, Needs: engine.RightRead,
		Templates: decisionParts + decisionTemplates, Regions: []string{"decision", "flow", "facts"},
		Load: func(ctx context.Context, v module.Visit) (any, error) {
			d, found, err := loadDecision(ctx, v)
			if err != nil || !found {
				return nil, err
			}
			return d, nil
		},
		Follow: followInstance,
		Files: map[string]func(context.Context, module.Visit) (module.File, error){
			"decision.json": decisionFile("decision", func(d decisionData) any { return d.HistoryEntry }),
			"data.json":     decisionFile("data", func(d decisionData) any { return d.HistoryEntry.Data }),
			"context.json":  decisionFile("context", func(d decisionData) any { return d.Before }),
			"evidence.json": decisionFile("evidence", func(d decisionData) any { return d.Evidence }),
		},
	}
}

// decisionFile is a download of a part of a decision. Its name has the name of the part.
func decisionFile(name string, part func(decisionData) any) func(context.Context, module.Visit) (module.File, error) {
	return func(ctx context.Context, v module.Visit) (module.File, error) {
		d, found, err := loadDecision(ctx, v)
		if err == nil && !found {
			err = &engine.Error{Code: engine.CodeUnknownRevision, Message: "There is no such decision.", Hint: "Look at the timeline of the instance."}
		}
		return documentFile(fmt.Sprintf("%s-%d-%s.json", v.Path("id"), d.Seq, name), part(d)), err
	}
}

// loadDecision loads the decision that an event carries; found is false if it carries none.
func loadDecision(ctx context.Context, v module.Visit) (d decisionData, found bool, err error) {
	id := v.Path("id")
	seq, err := strconv.ParseInt(v.Path("seq"), 10, 64)
	if err != nil || seq < 1 {
		return d, false, nil //nolint:nilerr // there is no such page
	}
	only := engine.HistoryRequest{ID: id, AfterSeq: seq - 1, Limit: 1}
	decided, err := ask(ctx, v, operation.History, only)
	if err != nil || len(decided.Decisions) == 0 || decided.Decisions[0].Seq != seq {
		return d, false, err
	}
	d.HistoryEntry = decided.Decisions[0]
	events, err := ask(ctx, v, operation.Timeline, only)
	if err != nil || len(events.Events) == 0 {
		return d, false, err
	}
	if d.Instance, err = ask(ctx, v, operation.Status, operation.StatusRequest{ID: id}); err != nil {
		return d, false, err
	}
	d.explained, err = explainDecision(ctx, v, id, d.HistoryEntry, events.Events[0].Revision)
	return d, true, err
}

// explained is what a page shows about a decision in addition to the record of it.
type explained struct {
	// Before is the context in which it was decided; nil for a start, or if it was removed.
	Before json.RawMessage
	// Changed is what the move changed, or would have changed.
	Changed   []Change
	Unchecked []string
	Judged    []criterion
	Documents []quoted
	Facts     []fact
}

// fact is fetched evidence, with its content.
type fact struct {
	judge.Evidence
	quoted
}

// criterion is a criterion whose quote is marked in a document, or is not.
type criterion struct {
	judge.CriterionVerdict

	IsMarked bool
}

// quoted is a document in which the quotes of a model are marked.
type quoted struct {
	Title, File string
	HTML        template.HTML
	IsCut       bool
}

// explainDecision explains a decision after which the instance had a revision.
func explainDecision(ctx context.Context, v module.Visit, id string, d engine.HistoryEntry, revision int64) (out explained, err error) {
	before := revision
	if d.Kind == record.Advanced || d.Kind == record.Started {
		before--
	}
	if before > 0 {
		then, err := ask(ctx, v, operation.Status, operation.StatusRequest{ID: id, When: engine.When{Revision: before}})
		if err != nil && engine.CodeOf(err) != engine.CodeUnknownRevision {
			return out, err
		}
		out.Before = then.Context
	}
	out.Changed = compareJSON(pickMembers(out.Before, d.Data), d.Data)
	if d.Kind == record.Advanced && out.Before != nil {
		after, err := ask(ctx, v, operation.Status, operation.StatusRequest{ID: id, When: engine.When{Revision: revision}})
		if err != nil {
			return out, err
		}
		out.Changed = compareMove(out.Before, after.Context, d.Data)
	}
	out.explain(d, d.Data)
	return out, nil
}

// explain adds what follows from the decision alone. data is what the visitor may see of its data.
func (x *explained) explain(d engine.HistoryEntry, data json.RawMessage) {
	x.Unchecked = listUnchecked(d.Decision)
	for _, o := range d.Opinions {
		if o.Model != nil {
			for _, c := range o.Model.Criteria {
				x.Judged = append(x.Judged, criterion{CriterionVerdict: c})
			}
		}
	}
	for _, e := range d.Evidence {
		x.Facts = append(x.Facts, fact{e, x.quote(e.Name, "evidence.json", e.Content)})
	}
	x.Documents = []quoted{x.quote("The data", "data.json", data), x.quote("The context", "context.json", x.Before)}
}

// quote shows a document, with marks where a model quoted it; nothing if the document is empty.
func (x *explained) quote(title, file string, raw json.RawMessage) quoted {
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "{}" || string(text) == "null" {
		return quoted{}
	}
	indented := showMarks(indentJSON(raw))
	text := cutText(indented, maxDocument)
	var spans [][2]int
	for i := range x.Judged {
		found := findQuote(text, x.Judged[i].Evidence)
		x.Judged[i].IsMarked = x.Judged[i].IsMarked || len(found) > 0
		spans = append(spans, found...)
	}
	return quoted{Title: title, File: file, HTML: markSpans(text, spans), IsCut: text != indented}
}

// pickMembers returns the members of a document that another one also has.
func pickMembers(from, names json.RawMessage) json.RawMessage {
	have, haveIs := readJSON(from).(map[string]any)
	wanted, wantedIs := readJSON(names).(map[string]any)
	if !haveIs || !wantedIs {
		return from
	}
	maps.DeleteFunc(have, func(name string, _ any) bool { _, in := wanted[name]; return !in })
	return json.RawMessage(writeJSON(have))
}

// findQuote returns where a quote is in the text of a document. Spaces may differ, as they may for the judge.
func findQuote(text, quote string) [][2]int {
	words := strings.Fields(strings.Trim(strings.TrimSpace(quote), `"“”`))
	if len(words) == 0 {
		return nil
	}
	for i, word := range words {
		inJSON := writeJSON(word)
		words[i] = regexp.QuoteMeta(showMarks(inJSON[1 : len(inJSON)-1]))
	}
	pattern, err := regexp.Compile(`(?i)` + strings.Join(words, `(?:\s|\\n|\\t|\\r)+`))
	if err != nil {
		return nil
	}
	var spans [][2]int
	for _, at := range pattern.FindAllStringIndex(text, 5) {
		spans = append(spans, [2]int{at[0], at[1]})
	}
	return spans
}

// markSpans escapes a text, with marks around its spans.
func markSpans(text string, spans [][2]int) template.HTML {
	slices.SortFunc(spans, func(a, b [2]int) int { return a[0] - b[0] })
	var b strings.Builder
	at := 0
	for _, s := range spans {
		if s[1] <= at {
			continue
		}
		from := max(s[0], at)
		b.WriteString(template.HTMLEscapeString(text[at:from]))
		b.WriteString("<mark>" + template.HTMLEscapeString(text[from:s[1]]) + "</mark>")
		at = s[1]
	}
	b.WriteString(template.HTMLEscapeString(text[at:]))
	return template.HTML(b.String()) //nolint:gosec // escaped above
}

// lines are the layers in the order in which they are asked; the first line that does not approve is the last.
var lines = [][]judge.LayerName{
	{judge.LayerTransition},
	{judge.LayerFields, judge.LayerSchema},
	{judge.LayerEvidence},
	{judge.ByReviewer},
	{judge.LayerScript},
	{judge.LayerState},
	{judge.LayerContent},
	{judge.LayerModel},
}

// nothingFrom says what it means that a layer had nothing to check.
var nothingFrom = map[judge.LayerName]string{
	judge.LayerFields:   "No field is required for this action.",
	judge.LayerSchema:   "No schema is declared, so the form of the data was not checked.",
	judge.LayerEvidence: "No evidence was fetched: the data is what the requester says.",
	judge.LayerScript:   "No script checked the data.",
	judge.LayerModel:    "No model examined this.",
}

// listUnchecked says what a decision leaves open, for a person who relies on it.
func listUnchecked(d engine.Decision) (out []string) {
	if len(d.Opinions) == 0 {
		return nil
	}
	asked := map[judge.LayerName]judge.Opinion{}
	for _, o := range d.Opinions {
		asked[o.Layer] = o
	}
	_, byPerson := asked[judge.ByReviewer]
	var stopped judge.LayerName
	var skipped []string
	for _, line := range lines {
		for _, layer := range line {
			_, was := asked[layer]
			switch text := nothingFrom[layer]; {
			case was || text == "":
			case byPerson && layer == judge.LayerModel:
				out = append(out, "No model examined this again: a person decided.")
			case byPerson && len(d.Opinions) == 1: // the rejection of a person
			case stopped != "":
				skipped = append(skipped, strings.ToLower(describeLayer(layer)))
			default:
				out = append(out, text)
			}
		}
		for _, layer := range line {
			if o, was := asked[layer]; was && o.Outcome != judge.Approve && stopped == "" {
				stopped = layer
			}
		}
	}
	if len(skipped) > 0 {
		out = append(out, fmt.Sprintf("Not examined after the answer of the layer %q: %s.", describeLayer(stopped), strings.Join(skipped, ", ")))
	}
	for _, e := range d.Evidence {
		switch {
		case e.Failure != "":
			out = append(out, fmt.Sprintf("The evidence %q could not be fetched (%s).", e.Name, e.Failure))
		case e.Truncated:
			out = append(out, fmt.Sprintf("Only a part of the evidence %q was examined.", e.Name))
		}
	}
	for _, missing := range d.Sandbox {
		out = append(out, "Scripts ran without a protection: "+missing+".")
	}
	if d.Degraded {
		out = append(out, "A judgement was needed but not available; the other layers decided.")
	}
	for _, o := range d.Opinions {
		out = append(out, listUncertain(o)...)
	}
	return out
}

// listUncertain says what a model left open.
func listUncertain(o judge.Opinion) (out []string) {
	if o.Trouble != "" && o.Trouble != judge.TroubleCannotAssess {
		out = append(out, fmt.Sprintf("A model was asked, but gave no usable judgement (%s).", o.Trouble))
	}
	if o.Model == nil {
		return out
	}
	if o.Assurance == judge.AssuranceLLM {
		out = append(out, "The model's confidence is its own estimate: it is not calibrated.")
	}
	for _, c := range o.Model.Criteria {
		switch {
		case c.Status != "met" && c.Status != "not_met":
			out = append(out, "Not assessed: "+c.Text)
		case c.Status == "met" && c.Basis == judge.BasisClaim:
			out = append(out, fmt.Sprintf("Only the requester's own words show it: %s", c.Text))
		}
	}
	return out
}

// omitSaid returns the findings that an opinion's reasoning does not repeat.
func omitSaid(reasoning string, findings []validators.Finding) (out []validators.Finding) {
	for _, f := range findings {
		if f.Hint != "" && strings.Contains(reasoning, f.Message) && strings.Contains(reasoning, f.Hint) || f.Hint == "" && strings.Contains(reasoning, f.Message) {
			continue
		}
		out = append(out, f)
	}
	return out
}
