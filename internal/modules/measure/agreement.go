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
	if err := con.Print(c.JSON, a, func() { printModelAgreement(con, a); h.printLeft(con) }); err != nil {
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
	More     bool                     `json:"more,omitempty"`
	outcomes map[[2]judge.Outcome]int // by those of the model and of the person
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

// partKey names what is counted: a criterion has a place.
type partKey struct{ at, name string }

// partCounts counts all pairs, and those in which the model approved or rejected.
type partCounts struct{ all, approved, rejected counts }

// parts has the counts by name; one without a name is the total.
type parts map[partKey]partCounts

func (p parts) add(key partKey, group string, approved, same bool) {
	of, known := p[key]
	if !known {
		of = partCounts{counts{}, counts{}, counts{}}
		p[key] = of
	}
	of.all.add(group, same)
	if approved {
		of.approved.add(group, same)
	} else {
		of.rejected.add(group, same)
	}
}

// agreementTally collects an Agreement.
type agreementTally struct {
	total, models, criteria, persons parts
	outcomes                         map[[2]judge.Outcome]int
}

// opinionated are the troubles of a model that has given an opinion.
var opinionated = []judge.Trouble{judge.TroubleNone, judge.TroubleCannotAssess, judge.TroubleLoopGuard}

func newAgreementTally() *agreementTally {
	return &agreementTally{parts{}, parts{}, parts{}, parts{}, map[[2]judge.Outcome]int{}}
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
	said := person.Criteria(*m.asked.Decision)
	for _, c := range o.Model.Criteria {
		if said[c.ID] != "" && c.Status != "cannot_assess" {
			t.criteria.add(partKey{m.asked.Workflow + " " + m.asked.Action, c.Text}, m.asked.Instance, c.Status == "met", c.Status == said[c.ID])
		}
	}
	if approved, same := o.Outcome == judge.Approve, o.Outcome == person.Resolution; o.Outcome != judge.Escalate {
		t.total.add(partKey{}, m.asked.Instance, approved, same)
		t.models.add(partKey{"", o.Model.Model}, m.asked.Instance, approved, same)
		t.persons.add(partKey{"", person.By}, m.asked.Instance, approved, same)
	}
}

func (t *agreementTally) finish(h *historyReader) Agreement {
	list := func(of parts) []AgreementPart {
		out := []AgreementPart{}
		for _, key := range slices.SortedFunc(maps.Keys(of), func(a, b partKey) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name)) }) {
			yes, no := of[key].approved.rate(), of[key].rejected.rate()
			out = append(out, AgreementPart{key.name, key.at, of[key].all.rate(), yes.N - yes.K, no.N - no.K})
		}
		return out
	}
	total := t.total[partKey{}]
	return Agreement{
		Compared: total.all.rate(), Approved: total.approved.rate(), Rejected: total.rejected.rate(), Groups: len(total.all),
		Undecided: t.outcomes[[2]judge.Outcome{judge.Escalate, judge.Approve}] + t.outcomes[[2]judge.Outcome{judge.Escalate, judge.Reject}],
		Models:    list(t.models), Criteria: list(t.criteria), Persons: list(t.persons), LeftOut: countLeft(h.left), outcomes: t.outcomes,
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
}

// Limits of the agreement that is shown and counted in the background.
const (
	agreementPeriod = 30 * 24 * time.Hour
	agreementAge    = 5 * time.Minute // how long it is reused
	maxAgreeing     = 2 * time.Second
)

// loadAgreement compares the model with the newest decisions of persons. It returns nil if that took too long.
func (m *measured) loadAgreement(ctx context.Context, call operation.Call) (*Agreement, error) {
	return m.agreed.get(call.Caller.Principal, agreementAge, func() (*Agreement, error) {
		within, cancel := context.WithTimeout(ctx, maxAgreeing)
		defer cancel()
		h, t := newHistoryReader(within, m.system.Store, call), newAgreementTally()
		next, err := h.readPage(store.DecisionQuery{Since: time.Now().Add(-agreementPeriod)}, "", maxJudgements, func(one judgedMove) error { t.add(h, one); return nil })
		if err != nil && within.Err() != nil && ctx.Err() == nil {
			return nil, nil //nolint:nilnil // as the comment says
		}
		if err != nil {
			return nil, engine.StoreError("read the history", err)
		}
		a := t.finish(h)
		a.More = next != ""
		return &a, nil
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
	if err != nil || a == nil {
		return // the figures are absent for a while
	}
	for _, model := range []judge.Outcome{judge.Approve, judge.Reject, judge.Escalate} {
		for _, person := range []judge.Outcome{judge.Approve, judge.Reject} {
			tell("judge_reviewed", "Newest decisions of persons in 30 days, at most 500, by the model's outcome and theirs.", telemetry.Gauge,
				float64(a.outcomes[[2]judge.Outcome{model, person}]), "model", string(model), "person", string(person))
		}
	}
}
