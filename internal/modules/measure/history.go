package measure

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

type historyCommand struct {
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only decisions of this workflow."`
	timeFilter
	Ref   string `name:"ref" placeholder:"FILE" help:"With --workflow: refer to this definition file instead of including the recorded definition. The path is relative to the file of cases."`
	Split string `name:"split" enum:"dev,cal,test" default:"dev" placeholder:"SPLIT" help:"The split of the cases: dev (the default), cal or test."`
	cli.StoreFlag
}

func (historyCommand) Help() string {
	return `Prints one golden case for each recorded decision about a move: state, action, data, context,
evidence and earlier moves as recorded, with the decision as the right outcome. The label is human
if a person decided, and synthetic otherwise: then a difference is not necessarily a mistake.
Sensitive values are masked. The store is only read.

Equal questions are printed once. Decisions with an incomplete history are left out, and counted by
reason.

To find out what another definition or threshold would have decided, judge the cases twice and
compare:

    gavel eval import history --workflow review --ref flows/review.yaml > then.jsonl
    gavel eval run --structural then.jsonl --out before.json
    gavel eval run --structural then.jsonl --out after.json    # once flows/review.yaml is changed
    gavel eval compare before.json after.json

Exit codes: 0 done, 1 no such decision, 2 wrong usage, 3 could not find out.`
}

func (c *historyCommand) Run(ctx context.Context, con *cli.Console) (err error) {
	since, until, err := c.times(time.Now())
	if err != nil {
		return err
	}
	if c.Ref != "" && c.Workflow == "" {
		return term.UsageErrorf("add --workflow NAME", "--ref needs --workflow")
	}
	opened, err := cli.OpenForReading(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	db := opened.Store
	if c.Workflow != "" {
		if _, err := db.Definition(ctx, c.Workflow, 0); errors.Is(err, store.ErrNotFound) {
			return term.UsageErrorf("gavel history stats lists the workflows with decisions", "the store has no workflow %q", c.Workflow)
		}
	}
	h := historyReader{ctx: ctx, from: db, since: since, until: until, ref: c.Ref, split: eval.Split(c.Split), definitions: map[string]*workflow.Definition{}, left: map[string]int{}, seen: map[[sha256.Size]byte]bool{}}
	for inst, err := range db.Instances(ctx, store.InstanceQuery{Workflow: c.Workflow}) {
		if err == nil {
			err = h.read(inst, func(one eval.Case) error { return printGolden(con, one) })
		}
		if err != nil {
			return cli.EngineFailure(engine.StoreError("read the history", err))
		}
	}
	for _, why := range slices.Sorted(maps.Keys(h.left)) {
		con.Err.Printf("gavel: %s left out: %s\n", term.Count(h.left[why], "decision"), why)
	}
	if len(h.seen) == 0 {
		return &term.ExitError{Code: term.ExitBad, Err: errors.New("no decision about a move was found")}
	}
	return nil
}

// timeFilter selects a period.
type timeFilter struct {
	Since string `name:"since" placeholder:"WHEN" help:"Only from this time on: an age (24h, 7d), a date (2026-03-01) or a time (RFC 3339)."`
	Until string `name:"until" placeholder:"WHEN" help:"Only before this time, in the same form as --since."`
}

// times parses the period relative to now.
func (f timeFilter) times(now time.Time) (since, until time.Time, err error) {
	if since, err = cli.ParseMoment("--since", f.Since, now); err != nil {
		return since, until, err
	}
	until, err = cli.ParseMoment("--until", f.Until, now)
	return since, until, err
}

// historyReader converts recorded decisions into cases.
type historyReader struct {
	ctx          context.Context //nolint:containedctx // it lives as long as one command
	from         store.Store
	since, until time.Time
	ref          string
	split        eval.Split
	definitions  map[string]*workflow.Definition // by name and version, nil if unreadable
	left         map[string]int                  // number of decisions left out, by reason
	seen         map[[sha256.Size]byte]bool      // questions that became cases; nil keeps those that are equal
}

// read passes the cases of an instance to take. It returns errors of the store and of take.
func (h *historyReader) read(inst record.Instance, take func(eval.Case) error) error {
	if !h.since.IsZero() && inst.UpdatedAt.Before(h.since) || !h.until.IsZero() && !inst.CreatedAt.Before(h.until) {
		return nil
	}
	var before record.Instance
	var moves []eval.Step
	for ev, err := range h.from.Events(h.ctx, store.EventQuery{Instance: inst.ID}) {
		if err != nil {
			return err
		}
		if before.Seq == 0 && ev.Seq > 1 {
			h.left["the beginning of the history was removed"]++
			return nil
		}
		isMove := (ev.Kind == record.Advanced || ev.Kind == record.Refused || ev.Kind == record.Escalated) && ev.Decision != nil && !ev.IsStop() && ev.Call == nil
		// A move that a reviewer approved was already judged when it was escalated.
		if isMove && ev.Decision.DecidedBy != judge.ByReviewer && !ev.Time.Before(h.since) && (h.until.IsZero() || ev.Time.Before(h.until)) {
			one, why, err := h.buildCase(before, ev, moves)
			if err == nil && why == "" {
				err = take(one)
			}
			if err != nil {
				return err
			}
			if why != "" && why != isRepeated {
				h.left[why]++
			}
		}
		if before, err = record.Fold(before, ev, func(r int64) (record.Instance, error) { return engine.FoldTo(h.ctx, h.from, ev.Instance, r, 0) }); err != nil {
			h.left["the history is inconsistent; run gavel verify"]++
			return nil
		}
		if ev.Kind == record.Advanced {
			moves = append(moves, eval.Step{Action: ev.Action, State: ev.To, By: ev.Principal})
		}
	}
	return nil
}

// isRepeated is the reason for leaving out a question that is already a case.
const isRepeated = "repeated"

// buildCase returns the case for a decision, or the reason why there is none.
func (h *historyReader) buildCase(before record.Instance, ev record.Event, moves []eval.Step) (c eval.Case, why string, err error) {
	def, err := h.findDefinition(ev)
	switch {
	case err != nil:
		return c, "", err
	case def == nil:
		return c, "its definition has changed or is missing", nil
	case ev.JudgeConfigHash != "":
		return c, "the judge was configured separately from the definition", nil
	case !sameFacts(buildFacts(def, moves), before.Facts):
		return c, "earlier moves were undone", nil
	}
	c = eval.Case{
		ID: ev.Decision.ID, Group: ev.Instance, Workflow: def.Document, State: before.State, Action: ev.Action, History: moves,
		Principal: ev.Principal, Role: ev.Role, Split: h.split,
		Expect: eval.Expect{Outcome: ev.Decision.Outcome}, Label: eval.Label{Source: "synthetic", By: string(ev.Decision.DecidedBy)},
	}
	if ev.Kind == record.Escalated { // the reviewer's decision is a better label
		review, err := store.FindReview(h.ctx, h.from, ev.Review.ID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return c, "", err
		}
		if review.Status == record.ReviewResolved {
			c.Expect.Outcome, c.Label = review.Resolution, eval.Label{Source: "human", By: review.By}
		}
	}
	if h.ref != "" {
		if c.Workflow, err = document.Marshal(map[string]string{"ref": h.ref}); err != nil {
			return c, "", err
		}
	}
	data := ev.Decision.Data
	if ev.Kind == record.Advanced {
		data = ev.Patch
	}
	if len(data) == 0 {
		return c, "its data were not kept", nil
	}
	if c.Data, err = def.Mask(data, nil); err != nil {
		return c, "its data cannot be masked", nil
	}
	if c.Context, err = def.Mask(before.Context, nil); err != nil {
		return c, "its context cannot be masked", nil
	}
	for _, e := range ev.Decision.Evidence {
		if e.Failure == "" && len(e.Content) == 0 {
			return c, "its evidence was too large to keep", nil
		}
		if e.Failure == "" {
			if c.Evidence == nil {
				c.Evidence = map[string]json.RawMessage{}
			}
			c.Evidence[e.Name] = e.Content
		}
	}
	if h.seen == nil {
		return c, "", nil
	}
	question := c
	question.ID, question.Group = "", ""
	raw, err := document.Marshal(question)
	if key := sha256.Sum256(raw); err == nil && !h.seen[key] {
		h.seen[key] = true
		return c, "", nil
	}
	return c, isRepeated, err
}

// sameFacts reports whether the moves of a case lead to the recorded facts.
func sameFacts(a, b workflow.Facts) bool {
	return slices.Equal(a.Visited, b.Visited) && slices.Equal(a.Frozen, b.Frozen) && (len(a.Performed) == 0 && len(b.Performed) == 0 || reflect.DeepEqual(a.Performed, b.Performed))
}

// findDefinition returns the version that an event names; nil if it has changed or is missing.
func (h *historyReader) findDefinition(ev record.Event) (*workflow.Definition, error) {
	key := fmt.Sprint(ev.Version, " ", ev.Workflow)
	def, known := h.definitions[key]
	if !known {
		stored, err := h.from.Definition(h.ctx, ev.Workflow, ev.Version)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			def, _ = workflow.Parse(stored.Name, stored.Document) // an invalid definition counts as missing
		}
		h.definitions[key] = def
	}
	if def == nil || def.Hash != ev.DefinitionHash {
		return nil, nil //nolint:nilnil // as the comment says
	}
	return def, nil
}
