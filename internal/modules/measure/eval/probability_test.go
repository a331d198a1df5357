package eval

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func truths(bits ...int) []bool {
	all := make([]bool, len(bits))
	for i, b := range bits {
		all[i] = b == 1
	}
	return all
}

func repeatFloat(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

func TestAUROCPublished(t *testing.T) {
	hanleyScores, hanleyGood := []float64{}, []bool{}
	for i, n := range [][2]int{{33, 3}, {6, 2}, {6, 2}, {11, 11}, {2, 33}} {
		hanleyScores = append(hanleyScores, repeatFloat(float64(i+1), n[0]+n[1])...)
		hanleyGood = append(hanleyGood, slices.Repeat([]bool{false}, n[0])...)
		hanleyGood = append(hanleyGood, slices.Repeat([]bool{true}, n[1])...)
	}
	for _, c := range []struct {
		source string
		p      []float64
		good   []bool
		want   float64
		within float64
	}{
		{"scikit-learn, roc_auc_score", []float64{0.1, 0.4, 0.35, 0.8}, truths(0, 0, 1, 1), 0.75, 1e-12},
		{"scipy, mannwhitneyu: U1 = 17 of 5*4", []float64{19, 22, 16, 29, 24, 20, 11, 17, 12}, truths(1, 1, 1, 1, 1, 0, 0, 0, 0), 17.0 / 20, 1e-12},
		{"Hanley and McNeil 1982, Radiology 143, 109 CT images, ties", hanleyScores, hanleyGood, 0.893, 0.0005},
		{"by hand: all equal", []float64{0.5, 0.5, 0.5}, truths(1, 0, 0), 0.5, 1e-12},
	} {
		got, ok := AUROC(c.p, c.good)
		if !ok {
			t.Errorf("%s: not defined", c.source)
		}
		near(t, c.source, got, c.want, c.within)
	}
	if v, ok := AUROC([]float64{0.1, 0.2}, truths(1, 1)); ok {
		t.Errorf("one kind only: %v", v)
	}
}

func TestBrierPublished(t *testing.T) {
	near(t, "scikit-learn, brier_score_loss", Brier([]float64{0.1, 0.9, 0.8, 0.3}, truths(0, 1, 1, 0)), 0.0375, 1e-12)
	if !math.IsNaN(Brier(nil, nil)) {
		t.Error("the Brier score of nothing is a number")
	}
}

// The data of scikit-learn's calibration_curve example, in three bins of equal mass,
// worked by hand: means 0.2, 0.58333, 0.9 against shares 0, 2/3, 1.
func TestCalibrationByHand(t *testing.T) {
	p := []float64{0.1, 0.2, 0.3, 0.4, 0.65, 0.7, 0.8, 0.9, 1}
	good := truths(0, 0, 0, 0, 1, 1, 1, 1, 1)
	var all []forecast
	for i := range p {
		all = append(all, forecast{p: p[i], good: good[i], group: uint32(i)})
	}
	got := scoreProbability(all, len(all), 3, Options{}.WithDefaults())
	if len(got.Bins) != 3 {
		t.Fatalf("%d bins", len(got.Bins))
	}
	for i, want := range []struct{ mean, share float64 }{{0.2, 0}, {1.75 / 3, 2.0 / 3}, {0.9, 1}} {
		near(t, "mean", got.Bins[i].Mean, want.mean, 1e-12)
		near(t, "share", *got.Bins[i].Share.Value, want.share, 1e-12)
	}
	near(t, "ECE", got.ECE, (0.2+(2.0/3-1.75/3)+0.1)/3, 1e-12)
	near(t, "base", got.Base, 5.0/9, 1e-12)
	near(t, "Brier of the base", got.BrierBase, 20.0/81, 1e-12)
}

func TestEqualProbabilitiesShareABin(t *testing.T) {
	var all []forecast
	for i := range 95 {
		all = append(all, forecast{p: 0.9, good: i%2 == 0})
	}
	for i := range 5 {
		all = append(all, forecast{p: 0.91 + float64(i)/100, good: true})
	}
	got := binForecasts(all, 10, 0.95)
	if len(got) != 2 || got[0].N != 95 || got[1].N != 5 {
		t.Errorf("bins: %+v", got)
	}
}

func genForecasts(t *rapid.T) []forecast {
	n := rapid.IntRange(1, 80).Draw(t, "n")
	var all []forecast
	for i := range n {
		p := float64(rapid.IntRange(0, 20).Draw(t, "p")) / 20
		all = append(all, forecast{p: p, good: rapid.Bool().Draw(t, "good"), group: uint32(i), leans: rapid.Bool().Draw(t, "leans")})
	}
	return all
}

func TestProbabilityProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := genForecasts(t)
		o := Options{Resamples: 20}.WithDefaults()
		got := scoreProbability(all, len(all), maxBins, o)
		n := 0
		for i, b := range got.Bins {
			n += b.N
			if b.Low > b.High || b.Mean < b.Low-1e-12 || b.Mean > b.High+1e-12 {
				t.Fatalf("bin %+v", b)
			}
			if i > 0 && b.Low <= got.Bins[i-1].High {
				t.Fatalf("bins overlap: %+v", got.Bins)
			}
		}
		if n != len(all) || len(got.Bins) > maxBins {
			t.Fatalf("%d of %d in %d bins", n, len(all), len(got.Bins))
		}
		if got.ECE < 0 || got.ECE > 1 || *got.Brier.Value < 0 || *got.Brier.Value > 1 {
			t.Fatalf("out of range: %+v", got)
		}
		// A lower bound of the Brier score: squaring is convex.
		if got.ECE*got.ECE > *got.Brier.Value+1e-9 {
			t.Fatalf("ECE %v is above the root of Brier %v", got.ECE, *got.Brier.Value)
		}
		wins, pairs := 0.0, 0.0
		for _, a := range all {
			for _, b := range all {
				if a.good && !b.good {
					pairs++
					switch {
					case a.p > b.p:
						wins++
					case a.p == b.p:
						wins += 0.5
					}
				}
			}
		}
		if (pairs > 0) != (got.AUROC.Value != nil) {
			t.Fatalf("AUROC %v with %v pairs", got.AUROC.Value, pairs)
		}
		if pairs > 0 && math.Abs(*got.AUROC.Value-wins/pairs) > 1e-12 {
			t.Fatalf("AUROC %v, over pairs %v", *got.AUROC.Value, wins/pairs)
		}
	})
}

// Brier returns the mean squared error of probabilities (Brier 1950); good reports for each whether it came true. It
// returns NaN if there are none.
func Brier(p []float64, good []bool) float64 {
	sum := 0.0
	for i := range p {
		sum += forecast{p: p[i], good: good[i]}.square()
	}
	return sum / float64(len(p))
}

// AUROC returns the area under the receiver operating characteristic; ok is false if all are good or none is.
func AUROC(p []float64, good []bool) (area float64, ok bool) {
	all := make([]forecast, len(p))
	for i := range p {
		all[i] = forecast{p: p[i], good: good[i]}
	}
	slices.SortFunc(all, byProbability)
	value := areaUnderROC(all, nil)
	if value == nil {
		return 0, false
	}
	return *value, true
}
