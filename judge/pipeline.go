package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// ErrCase reports a Case that cannot be judged because it contradicts itself: a bug in the
// program that built it, never a mistake of the caller.
var ErrCase = errors.New("judge: malformed case")

// Config configures a Pipeline.
type Config struct {
	// Compiler compiles fields, schemas and scripts and runs them. Required.
	Compiler *validators.Compiler
	// Model is the last layer, used if Rubric.UseLLM is set (see NewModel). It must return soon after its
	// context has ended. An inconsistent opinion of it counts as unreadable. nil means that no model is
	// configured.
	Model Layer
	// Memory holds earlier judgements of a model, for a Pipeline without a Model. nil: none.
	Memory Memory
	// Fetcher fetches evidence. nil means that no source is configured.
	Fetcher Fetcher
	// Clock measures how long layers took. Default: time.Now. (The time of the decision is Case.Now.)
	Clock func() time.Time
}

// Pipeline asks the layers in order. Apart from its layers, it is stateless. It is safe for concurrent use.
type Pipeline struct {
	// withoutModel and modelled hold groups of layers, called lines, in order. All layers of a line give an
	// opinion; the first line that does not approve ends the process. modelled comes after plain, for cases
	// that ask for a model and have something to judge.
	withoutModel, withModel [][]Layer
	scripts                 Layer
	clock                   func() time.Time
}

// New returns a Pipeline. The error names what is missing in the Config.
func New(cfg Config) (*Pipeline, error) {
	if cfg.Compiler == nil {
		return nil, errors.New("judge: Config.Compiler is required")
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Model == nil {
		cfg.Model = missingModel{cfg.Memory, cfg.Clock}
	}
	if name := cfg.Model.Name(); name != LayerModel {
		return nil, fmt.Errorf("judge: Config.Model is a layer named %q, must be %q", name, LayerModel)
	}
	p := &Pipeline{scripts: scripts{cfg.Compiler}, clock: cfg.Clock}
	p.withoutModel = [][]Layer{
		{transition{}},
		{fields{cfg.Compiler}, schema{cfg.Compiler}},
		// Evidence is fetched only for data of the right form, and before the scripts, which see it.
		{evidence{cfg.Fetcher, cfg.Clock}},
		{rejection{}},
		{p.scripts},
		{state{cfg.Compiler}},
	}
	p.withModel = [][]Layer{{contentLayer{}}, {cfg.Model}}
	return p, nil
}

// LoopGuard returns how many refusals of the same question send it to a person, and how long a refusal
// counts. Both are 0 if none are counted.
func (p *Pipeline) LoopGuard() (limit int, window time.Duration) {
	for _, line := range p.withModel {
		if m, ok := line[0].(*modelLayer); ok && m.Memory != nil && m.RefusalLimit > 0 {
			return m.RefusalLimit, m.RefusalWindow
		}
	}
	return 0, 0
}

// Decide judges a case. An error means that nothing was decided and nothing should be recorded: it
// wraps script.ErrUnavailable (the sandbox could not answer; try again), ctx's error, or ErrCase.
// Anything that the case itself can cause is in the Verdict.
func (p *Pipeline) Decide(ctx context.Context, c Case) (Verdict, error) {
	h, err := c.prepare()
	if err != nil {
		return Verdict{}, err
	}
	approved, err := p.askLines(ctx, p.withoutModel, &c, &h)
	if err == nil && approved && c.Rubric.asksModel() {
		if h.blank, err = hasNothingToJudge(c); err == nil && !h.blank {
			_, err = p.askLines(ctx, p.withModel, &c, &h)
		}
	}
	if err != nil {
		return Verdict{}, err
	}
	if err := p.routeShadow(ctx, c, &h); err != nil {
		return Verdict{}, err
	}
	return settle(h), nil
}

// askLines asks the layers of each line until one does not approve.
func (p *Pipeline) askLines(ctx context.Context, lines [][]Layer, c *Case, h *deliberation) (approved bool, err error) {
	for _, line := range lines {
		approved = true
		for _, layer := range line {
			op, err := p.weighLayer(ctx, layer, c, h)
			if err != nil {
				return false, err
			}
			approved = approved && (op.Outcome == "" || op.Outcome == Approve)
		}
		if !approved {
			return false, nil
		}
	}
	return true, nil
}

// prepare prepares a case for the layers. Its error is ErrCase.
func (c *Case) prepare() (deliberation, error) {
	if err := c.validate(); err != nil {
		return deliberation{}, err
	}
	c.Rubric, c.Passed, c.Fetched = c.Rubric.withDefaults(), nil, nil
	if len(c.Evidence) == 0 && len(c.Checks.Routes)+len(c.Checks.Validators) > 0 {
		c.early = new(script.Reply)
	}
	h := deliberation{rubric: c.Rubric, reviewPath: c.ReviewPath, opinions: make([]Opinion, 0, 4)} // enough for most cases
	if len(c.Illegal) == 0 && len(c.Checks.Routes) == 0 {
		h.target = c.Candidates[0].Target
	}
	return h, nil
}

// weighLayer asks one layer and records its opinion. If the layer chose the route, weighLayer
// narrows c to that candidate for later layers.
func (p *Pipeline) weighLayer(ctx context.Context, layer Layer, c *Case, h *deliberation) (Opinion, error) {
	begun := p.clock()
	op, err := layer.Weigh(ctx, *c)
	took := max(p.clock().Sub(begun), 0)
	if err != nil {
		return Opinion{}, err
	}
	// A caller must not be able to cancel and have that count as a failure of the model.
	if err := ctx.Err(); err != nil {
		return Opinion{}, fmt.Errorf("judge: after the %s layer: %w", layer.Name(), err)
	}
	op, err = vetOpinion(layer.Name(), op)
	if err != nil || op.Outcome == "" {
		return Opinion{}, err
	}
	op = scrubOpinion(op, c.Scrub)
	op.Took = document.Milliseconds(took)
	h.opinions = append(h.opinions, op)
	if op.Outcome == Approve {
		c.Passed = append(c.Passed, op.Layer)
	}
	if op.Layer == LayerEvidence {
		c.Fetched = op.Evidence
		c.Identity, c.Bound = IdentityWith(c.Identity, c.Fetched), BoundWith(c.Bound, c.Fetched)
		c.Scrub = scrubEvidence(*c)
	}
	c.unasked = append(c.unasked, op.NotAsked...)
	if op.Route != nil {
		chosen := c.Candidates[*op.Route]
		h.target = chosen.Target
		c.Candidates, c.Checks.Routes = []Candidate{chosen}, nil
	}
	return op, nil
}

// routeShadow finds the target of a move that a layer before the routes rejected and that shadow mode
// allows. It skips the validators, which would not have run in enforce mode either.
func (p *Pipeline) routeShadow(ctx context.Context, c Case, h *deliberation) error {
	asked := slices.ContainsFunc(h.opinions, func(op Opinion) bool { return op.Layer == LayerScript })
	if c.Rubric.Mode != Shadow || len(c.Illegal) > 0 || len(c.Checks.Routes) == 0 || asked {
		return nil
	}
	c.Checks.Validators = nil
	_, err := p.weighLayer(ctx, p.scripts, &c, h)
	return err
}

// validate reports a case that cannot be judged. This prevents silent approvals: a missing document looks
// empty to a script, and a check that no layer runs never fails.
func (c Case) validate() error {
	if err := c.Rubric.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrCase, err)
	}
	if len(c.Illegal) > 0 {
		return nil
	}
	want := 1
	if len(c.Checks.Routes) > 0 {
		want = len(c.Checks.Routes)
	}
	if len(c.Candidates) != want {
		return fmt.Errorf("%w: %d candidates for %d routes", ErrCase, len(c.Candidates), len(c.Checks.Routes))
	}
	for _, next := range c.Candidates {
		if next.Target == "" {
			return fmt.Errorf("%w: a candidate without a target", ErrCase)
		}
		if len(next.Entry.Validators) > 0 || len(next.Entry.Routes) > 0 {
			return fmt.Errorf("%w: the entry of %q has scripts, which no layer runs", ErrCase, next.Target)
		}
	}
	docs := []document.JSON{c.Data, c.Context, c.Merged, c.MaskedData, c.MaskedContext, c.MaskedMerged}
	if c.Call != nil {
		docs = append(docs, c.Call.Arguments, c.Call.Masked)
	}
	for _, doc := range docs {
		if doc.Kind() == 0 {
			return fmt.Errorf("%w: a document is missing; an empty one is {}", ErrCase)
		}
	}
	return nil
}

// Review is a person's decision on a case that was escalated.
type Review struct {
	// By is the person, Reason the given reason.
	By, Reason string
}

// Approve judges a case again after a person approved it. Every deterministic layer runs again, and its
// rejections stand: a person replaces the model and the policies about it, never the rules. The content
// layer and the model are not asked, and evidence may be missing if policy lets a person decide without it.
//
// The verdict has AssuranceHuman and DecidedBy ByReviewer, or it is the rejection. The error
// is as in Decide.
func (p *Pipeline) Approve(ctx context.Context, c Case, by Review) (Verdict, error) {
	h, err := c.prepare()
	if err != nil {
		return Verdict{}, err
	}
	c.Rubric.Mode, h.rubric.Mode = Enforce, Enforce // shadow mode does not apply to a review
	for _, line := range p.withoutModel {
		for _, layer := range line {
			if _, err := p.weighLayer(ctx, layer, &c, &h); err != nil {
				return Verdict{}, err
			}
		}
		if slices.ContainsFunc(h.opinions, func(op Opinion) bool { return op.Outcome == Reject }) {
			return settle(h), nil
		}
	}
	h.opinions = append(h.opinions, scrubOpinion(Opinion{
		Layer: ByReviewer, Outcome: Approve, Confidence: 1, Assurance: AssuranceHuman, Reasoning: by.describe(),
	}, c.Scrub))
	return approveByPerson(h), nil
}

// approveByPerson turns opinions without a rejection, the last one a person's, into an approval. The
// confidence still reflects the least certain layer.
func approveByPerson(h deliberation) Verdict {
	v := combineOpinions(h.opinions)
	person := h.opinions[len(h.opinions)-1]
	v.Mode, v.Target = Enforce, h.target
	v.Outcome, v.DecidedBy, v.Reasoning = Approve, ByReviewer, person.Reasoning
	v.Findings, v.RetryAfter = nil, 0
	v.Applied = h.target != ""
	return v
}

func (r Review) describe() string {
	if r.Reason == "" {
		return fmt.Sprintf("Approved by %s.", r.By)
	}
	return fmt.Sprintf("Approved by %s: %s", r.By, r.Reason)
}
