package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

type agreementCommand struct {
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only reviews of this workflow."`
	timeFilter
	JSON bool `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (agreementCommand) Help() string {
	return `Compares the model with the persons who decided the same moves in reviews: in total, by criterion,
and by person. The intervals count an instance as one draw. Decisions of persons who were involved
are left out and counted, as by gavel eval import history. The store is only read.

A criterion counts where both say something about it. The approval of a person meets every
criterion. A rejection says which are not met only if its reason begins with them (c2 c3 WHY).

These are the moves that reached a person, and no sample of all moves. A rejection of the model
reaches one only after the loop guard has stopped the question.

Example:

    gavel judge agreement --since 90d

Exit codes: 0 done, 1 nothing to compare, 2 wrong usage, 3 could not find out.`
}

func (c *agreementCommand) Run(ctx context.Context, con *cli.Console) (err error) {
	query, err := c.query(c.Workflow)
	if err != nil {
		return err
	}
	h, done, err := openHistory(ctx, con, c.StoreFlag, c.Workflow)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	t := newAgreementTally()
	if err := h.readEvery(query, func(m judgedMove) error { t.add(h, m); return nil }); err != nil {
		return cli.EngineFailure(engine.StoreError("read the history", err))
	}
	a := t.finish(h)
	if err := con.Print(c.JSON, a, func() { printModelAgreement(con, a) }); err != nil {
		return err
	}
	if a.Compared.N == 0 {
		return term.ErrBad
	}
	return nil
}

// Agreement compares a model with the persons who decided the same moves.
type Agreement struct {
	// Compared is the share of moves on which both gave the same outcome. Undecided counts moves that the model left to
	// a person.
	Compared  eval.Rate `json:"same"`
	Undecided int       `json:"undecided"`
	// Approved and Rejected are the shares of the model's approvals and rejections that persons confirmed.
	Approved eval.Rate       `json:"approvals"`
	Rejected eval.Rate       `json:"rejections"`
	Groups   int             `json:"groups"` // instances
	Models   []AgreementPart `json:"models"`
	Criteria []AgreementPart `json:"criteria"`
	Persons  []AgreementPart `json:"persons"`
	LeftOut  []LeftOut       `json:"leftOut"`
	// More reports that there are older reviews.
	More bool `json:"more,omitempty"`
}

// AgreementPart is the share of one model, one criterion or one person.
type AgreementPart struct {
	Name string    `json:"name"` // of a criterion: its text
	At   string    `json:"at,omitempty"`
	Same eval.Rate `json:"same"`
	// OverruledApprovals and OverruledRejections count what persons decided otherwise.
	OverruledApprovals  int `json:"overruledApprovals"`
	OverruledRejections int `json:"overruledRejections"`
}

// counts counts pairs by group: those that agree, and all.
type counts map[string][2]int

func (c counts) add(group string, same bool) {
	n := c[group]
	if n[1]++; same {
		n[0]++
	}
	c[group] = n
}

func (c counts) rate() eval.Rate {
	k, n, squares := 0, 0, 0.0
	for _, of := range c {
		k, n, squares = k+of[0], n+of[1], squares+float64(of[1]*of[1])
	}
	return eval.NewRate(k, n, squares, 0.95)
}

type partKey struct{ at, name string }

// partCounts counts by the answer of the model: of those that are not the same, the person overruled it.
type partCounts struct{ all, approved, rejected counts }

func (p *partCounts) add(group string, approved, same bool) {
	if p.all == nil {
		*p = partCounts{counts{}, counts{}, counts{}}
	}
	p.all.add(group, same)
	if approved {
		p.approved.add(group, same)
	} else {
		p.rejected.add(group, same)
	}
}

// agreementTally collects an Agreement.
type agreementTally struct {
	total                     partCounts
	undecided                 int
	models, criteria, persons map[partKey]*partCounts
	outcomes                  map[[2]judge.Outcome]int // of the model and of the person
}

// opinionated are the troubles of a model that has given an opinion.
var opinionated = []judge.Trouble{judge.TroubleNone, judge.TroubleCannotAssess, judge.TroubleLoopGuard}

func newAgreementTally() *agreementTally {
	return &agreementTally{models: map[partKey]*partCounts{}, criteria: map[partKey]*partCounts{}, persons: map[partKey]*partCounts{}, outcomes: map[[2]judge.Outcome]int{}}
}

func (t *agreementTally) add(h *historyReader, m judgedMove) {
	why := h.findBias(m)
	at := slices.IndexFunc(m.asked.Decision.Opinions, func(o judge.Opinion) bool {
		return o.Layer == judge.LayerModel && o.Model != nil && o.Outcome != "" && slices.Contains(opinionated, o.Trouble)
	})
	if why == "" && at < 0 {
		why = "the model gave no opinion"
	}
	if why != "" {
		h.leave(why)
		return
	}
	o, person := m.asked.Decision.Opinions[at], *m.ended.Review
	if o.Trouble == judge.TroubleLoopGuard {
		o.Outcome = judge.Reject // which it was, time and again
	}
	t.outcomes[[2]judge.Outcome{o.Outcome, person.Resolution}]++
	add := func(to map[partKey]*partCounts, key partKey, approved, same bool) {
		if to[key] == nil {
			to[key] = &partCounts{}
		}
		to[key].add(m.asked.Instance, approved, same)
	}
	said := person.Criteria(len(o.Model.Criteria))
	for _, c := range o.Model.Criteria {
		if said[c.ID] != "" && c.Status != "cannot_assess" {
			add(t.criteria, partKey{m.asked.Workflow + " " + m.asked.Action, c.Text}, c.Status == "met", c.Status == said[c.ID])
		}
	}
	if o.Outcome == judge.Escalate {
		t.undecided++
		return
	}
	approved, same := o.Outcome == judge.Approve, o.Outcome == person.Resolution
	t.total.add(m.asked.Instance, approved, same)
	add(t.models, partKey{"", o.Model.Model}, approved, same)
	add(t.persons, partKey{"", person.By}, approved, same)
}

func (t *agreementTally) finish(h *historyReader) Agreement {
	list := func(of map[partKey]*partCounts) []AgreementPart {
		out := []AgreementPart{}
		for _, key := range slices.SortedFunc(maps.Keys(of), func(a, b partKey) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name)) }) {
			yes, no := of[key].approved.rate(), of[key].rejected.rate()
			out = append(out, AgreementPart{key.name, key.at, of[key].all.rate(), yes.N - yes.K, no.N - no.K})
		}
		return out
	}
	return Agreement{
		Compared: t.total.all.rate(), Undecided: t.undecided, Approved: t.total.approved.rate(), Rejected: t.total.rejected.rate(), Groups: len(t.total.all),
		Models: list(t.models), Criteria: list(t.criteria), Persons: list(t.persons), LeftOut: countLeft(h.left),
	}
}

func printModelAgreement(con *cli.Console, a Agreement) {
	out := con.Out
	out.Printf("%s of persons about moves that the model had judged, in %s\n", term.Count(a.Compared.N+a.Undecided, "decision"), term.Count(a.Groups, "instance"))
	out.Text(term.Align([][]string{
		{"same outcome", a.Compared.String(), a.Compared.Bounds()},
		{"approvals confirmed", a.Approved.String(), a.Approved.Bounds()},
		{"rejections confirmed", a.Rejected.String(), a.Rejected.Bounds()},
		{"left to the person", fmt.Sprint(a.Undecided), ""},
	}))
	for _, part := range []struct {
		head string
		of   []AgreementPart
	}{{"MODEL", a.Models}, {"CRITERION", a.Criteria}, {"PERSON", a.Persons}} {
		if len(part.of) == 0 {
			continue
		}
		rows := [][]string{{part.head, "SAME", "95 % INTERVAL", "OVERRULED APPROVALS", "OVERRULED REJECTIONS"}}
		for _, one := range part.of {
			name := one.Name
			if one.At != "" {
				name = one.At + ": " + name
			}
			rows = append(rows, []string{name, one.Same.String(), one.Same.Bounds(), fmt.Sprint(one.OverruledApprovals), fmt.Sprint(one.OverruledRejections)})
		}
		out.Printf("\n")
		out.Table(rows)
	}
	if a.Groups < eval.FewGroups && a.Compared.N > 0 {
		out.Printf("with fewer than %d instances the intervals can miss the truth more often than their level allows\n", eval.FewGroups)
	}
	for _, left := range a.LeftOut {
		con.Err.Printf("gavel: %s left out: %s\n", term.Count(left.Count, "decision"), left.Why)
	}
}

// Limits of the agreement that is shown and counted in the background.
const (
	agreementPeriod = 30 * 24 * time.Hour
	agreementAge    = 5 * time.Minute // how long it is reused
	maxAgreeing     = 2 * time.Second
)

// shownAgreement is an agreement with the counts of its outcomes. It is nil if it took too long.
type shownAgreement struct {
	*Agreement

	outcomes map[[2]judge.Outcome]int
}

// loadAgreement compares the model with the newest decisions of persons.
func (m *measured) loadAgreement(ctx context.Context, call operation.Call) (shownAgreement, error) {
	return m.agreed.get(call.Caller.Principal, agreementAge, func() (shownAgreement, error) {
		within, cancel := context.WithTimeout(ctx, maxAgreeing)
		defer cancel()
		h, t := newHistoryReader(within, m.system.Store, call), newAgreementTally()
		next, err := h.readPage(store.DecisionQuery{Since: time.Now().Add(-agreementPeriod)}, "", maxJudgements, func(one judgedMove) error { t.add(h, one); return nil })
		if err != nil && within.Err() != nil && ctx.Err() == nil {
			return shownAgreement{}, nil
		}
		if err != nil {
			return shownAgreement{}, engine.StoreError("read the history", err)
		}
		a := t.finish(h)
		a.More = next != ""
		return shownAgreement{&a, t.outcomes}, nil
	})
}

// writeMetrics writes how often persons decided as the model, and how often otherwise.
func (m *measured) writeMetrics(tell telemetry.MetricFunc) {
	if m.system.Engine == nil {
		return
	}
	call := operation.Call{Engine: m.system.Engine}
	call.Caller.Principal = gavel.Operator
	a, err := m.loadAgreement(context.Background(), call)
	if err != nil || a.Agreement == nil {
		return // the figures are absent for a while
	}
	for _, model := range []judge.Outcome{judge.Approve, judge.Reject, judge.Escalate} {
		for _, person := range []judge.Outcome{judge.Approve, judge.Reject} {
			tell("judge_reviewed", "Newest decisions of persons in 30 days, at most 500, by the model's outcome and theirs.", telemetry.Gauge,
				float64(a.outcomes[[2]judge.Outcome{model, person}]), "model", string(model), "person", string(person))
		}
	}
}
