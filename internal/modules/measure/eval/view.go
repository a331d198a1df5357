package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/judge"
)

// Exchange is one question to a model and its answers.
type Exchange struct {
	System string `json:"system,omitempty"`
	User   string `json:"user"`
	// Answers are the model's texts, one for each request. There is more than one if an answer could not be read.
	Answers []string `json:"answers,omitempty"`
}

// exchanges holds the exchanges of one judgement.
type exchanges struct {
	mu  sync.Mutex
	all []Exchange
}

type exchangesKey struct{}

// RecordExchange adds an exchange to the result of the case that a Runner is judging with ctx. Without a Runner, it
// does nothing.
func RecordExchange(ctx context.Context, e Exchange) {
	if x, ok := ctx.Value(exchangesKey{}).(*exchanges); ok {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.all = append(x.all, e)
	}
}

// View holds what a reader of a report needs to follow the judgement of a case, as text.
type View struct {
	Case string `json:"case"`
	// Documents are data, context and evidence, indented; empty ones are omitted.
	Documents []ViewDocument `json:"documents,omitempty"`
	Answers   []ViewAnswer   `json:"answers,omitempty"`
}

// ViewDocument is one document of a case.
type ViewDocument struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// ViewAnswer is the answer of one repeat.
type ViewAnswer struct {
	Repeat int `json:"repeat"`
	// Criteria includes the model's quotes.
	Criteria []judge.CriterionVerdict `json:"criteria,omitempty"`
	Asked    []Exchange               `json:"asked,omitempty"`
}

// MaxViews limits the views of a run, in bytes.
const MaxViews = 8 << 20

// maxViewText limits the bytes kept of one document or prompt, maxSystemPrompts the number of system prompts.
const (
	maxViewText      = 32 << 10
	maxSystemPrompts = 10
)

// newView returns the view of a case and its results, and its size in bytes.
func newView(c Case, results []Result) (v View, size int) {
	v.Case = c.ID
	add := func(name string, doc json.RawMessage) {
		var b bytes.Buffer
		if doc = bytes.TrimSpace(doc); len(doc) == 0 || string(doc) == "{}" || json.Indent(&b, doc, "", "  ") != nil {
			return
		}
		text := truncateText(b.String(), maxViewText)
		v.Documents = append(v.Documents, ViewDocument{name, text})
		size += len(text)
	}
	add("data", c.Data)
	add("context", c.Context)
	for _, name := range slices.Sorted(maps.Keys(c.Evidence)) {
		add("evidence "+name, c.Evidence[name])
	}
	for _, r := range results {
		a := ViewAnswer{Repeat: r.Repeat, Criteria: r.Criteria}
		for _, e := range r.Asked {
			e.System, e.User = "", truncateText(e.User, maxViewText) // a Ledger keeps the system prompts
			a.Asked = append(a.Asked, e)
			size += len(e.User)
			for _, text := range e.Answers {
				size += len(text)
			}
		}
		for _, k := range r.Criteria {
			size += len(k.Text) + len(k.Evidence) + len(k.Why)
		}
		v.Answers = append(v.Answers, a)
	}
	return v, size
}

// resultLine is one result on a separate line, with information about its case.
type resultLine struct {
	Cell string `json:"cell,omitempty"` // of a matrix
	Result
	Right    bool                       `json:"right"`
	Expect   Expect                     `json:"expect"`
	Split    Split                      `json:"split,omitempty"`
	Group    string                     `json:"group,omitempty"`
	Tags     []string                   `json:"tags,omitempty"`
	Workflow string                     `json:"workflow,omitempty"`
	State    string                     `json:"state"`
	Action   string                     `json:"action"`
	Risk     string                     `json:"risk,omitempty"`
	Data     json.RawMessage            `json:"data,omitempty"`
	Context  json.RawMessage            `json:"context,omitempty"`
	Evidence map[string]json.RawMessage `json:"evidence,omitempty"`
	Asked    []Exchange                 `json:"asked,omitempty"`
}

// WriteLines writes a line of JSON for each result of a case; cell is the name of the cell of a matrix, or "".
func WriteLines(w io.Writer, cell string, c Case, results []Result) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for _, r := range results {
		err := out.Encode(resultLine{
			Cell: cell, Result: r, Right: r.Failure == "" && r.Outcome == c.Expect.Outcome, Expect: c.Expect, Split: c.Split, Group: c.Group, Tags: c.Tags,
			Workflow: WorkflowOf(&c), State: c.State, Action: c.Action, Risk: c.Risk,
			Data: c.Data, Context: c.Context, Evidence: c.Evidence, Asked: r.Asked,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteAllLines writes the lines of a whole run.
func WriteAllLines(w io.Writer, run Cell) error {
	of := make(map[string][]Result, len(run.Run.Cases))
	for _, r := range run.Run.Results {
		of[r.Case] = append(of[r.Case], r)
	}
	for _, c := range run.Run.Cases {
		if err := WriteLines(w, run.Name, c, of[c.ID]); err != nil {
			return err
		}
	}
	return nil
}

// truncateText shortens a text to at most most bytes, at a character boundary.
func truncateText(words string, most int) string {
	if len(words) <= most {
		return words
	}
	for most > 0 && !utf8.RuneStart(words[most]) {
		most--
	}
	return words[:most] + "…"
}
