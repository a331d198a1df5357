package eval

// The names of the baselines.
const (
	BaselineApprove    = "always_approve"
	BaselineReject     = "always_reject"
	BaselineMajority   = "majority"
	BaselineStructural = "structural"
)

// computeBaselines are what judges that do not look would have reached on the same rows.
func computeBaselines(rows []row, o Options) []Baseline {
	t := newTable(rows)
	most := approve
	for k := range outcomes {
		if t.countExpected(k) > t.countExpected(most) {
			most = k
		}
	}
	constant := func(name, about string, k int) Baseline {
		var of table
		for i := range kinds {
			of[i][k] = t.countExpected(i)
		}
		return newBaseline(name, about, of, o.Confidence)
	}
	all := []Baseline{
		constant(BaselineApprove, "approves everything", approve),
		constant(BaselineReject, "rejects everything", reject),
		constant(BaselineMajority, "gives the outcome that is right most often here: "+string(outcomes[most]), most),
	}
	if len(o.Structural) > 0 {
		all = append(all, structuralBaseline(rows, o))
	}
	return all
}

// structuralBaseline is the pipeline without a model.
func structuralBaseline(rows []row, o Options) Baseline {
	first := make(map[string]*Result, len(o.Structural))
	for i := range o.Structural {
		r := &o.Structural[i]
		if old := first[r.Case]; !isFailed(r) && (old == nil || r.Repeat < old.Repeat) {
			first[r.Case] = r
		}
	}
	var t table
	for _, w := range rows {
		if r := first[w.c.ID]; r != nil {
			t[indexOf(w.expect)][indexOf(r.Outcome)]++
		}
	}
	return newBaseline(BaselineStructural, "the same pipeline without a model", t, o.Confidence)
}

func newBaseline(name, about string, t table, confidence float64) Baseline {
	return Baseline{
		Name: name, About: about, N: t.total(),
		FalseApprove: newRate(t.falseOK(), t.mustNot(), confidence),
		Escalation:   newRate(t.countGiven(escalate), t.total(), confidence),
		Accuracy:     newRate(t.countExact(), t.total(), confidence),
		GateAccuracy: newRate(t.countGate(), t.total(), confidence),
		Kappa:        t.kappa(),
	}
}
