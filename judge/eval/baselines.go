package eval

// The names of the baselines.
const (
	BaselineApprove    = "always_approve"
	BaselineReject     = "always_reject"
	BaselineMajority   = "majority"
	BaselineStructural = "structural"
)

// baselines are what judges that do not look would have reached on the same rows.
func baselines(rows []row, o Options) []Baseline {
	t := tabulate(rows)
	most := approve
	for k := range outcomes {
		if t.expected(k) > t.expected(most) {
			most = k
		}
	}
	constant := func(name, about string, k int) Baseline {
		var of table
		for i := range kinds {
			of[i][k] = t.expected(i)
		}
		return baseline(name, about, of, o.Confidence)
	}
	all := []Baseline{
		constant(BaselineApprove, "approves everything", approve),
		constant(BaselineReject, "rejects everything", reject),
		constant(BaselineMajority, "gives the outcome that is right most often here: "+string(outcomes[most]), most),
	}
	if len(o.Structural) > 0 {
		all = append(all, structural(rows, o))
	}
	return all
}

// structural is the pipeline without a model.
func structural(rows []row, o Options) Baseline {
	first := make(map[string]*Result, len(o.Structural))
	for i := range o.Structural {
		r := &o.Structural[i]
		if old := first[r.Case]; !failed(r) && (old == nil || r.Repeat < old.Repeat) {
			first[r.Case] = r
		}
	}
	var t table
	for _, w := range rows {
		if r := first[w.c.ID]; r != nil {
			t[indexOf(w.expect)][indexOf(r.Outcome)]++
		}
	}
	return baseline(BaselineStructural, "the same pipeline without a model", t, o.Confidence)
}

func baseline(name, about string, t table, confidence float64) Baseline {
	return Baseline{
		Name: name, About: about, N: t.n(),
		FalseApprove: rate(t.falseOK(), t.mustNot(), confidence),
		Escalation:   rate(t.given(escalate), t.n(), confidence),
		Accuracy:     rate(t.exact(), t.n(), confidence),
		GateAccuracy: rate(t.gate(), t.n(), confidence),
		Kappa:        t.kappa(),
	}
}
