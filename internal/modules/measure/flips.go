package measure

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// Limits of a comparison with recorded decisions.
const (
	usualFlips   = 200
	maxFlips     = 500
	maxComparing = 8 * time.Second
	flipsAge     = 2 * time.Minute // how long a comparison is shown again
)

type flipKey struct {
	who        engine.Principal
	name       string
	version, n int
}

// flips is how recorded decisions would now come out.
type flips struct {
	Name    string
	Version int
	// Asked is the number of decisions to compare with; 0 before anyone asked.
	Asked int
	Usual int
	At    time.Time
	// Found is the number of decisions that the visitor may see, Compared those of which the outcome is known. Unread
	// were not reached in time.
	Found, Compared, Unread int
	Flipped                 []flip
	Left                    []LeftOut
}

// flip is a decision that would now come out differently.
type flip struct {
	engine.FoundDecision
	Now judge.Outcome
	By  judge.LayerName
	Why string
}

// isJudgedMove reports whether a decision was about a move, and not made by a person.
func isJudgedMove(h engine.HistoryEntry) bool {
	return (h.Kind == record.Advanced || h.Kind == record.Refused || h.Kind == record.Escalated) && h.DecidedBy != judge.ByReviewer && h.Tool == ""
}

// loadFlips compares a definition with the newest recorded decisions, if the visitor asked for it.
func (m *measured) loadFlips(ctx context.Context, v module.Visit) (flips, error) {
	version, _ := strconv.Atoi(cmp.Or(v.Values.Get("version"), "0")) // the page rejects another text
	def, err := operation.Describe.Do(ctx, v.Call, engine.DescribeRequest{Name: v.Path("name"), Version: version})
	if err != nil {
		return flips{}, err
	}
	n, err := strconv.Atoi(v.Values.Get("flip"))
	if err != nil || n < 1 {
		return flips{Name: def.Name, Version: def.Version, Usual: usualFlips}, nil
	}
	key := flipKey{v.Call.Caller.Principal, def.Name, def.Version, min(n, maxFlips)}
	return m.flipped.get(key, flipsAge, func() (flips, error) { return m.compare(ctx, v, def, key.n) })
}

func (m *measured) compare(ctx context.Context, v module.Visit, view engine.DefinitionView, n int) (flips, error) {
	out := flips{Name: view.Name, Version: view.Version, Asked: n, Usual: n, At: time.Now()}
	found, err := operation.Decisions.Do(ctx, v.Call, engine.DecisionsRequest{
		Query: store.DecisionQuery{Workflow: view.Name, Kinds: []record.Kind{record.Advanced, record.Refused, record.Escalated}}, Limit: n,
	})
	if err != nil {
		return out, err
	}
	out.Found = len(found.Decisions)
	within, cancel := context.WithTimeout(ctx, maxComparing)
	defer cancel()
	c := comparison{measured: m, visit: v, compiler: validators.NewCompiler(m.system.Scripts, validators.Options{}), versions: map[int]version{}, left: map[string]int{}}
	if c.next, err = newVersion(view); err != nil {
		return out, err
	}
	byInstance, order := map[string][]engine.FoundDecision{}, []string{}
	for _, one := range found.Decisions {
		if !isJudgedMove(one.HistoryEntry) {
			c.left["a person decided, or another server's tool was called"]++
			continue
		}
		if byInstance[one.Instance] == nil {
			order = append(order, one.Instance)
		}
		byInstance[one.Instance] = append(byInstance[one.Instance], one)
	}
	for i, instance := range order {
		err := c.compareInstance(within, instance, byInstance[instance])
		if within.Err() != nil && ctx.Err() == nil {
			for _, id := range order[i:] {
				out.Unread += len(byInstance[id])
			}
			break
		}
		if err != nil {
			return out, err
		}
		out.Compared += c.compared
		out.Flipped = append(out.Flipped, c.flipped...)
		c.compared, c.flipped = 0, nil
	}
	out.Left = countLeft(c.left)
	return out, nil
}

// comparison judges recorded questions again: with the definition that they had, which must give the recorded outcome,
// and with another one.
type comparison struct {
	*measured

	visit    module.Visit
	compiler *validators.Compiler
	next     version
	versions map[int]version
	left     map[string]int
	compared int
	flipped  []flip
}

// version is a definition with its owner, whose code is trusted only if that is an operator.
type version struct {
	def   *workflow.Definition
	owner validators.Owner
	n     int
}

func newVersion(view engine.DefinitionView) (version, error) {
	def, err := workflow.Parse(view.Name, view.Definition)
	if err != nil {
		return version{}, engine.InternalError("read the definition", err)
	}
	return version{def, validators.Owner{ID: view.Owner, Trusted: view.Operator}, view.Version}, nil
}

func (c *comparison) compareInstance(ctx context.Context, instance string, decisions []engine.FoundDecision) error {
	cases, left, err := c.readCases(ctx, instance)
	if err != nil {
		return err
	}
	unread := slices.Concat(slices.Sorted(maps.Keys(left)), []string{"its history is incomplete"})[0]
	for _, one := range decisions {
		golden, ok := cases[one.ID]
		if !ok {
			c.left[unread]++
			continue
		}
		if err := c.compareOne(ctx, one, golden); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) compareOne(ctx context.Context, one engine.FoundDecision, golden eval.Case) error {
	old, ok := c.versions[one.Version]
	if !ok {
		view, err := operation.Describe.Do(ctx, c.visit.Call, engine.DescribeRequest{Name: one.Workflow, Version: one.Version})
		if err != nil {
			return err
		}
		if old, err = newVersion(view); err != nil {
			return err
		}
		c.versions[one.Version] = old
	}
	if old.def.Hash == c.next.def.Hash {
		c.compared++
		return nil
	}
	before, asked, err := c.decide(ctx, old, one, golden)
	switch {
	case err != nil:
		return err
	case asked || before.Outcome != one.Outcome:
		c.left["its own definition does not give the recorded outcome again: it depends on sensitive values, on evidence or on the time"]++
		return nil
	}
	now, asked, err := c.decide(ctx, c.next, one, golden)
	switch {
	case err != nil:
		return err
	case asked:
		c.left["a model would have to be asked: it was not asked before, or its criteria changed"]++
		return nil
	}
	c.compared++
	if now.Outcome != one.Outcome {
		c.flipped = append(c.flipped, flip{one, now.Outcome, now.DecidedBy, operation.DescribeRefusal(engine.Decision{Verdict: now, Violations: now.Violations()})})
	}
	return nil
}

// decide judges a recorded question with a definition. asked reports that a model would have to be asked.
func (c *comparison) decide(ctx context.Context, with version, one engine.FoundDecision, golden eval.Case) (v judge.Verdict, asked bool, err error) {
	if with.def.States[golden.State] == nil {
		return judge.Verdict{Outcome: judge.Reject, DecidedBy: judge.LayerTransition, Reasoning: fmt.Sprintf("There is no state %q any longer.", golden.State)}, false, nil
	}
	question, err := with.def.Case(workflow.CaseInput{
		Operation: judge.Advance, Version: with.n, Owner: with.owner, Instance: one.Instance, State: golden.State, Action: golden.Action,
		Data: golden.Data, Context: golden.Context, Principal: golden.Principal, Role: golden.Role, Facts: buildFacts(with.def, golden.History), ReviewPath: true, Now: one.Time,
	})
	if err != nil {
		return v, false, engine.InternalError("ask again", err)
	}
	model := &recordedModel{opinions: one.Opinions}
	pipeline, err := judge.New(judge.Config{Compiler: c.compiler, Fetcher: caseEvidence{golden}, Model: model})
	if err != nil {
		return v, false, engine.InternalError("ask again", err)
	}
	v, err = pipeline.Decide(ctx, question)
	return v, model.missing, err
}

// recordedModel gives the recorded opinion of a model, if it was about the same criteria.
type recordedModel struct {
	opinions []judge.Opinion
	missing  bool
}

// Name implements judge.Layer.
func (*recordedModel) Name() judge.LayerName { return judge.LayerModel }

// Weigh implements judge.Layer.
func (m *recordedModel) Weigh(_ context.Context, c judge.Case) (judge.Opinion, error) {
	for _, o := range m.opinions {
		if o.Layer == judge.LayerModel && o.Model != nil && o.Model.CriteriaDigest == judge.CriteriaDigest(c.Rubric) {
			return o, nil
		}
	}
	m.missing = true
	return judge.Opinion{Layer: judge.LayerModel, Outcome: judge.Escalate, Trouble: judge.TroubleNotConfigured, Reasoning: "The model was not asked."}, nil
}

// readCases returns the decisions of an instance as golden cases, by their ids, and why others are none.
func (m *measured) readCases(ctx context.Context, instance string) (map[string]eval.Case, map[string]int, error) {
	h := newHistoryReader(ctx, m.system.Store, operation.Call{Engine: m.system.Engine})
	h.split = eval.Dev
	cases := map[string]eval.Case{}
	inst, err := m.system.Store.Load(ctx, instance)
	if err == nil {
		err = h.read(inst, func(m judgedMove) error {
			one, why, err := h.buildCase(m)
			if h.leave(why); why == "" {
				cases[one.ID] = one
			}
			return err
		})
	}
	if err != nil {
		return nil, nil, engine.StoreError("read the history", err)
	}
	return cases, h.left, nil
}
