package eval

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestKappaPublished(t *testing.T) {
	for _, c := range []struct {
		source string
		counts []int
		want   float64
		within float64
	}{
		{"Fleiss 1981, Statistical Methods for Rates and Proportions, table 13.1", []int{75, 1, 4, 5, 4, 1, 0, 0, 10}, 0.68, 0.005},
		{"Landis and Koch 1977, Biometrics 33, Winnipeg patients", []int{38, 5, 0, 1, 33, 11, 3, 0, 10, 14, 5, 6, 3, 7, 3, 10}, 0.208, 0.0005},
		{"Landis and Koch 1977, Biometrics 33, New Orleans patients", []int{5, 3, 0, 0, 3, 11, 4, 0, 2, 13, 3, 4, 1, 2, 4, 14}, 0.297, 0.0005},
		{"Wikipedia, Cohen's kappa, simple example", []int{20, 5, 10, 15}, 0.4, 1e-12},
		{"Wikipedia, same percentages, 1", []int{45, 15, 25, 15}, 0.1304, 0.00005},
		{"Wikipedia, same percentages, 2", []int{25, 35, 5, 35}, 0.2593, 0.00005},
		{"by hand: always the opposite", []int{0, 5, 5, 0}, -1, 1e-12},
		{"by hand: po 0.2, pe 0.5", []int{1, 4, 4, 1}, -0.6, 1e-12},
	} {
		got := kappaOf(c.counts)
		if got == nil {
			t.Errorf("%s: not defined", c.source)
			continue
		}
		near(t, c.source, *got, c.want, c.within)
	}
}

func TestKappaUndefined(t *testing.T) {
	for name, words := range map[string][2][]string{
		"nothing":     {nil, nil},
		"one word":    {{"a", "a"}, {"a", "a"}},
		"other sizes": {{"a"}, {"a", "b"}},
	} {
		if k, ok := Kappa(words[0], words[1]); ok {
			t.Errorf("%s: kappa is %v", name, k)
		}
	}
	if k, ok := Kappa([]string{"a", "a"}, []string{"b", "b"}); !ok || k != 0 {
		t.Errorf("two raters with a word of their own: %v %v, want 0", k, ok)
	}
}

func TestKappaProperties(t *testing.T) {
	words := rapid.SampledFrom([]string{"yes", "no", "maybe"})
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(words, 2, 60).Draw(t, "a")
		b := rapid.SliceOfN(words, len(a), len(a)).Draw(t, "b")
		k, ok := Kappa(a, b)
		if back, okBack := Kappa(b, a); ok != okBack || fmt.Sprintf("%.12f", back) != fmt.Sprintf("%.12f", k) {
			t.Fatalf("not symmetric: %v and %v", k, back)
		}
		if !ok {
			return
		}
		if k < -1-1e-12 || k > 1+1e-12 {
			t.Fatalf("out of range: %v", k)
		}
		if slices.Equal(a, b) != (k > 1-1e-12) {
			t.Fatalf("1 means agreement: %v of %v and %v", k, a, b)
		}
		order := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)).Perm(len(a))
		c, d := make([]string, len(a)), make([]string, len(a))
		for to, from := range order {
			c[to], d[to] = a[from], b[from]
		}
		if other, _ := Kappa(c, d); fmt.Sprintf("%.12f", other) != fmt.Sprintf("%.12f", k) {
			t.Fatalf("depends on the order: %v and %v", k, other)
		}
	})
}

// Kappa returns Cohen's kappa of two raters over the same items (Cohen 1960, "A coefficient of agreement for nominal
// scales"). 1 is full agreement, 0 is chance, and below 0 is less than chance. a and b have the same length, and the
// words are arbitrary. ok is false if kappa is undefined: there are no items, or both raters used a single word, the
// same one.
func Kappa(a, b []string) (kappa float64, ok bool) {
	if len(a) != len(b) {
		return 0, false
	}
	index := map[string]int{}
	for _, words := range [][]string{a, b} {
		for _, word := range words {
			if _, known := index[word]; !known {
				index[word] = len(index)
			}
		}
	}
	k := len(index)
	counts := make([]int, k*k)
	for i := range a {
		counts[index[a[i]]*k+index[b[i]]]++
	}
	value := kappaOf(counts)
	if value == nil {
		return 0, false
	}
	return *value, true
}
