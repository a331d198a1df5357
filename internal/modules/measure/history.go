package measure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/modules/measure/label"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

type historyCommand struct {
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only decisions of this workflow."`
	timeFilter
	Labels     string `name:"labels" enum:"human,all" default:"human" placeholder:"WHOSE" help:"human (the default): moves that a person decided. all: every judged move; the decisions of the gate are synthetic labels."`
	LabelFiles string `name:"label-files" placeholder:"FOLDER" help:"Also write the decisions of each person into this folder, as labels for gavel eval agree."`
	Ref        string `name:"ref" placeholder:"FILE" help:"With --workflow: refer to this definition file instead of including the recorded definition. The path is relative to the file of cases."`
	Split      string `name:"split" enum:"auto,dev,cal,test" default:"auto" placeholder:"SPLIT" help:"The split of the cases: dev, cal, test, or auto (the default): by group, about 30 % dev, 30 % cal and 40 % test."`
	cli.StoreFlag
}

func (historyCommand) Help() string {
	return `Prints a golden case for each question that a person decided in a review. It has state, action,
data, context, evidence and earlier moves as recorded, and the person's decision as the right
outcome. Sensitive values are masked. The store is only read.

An approval meets every criterion. If the reason of a rejection begins with criteria (c2 c3 WHY),
these are not met. Equal questions are one case. If persons disagree, there is a case for each
outcome, in one group; label.agreement is the share of persons. The last word of a person counts.

Decisions of persons who were involved are left out and counted: they asked for the move, own the
instance or the workflow, or are excluded by notBy. So are decisions that were made in the agent's
own client or taken back, and incomplete histories.

Examples:

    gavel eval import history --since 90d > cases.jsonl
    gavel eval import history --since 90d --label-files labels > cases.jsonl
    gavel eval agree cases.jsonl --labels labels/ada.labels --labels labels/bob.labels

With --labels all, decisions of the gate are cases too. A difference is then not necessarily a
mistake. To find out what another definition would have decided, judge the cases twice:

    gavel eval import history --labels all --workflow review --ref flows/review.yaml > then.jsonl
    gavel eval run --structural then.jsonl --out before.json
    gavel eval run --structural then.jsonl --out after.json    # once flows/review.yaml is changed
    gavel eval compare before.json after.json

Exit codes: 0 done, 1 no such decision, 2 wrong usage, 3 could not find out.`
}

func (c *historyCommand) Run(ctx context.Context, con *cli.Console) (err error) {
	query, err := c.query(c.Workflow)
	if err != nil {
		return err
	}
	if c.Ref != "" && c.Workflow == "" {
		return term.UsageErrorf("add --workflow NAME", "--ref needs --workflow")
	}
	h, done, err := openHistory(ctx, con, c.StoreFlag, c.Workflow)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	h.ref = c.Ref
	if c.Split != "auto" {
		h.split = eval.Split(c.Split)
	}
	said, printed := newVotes(), 0
	if c.Labels == "all" {
		seen := map[string]bool{}
		err = h.readAll(query, said, func(one eval.Case) error {
			key := fmt.Sprint(one.Expect.Outcome, one.Label, eval.ContentOf(one))
			if seen[key] {
				return nil
			}
			seen[key] = true
			printed++
			return printGolden(con, one)
		})
	} else {
		err = h.readEvery(query, func(m judgedMove) error { return said.add(h, m) })
	}
	if err != nil {
		return cli.EngineFailure(engine.StoreError("read the history", err))
	}
	cases, labels := said.count()
	if c.LabelFiles != "" {
		if err := writeLabels(c.LabelFiles, labels); err != nil {
			return err
		}
	}
	for _, one := range cases {
		if err := printGolden(con, one); err != nil {
			return err
		}
	}
	h.printLeft(con)
	if printed+len(cases) > 0 {
		return nil
	}
	bad := &term.ExitError{Code: term.ExitBad, Err: errors.New("no decision about a move was found")}
	if c.Labels != "all" {
		bad.Err, bad.Hint = errors.New("no move that a person decided was found"), "--labels all takes every judged move"
	}
	return bad
}

// openHistory opens a store for reading. A named workflow must exist.
func openHistory(ctx context.Context, con *cli.Console, flag cli.StoreFlag, workflow string) (h *historyReader, done func() error, err error) {
	opened, err := cli.OpenForReading(ctx, con, flag)
	if err != nil {
		return nil, nil, err
	}
	if workflow != "" {
		if _, err := opened.Store.Definition(ctx, workflow, 0); errors.Is(err, store.ErrNotFound) {
			return nil, nil, errors.Join(term.UsageErrorf("gavel history stats lists the workflows with decisions", "the store has no workflow %q", workflow), opened.Close())
		}
	}
	call := operation.Call{Engine: opened.Engine}
	call.Caller.Principal = gavel.Operator
	return newHistoryReader(ctx, opened.Store, call), opened.Close, nil
}

// timeFilter selects a period.
type timeFilter struct {
	Since string `name:"since" placeholder:"WHEN" help:"Only from this time on: an age (24h, 7d), a date (2026-03-01) or a time (RFC 3339)."`
	Until string `name:"until" placeholder:"WHEN" help:"Only before this time, in the same form as --since."`
}

// query returns a query for the decisions of the period.
func (f timeFilter) query(workflow string) (q store.DecisionQuery, err error) {
	now := time.Now()
	q.Workflow = workflow
	if q.Since, err = cli.ParseMoment("--since", f.Since, now); err == nil {
		q.Until, err = cli.ParseMoment("--until", f.Until, now)
	}
	return q, err
}

// historyReader converts recorded decisions into cases.
type historyReader struct {
	ctx         context.Context //nolint:containedctx // it lives as long as one request
	from        store.Store
	call        operation.Call // of the reader, who sees a part of the decisions
	ref         string
	split       eval.Split           // "" selects one by group
	definitions map[string]versionOf // by name and version
	left        map[string]int       // number of decisions left out, by reason
}

// versionOf is a version of a definition, nil if it is unreadable. agent is its owner, "" if that is an operator.
type versionOf struct {
	*workflow.Definition

	agent string
}

func newHistoryReader(ctx context.Context, from store.Store, call operation.Call) *historyReader {
	return &historyReader{ctx: ctx, from: from, call: call, definitions: map[string]versionOf{}, left: map[string]int{}}
}

func (h *historyReader) printLeft(con *cli.Console) {
	for _, one := range countLeft(h.left) {
		con.Err.Printf("gavel: %s left out: %s\n", term.Count(one.Count, "decision"), one.Why)
	}
}

// judgedMove is a judged move of a history.
type judgedMove struct {
	before, now record.Instance // before the move, and at present
	asked       record.Event
	moves       []eval.Step
	// ended is the event with the decision of a person, nil if there is none; withdrawn if a person took it back.
	ended     *record.Event
	withdrawn bool
}

// readAll passes the judged moves of a period on: those that a person decided to said, the others to take.
func (h *historyReader) readAll(q store.DecisionQuery, said *votes, take func(eval.Case) error) error {
	for inst, err := range h.from.Instances(h.ctx, store.InstanceQuery{Workflow: q.Workflow}) {
		if err != nil {
			return err
		}
		if inst.UpdatedAt.Before(q.Since) || !q.Until.IsZero() && !inst.CreatedAt.Before(q.Until) {
			continue
		}
		if err := h.read(inst, func(m judgedMove) error {
			if m.asked.Time.Before(q.Since) || !q.Until.IsZero() && !m.asked.Time.Before(q.Until) {
				return nil
			}
			if m.ended != nil && h.findBias(m) == "" {
				return said.add(h, m)
			}
			one, why, err := h.buildCase(m)
			if err == nil && why == "" {
				return take(one)
			}
			h.leave(why)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (h *historyReader) leave(why string) {
	if why != "" {
		h.left[why]++
	}
}

// readEvery passes all moves of a query that persons decided to take.
func (h *historyReader) readEvery(q store.DecisionQuery, take func(judgedMove) error) error {
	for cursor := ""; ; {
		next, err := h.readPage(q, cursor, maxLabels, take)
		if cursor = next; err != nil || next == "" {
			return err
		}
	}
}

// maxLabels is the maximum number of decisions on a page.
const maxLabels = 1000

// readPage passes moves that persons decided to take: those of a page of their decisions, newest first.
func (h *historyReader) readPage(q store.DecisionQuery, cursor string, limit int, take func(judgedMove) error) (next string, err error) {
	q.DecidedBy = judge.ByReviewer
	found, err := operation.Decisions.Do(h.ctx, h.call, engine.DecisionsRequest{Query: q, Cursor: cursor, Limit: limit, BareEvidence: true})
	if err != nil {
		return "", err
	}
	wanted, order := map[string]map[string]bool{}, []string{}
	for _, one := range found.Decisions {
		if wanted[one.Instance] == nil {
			wanted[one.Instance], order = map[string]bool{}, append(order, one.Instance)
		}
		if one.Kind != record.Refused { // which repeats a rejection
			wanted[one.Instance][one.ReviewID] = true
		}
	}
	for _, id := range order {
		inst, err := h.from.Load(h.ctx, id)
		if err != nil {
			return "", err
		}
		rest := wanted[id]
		if err := h.read(inst, func(m judgedMove) error {
			if m.asked.Review == nil || !rest[m.asked.Review.ID] {
				return nil
			}
			delete(rest, m.asked.Review.ID)
			return take(m)
		}); err != nil {
			return "", err
		}
		if len(rest) > 0 {
			h.left["it was about a call, whose arguments are not kept, or the end of a session, or its history is incomplete"] += len(rest)
		}
	}
	return found.NextCursor, nil
}

// read passes the judged moves of an instance to take; those that waited for a person come last. It returns errors of
// the store and of take.
func (h *historyReader) read(inst record.Instance, take func(judgedMove) error) error {
	var before record.Instance
	var moves []eval.Step
	var waiting []judgedMove
	for ev, err := range h.from.Events(h.ctx, store.EventQuery{Instance: inst.ID}) {
		if err != nil {
			return err
		}
		if before.Seq == 0 && ev.Seq > 1 {
			h.leave("the beginning of the history was removed")
			return nil
		}
		isMove := (ev.Kind == record.Advanced || ev.Kind == record.Refused || ev.Kind == record.Escalated) && ev.Decision != nil && !ev.IsStop() && ev.Call == nil
		m := judgedMove{before: before, now: inst, asked: ev, moves: slices.Clip(moves)}
		switch {
		case isMove && ev.Kind == record.Escalated:
			waiting = append(waiting, m)
		case isMove && ev.Decision.DecidedBy != judge.ByReviewer: // what a person decided was judged when it was escalated
			if err := take(m); err != nil {
				return err
			}
		case ev.Review != nil && ev.Kind != record.Refused:
			for i := range waiting {
				if waiting[i].asked.Review.ID == ev.Review.ID {
					waiting[i].note(ev)
				}
			}
		}
		if before, err = record.Fold(before, ev, func(r int64) (record.Instance, error) { return engine.FoldTo(h.ctx, h.from, ev.Instance, r, 0) }); err != nil {
			h.leave("the history is inconsistent; run gavel verify")
			return nil
		}
		if ev.Kind == record.Advanced {
			moves = append(moves, eval.Step{Action: ev.Action, State: ev.To, By: ev.Principal})
		}
	}
	for _, m := range waiting {
		if err := take(m); err != nil {
			return err
		}
	}
	return nil
}

// note takes over an event about the review of the move.
func (m *judgedMove) note(ev record.Event) {
	switch {
	case ev.Review.Status == record.ReviewReopened:
		m.withdrawn = true
	case ev.Review.Status == record.ReviewResolved && ev.Decision != nil:
		m.ended = &ev
	}
}

// biased is the reason for leaving out a decision of somebody who was involved.
const biased = "the person was involved: asked for the move, owns the instance or the workflow, or is excluded by notBy"

// findBias returns why the decision of a person is no label, "" if it is one.
func (h *historyReader) findBias(m judgedMove) string {
	if m.ended == nil {
		return "the approval was not carried out"
	}
	if m.withdrawn {
		return "a person took it back"
	}
	if m.ended.Review.Channel == record.ChannelClient {
		return "it was made in the agent's own client"
	}
	by := engine.Principal{ID: m.ended.Review.By}
	if strings.HasPrefix(by.ID, "local:user:") {
		by.Alias = gavel.Operator.ID
	}
	rules, err := h.findDefinition(m.asked.Workflow, m.asked.Version, m.asked.DefinitionHash)
	if err != nil || rules.Definition == nil {
		return "" // buildCase reports it
	}
	if rules.agent == by.ID || engine.CheckUninvolved(by, m.before, rules.Definition, m.asked) != nil {
		return biased
	}
	return ""
}

// buildCase returns the case for a decision, or the reason why there is none.
func (h *historyReader) buildCase(m judgedMove) (c eval.Case, why string, err error) {
	ev := m.asked
	def, err := h.findDefinition(ev.Workflow, ev.Version, ev.DefinitionHash)
	switch {
	case err != nil:
		return c, "", err
	case def.Definition == nil:
		return c, "its definition has changed or is missing", nil
	case ev.JudgeConfigHash != "":
		return c, "the judge was configured separately from the definition", nil
	case !sameFacts(buildFacts(def.Definition, m.moves), m.before.Facts):
		return c, "earlier moves were undone", nil
	}
	c = eval.Case{
		ID: ev.Decision.ID, Group: ev.Instance, Workflow: def.Document, State: m.before.State, Action: ev.Action, History: m.moves,
		Principal: ev.Principal, Role: ev.Role, Split: cmp.Or(h.split, label.SplitOf(ev.Instance)),
		Expect: eval.Expect{Outcome: ev.Decision.Outcome}, Label: eval.Label{Source: "synthetic", By: string(ev.Decision.DecidedBy)},
	}
	if m.ended != nil && h.findBias(m) == "" { // the better label
		c.Expect = eval.Expect{Outcome: m.ended.Review.Resolution, Criteria: m.ended.Review.Criteria(*ev.Decision)}
		c.Label = eval.Label{Source: "human", By: m.ended.Review.By}
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
	present, err := h.findDefinition(m.now.Workflow, m.now.Version, m.now.DefinitionHash)
	if err != nil {
		return c, "", err
	}
	if c.Data, err = maskTwice(data, def, present); err != nil {
		return c, "its data cannot be masked", nil
	}
	if c.Context, err = maskTwice(m.before.Context, def, present); err != nil {
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
	if len(def.Sensitive) > 0 || present.Definition != nil && len(present.Sensitive) > 0 {
		if err := h.call.Engine.MaskCopies(h.ctx, ev, &c.Data, &c.Context); err != nil {
			return c, "its data cannot be masked", nil
		}
	}
	return c, "", nil
}

// maskTwice masks what the version of then or the present one marks as sensitive, and what the store has sealed.
func maskTwice(doc json.RawMessage, then, now versionOf) (json.RawMessage, error) {
	doc, err := then.Mask(doc, nil)
	if err == nil && now.Definition != nil {
		doc, err = now.Mask(doc, nil)
	}
	if err != nil || !workflow.MayHoldSealed(doc) {
		return doc, err
	}
	open, err := workflow.EditSealed(document.ReadTrusted(doc), func(string, document.JSON) (json.RawMessage, error) {
		return json.RawMessage(strconv.Quote(workflow.Masked)), nil
	})
	return open.Raw(), err
}

// sameFacts reports whether the moves of a case lead to the recorded facts.
func sameFacts(a, b workflow.Facts) bool {
	return slices.Equal(a.Visited, b.Visited) && slices.Equal(a.Frozen, b.Frozen) && (len(a.Performed) == 0 && len(b.Performed) == 0 || reflect.DeepEqual(a.Performed, b.Performed))
}

// findDefinition returns a version; nil if it is missing or has another hash.
func (h *historyReader) findDefinition(name string, version int, hash string) (versionOf, error) {
	key := fmt.Sprint(version, " ", name)
	def, known := h.definitions[key]
	if !known {
		stored, err := h.from.Definition(h.ctx, name, version)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return def, err
		}
		if err == nil {
			def.Definition, _ = workflow.Parse(stored.Name, stored.Document) // an invalid definition counts as missing
			if !stored.Operator {
				def.agent = stored.Owner
			}
		}
		h.definitions[key] = def
	}
	if def.Definition != nil && def.Hash != hash {
		return versionOf{}, nil
	}
	return def, nil
}
