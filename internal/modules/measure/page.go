package measure

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/document"
)

//go:embed judge.html
var judgeTemplates string

// Limits of the pages.
const (
	maxJudgements  = 500
	judgedPeriod   = 7 * 24 * time.Hour
	judgeAge       = 5 * time.Second // how long the figures of the page are reused
	maxCalibration = 100
	maxReading     = 10 * time.Second // of the history of an instance
)

// measured extends one system with the pages about its judge.
type measured struct {
	system  module.System
	model   *cli.Model // nil for none
	judged  recent[engine.Principal, judgements]
	agreed  recent[engine.Principal, *Agreement]
	flipped recent[flipKey, flips]
}

// UseModel implements cli.ModelUser.
func (m *measured) UseModel(model *cli.Model) { m.model = model }

func (m *measured) connect(s module.System) error {
	m.system = s
	return nil
}

func extend(module.Setup) *module.Extension {
	m := &measured{}
	labelled := map[string]func(context.Context, module.Visit) (module.File, error){"labels.jsonl": m.writeLabelled}
	return &module.Extension{Provides: m, Connect: m.connect, Metrics: m.writeMetrics, Services: map[string]any{LabelService: LabelReader(m.readLabels)}, Pages: []module.Page{
		{
			Path: "judge", Title: "Judge", Place: module.InMenu, Order: 60, Needs: engine.RightRead,
			Templates: judgeTemplates, Regions: []string{"judge", "judgements", "agreement", "calibrations"},
			Load:  func(ctx context.Context, v module.Visit) (any, error) { return m.loadJudge(ctx, v) },
			Files: labelled,
		},
		{
			Path: "definitions/{name}/flips", Title: "What would flip", Place: module.InDefinition, Order: 10, Needs: engine.RightRead,
			Templates: judgeTemplates, Regions: []string{"flips"},
			Load:  func(ctx context.Context, v module.Visit) (any, error) { return m.loadFlips(ctx, v) },
			Files: labelled,
		},
		{
			Path: "instances/{id}/decisions/{seq}/golden", Title: "Golden case", Place: module.InDecision, Order: 90, Needs: engine.RightRead,
			Templates: judgeTemplates, Regions: []string{"golden"},
			Load:  func(ctx context.Context, v module.Visit) (any, error) { return findMove(ctx, v) },
			Files: map[string]func(context.Context, module.Visit) (module.File, error){"case.jsonl": m.writeGolden},
		},
	}}
}

// recent keeps results for a while, because an open page asks for them after every event.
type recent[K comparable, V any] struct {
	mu   sync.Mutex
	kept map[K]V
	at   map[K]time.Time
}

// maxRecent limits the results that are kept.
const maxRecent = 64

func (r *recent[K, V]) get(key K, age time.Duration, load func() (V, error)) (V, error) {
	r.mu.Lock()
	defer r.mu.Unlock() // one at a time: they cost much
	if v, ok := r.kept[key]; ok && time.Since(r.at[key]) < age {
		return v, nil
	}
	v, err := load()
	if err != nil {
		return v, err
	}
	if len(r.kept) >= maxRecent || r.kept == nil {
		r.kept, r.at = map[K]V{}, map[K]time.Time{}
	}
	r.kept[key], r.at[key] = v, time.Now()
	return v, nil
}

// judgeData is what the page of the judge shows.
type judgeData struct {
	Models       []llm.ModelStats
	Calibrations []calibrationRow
	Judged       judgements
	Agreement    *Agreement // nil if the visitor may not read it, or if it took too long
}

type calibrationRow struct {
	judge.Calibration
	// Problem is why it is not applied; "" if it is.
	Problem string
}

// judgements are figures of recorded decisions.
type judgements struct {
	Models []judgedBy
	// Read is the number of decisions that were read; More reports that there are older ones in the period.
	Read     int
	More     bool
	Degraded int // decisions without a judgement that was needed; MoreDegraded if there are more
	MoreDegraded,
	TookTooLong bool
}

// judgedBy are the judgements of one model.
type judgedBy struct {
	Name                          string
	Count, Approved, Refused      int
	Escalated, Unusable, Repeated int
	Median, P95                   string
	Cost, CostEach                string // "" if unknown
	took                          []time.Duration
	cost                          float64
	priced                        int
}

func (m *measured) loadJudge(ctx context.Context, v module.Visit) (d judgeData, err error) {
	if m.model != nil {
		stats := m.model.Stats()
		d.Models = stats.Models
		for _, c := range m.model.Calibrations.All() {
			if len(d.Calibrations) < maxCalibration {
				d.Calibrations = append(d.Calibrations, calibrationRow{c, c.Shortcoming()})
			}
		}
	}
	d.Judged, err = m.judged.get(v.Call.Caller.Principal, judgeAge, func() (judgements, error) { return countJudgements(ctx, v) })
	if err == nil && engine.Authorize(v.Call.Caller.Principal, engine.RightLabel) == nil {
		d.Agreement, err = m.loadAgreement(ctx, v.Call)
	}
	return d, err
}

// countJudgements reads the newest decisions that a model took part in.
func countJudgements(ctx context.Context, v module.Visit) (j judgements, err error) {
	within, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	since := time.Now().Add(-judgedPeriod)
	yes := true
	degraded, err := operation.Decisions.Do(within, v.Call, engine.DecisionsRequest{Query: store.DecisionQuery{Since: since, Degraded: &yes}, Limit: 100})
	j.Degraded, j.MoreDegraded = len(degraded.Decisions), degraded.NextCursor != ""
	var found engine.DecisionsResult
	if err == nil {
		found, err = operation.Decisions.Do(within, v.Call, engine.DecisionsRequest{Query: store.DecisionQuery{Since: since, DecidedBy: judge.LayerModel}, Limit: maxJudgements})
	}
	if within.Err() != nil && ctx.Err() == nil {
		return judgements{TookTooLong: true}, nil
	}
	if err != nil {
		return j, err
	}
	j.Read, j.More = len(found.Decisions), found.NextCursor != ""
	byModel := map[string]*judgedBy{}
	for _, one := range found.Decisions {
		for _, o := range one.Opinions {
			if o.Layer != judge.LayerModel || o.Model == nil {
				continue
			}
			at := byModel[o.Model.Model]
			if at == nil {
				at = &judgedBy{Name: o.Model.Model}
				byModel[o.Model.Model] = at
			}
			at.add(o)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byModel)) {
		j.Models = append(j.Models, byModel[name].finish())
	}
	return j, nil
}

func (b *judgedBy) add(o judge.Opinion) {
	b.Count++
	switch o.Outcome {
	case judge.Approve:
		b.Approved++
	case judge.Reject:
		b.Refused++
	case judge.Escalate:
		b.Escalated++
	}
	if o.Trouble == judge.TroubleUnreadable || o.Trouble == judge.TroubleUnavailable {
		b.Unusable++
	}
	if o.Model.CacheHit || o.Model.Reused || o.Model.Shared {
		b.Repeated++
		return // without a call
	}
	b.took = append(b.took, o.Took.Duration())
	if o.Model.CostUSD != nil {
		b.cost += *o.Model.CostUSD
		b.priced++
	}
}

func (b *judgedBy) finish() judgedBy {
	slices.Sort(b.took)
	if n := len(b.took); n > 0 {
		b.Median, b.P95 = term.ShortDuration(b.took[n/2]), term.ShortDuration(b.took[min(n-1, n*95/100)])
	}
	if b.priced > 0 {
		b.Cost, b.CostEach = fmt.Sprintf("$%.4f", b.cost), fmt.Sprintf("$%.4f", b.cost/float64(b.priced))
	}
	return *b
}

// findMove returns the decision of a page; nil if it was not about a move.
func findMove(ctx context.Context, v module.Visit) (any, error) {
	one, err := readMove(ctx, v)
	if err != nil || one == nil {
		return nil, err
	}
	return one, nil
}

func readMove(ctx context.Context, v module.Visit) (*engine.HistoryEntry, error) {
	seq, err := strconv.ParseInt(v.Path("seq"), 10, 64)
	if err != nil || seq < 1 {
		return nil, nil //nolint:nilnil // no such decision
	}
	found, err := operation.History.Do(ctx, v.Call, engine.HistoryRequest{ID: v.Path("id"), AfterSeq: seq - 1, Limit: 1})
	if err != nil || len(found.Decisions) == 0 || found.Decisions[0].Seq != seq || !isJudgedMove(found.Decisions[0]) {
		return nil, err
	}
	return &found.Decisions[0], nil
}

// writeGolden returns a decision as a golden case, as gavel eval import history does.
func (m *measured) writeGolden(ctx context.Context, v module.Visit) (module.File, error) {
	one, err := readMove(ctx, v)
	if err != nil {
		return module.File{}, err
	}
	if one == nil {
		return module.File{}, &engine.Error{Code: engine.CodeUnknownInstance, Message: "There is no decision about a move here.", Hint: "Choose a move that was approved, refused or escalated."}
	}
	ctx, cancel := context.WithTimeout(ctx, maxReading)
	defer cancel()
	cases, left, err := m.readCases(ctx, v.Path("id"))
	if err != nil {
		return module.File{}, err
	}
	found, ok := cases[one.ID]
	if !ok {
		why := slices.Concat(slices.Sorted(maps.Keys(left)), []string{"its history is incomplete"})[0]
		return module.File{}, &engine.Error{Code: engine.CodeConflict, Message: "This decision cannot become a golden case: " + why + ".", Hint: "Choose another decision."}
	}
	found.Evidence = nil
	for _, e := range one.Evidence { // as this visitor may see it
		if e.Failure == "" {
			if found.Evidence == nil {
				found.Evidence = map[string]json.RawMessage{}
			}
			found.Evidence[e.Name] = e.Content
		}
	}
	line, err := document.Marshal(found)
	if err != nil {
		return module.File{}, engine.InternalError("write the case", err)
	}
	return module.File{Name: "case-" + one.ID + ".jsonl", Type: "application/jsonl", Content: append(line, '\n')}, nil
}
