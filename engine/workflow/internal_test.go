package workflow

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestSplitPointer(t *testing.T) {
	for _, c := range []struct {
		pointer string
		want    string // tokens joined by |, "" if rejected
	}{
		{"/a", "a"},
		{"/a/b", "a|b"},
		{"/a~1b/c~0d", "a/b|c~d"},
		{"/~01", "~1"},
		{"/0/*", "0|*"},
		{"", ""},
		{"a", ""},
		{"/", ""},
		{"/a/", ""},
		{"//a", ""},
		{"/a~", ""},
		{"/a~2", ""},
	} {
		tokens, err := splitPointer(c.pointer)
		if got := strings.Join(tokens, "|"); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q: %q, %v; want %q", c.pointer, got, err, c.want)
		}
		if err == nil && joinPointer("", tokens...) != c.pointer {
			t.Errorf("%q does not come back from its tokens: %q", c.pointer, joinPointer("", tokens...))
		}
	}
}

func TestWithoutText(t *testing.T) {
	for _, c := range []struct{ source, reads string }{
		{"(data) => data.total > 0", "total"},
		{"(data) => data.a + data.b > data.a", "a|b"},
		{"(data) => data.comments?.length >= 20", ""},
		{"(data) => (data.a ?? 0) > 1", ""},
		{"(data) => data.a && data.a.length > 1", ""},
		{"(data) => !data.a || data.a > 1", ""},
		{"(data) => typeof data.a === 'number' && data.a > 1", ""},
		{"(data) => data.a !== undefined && data.a > 1", ""},
		{"(data) => 'a' in data && data.a > 1", ""},
		{"(data) => Array.isArray(data.a) && data.a.length > 1", ""},
		{"(data) => ({valid: true, reason: 'data.total is fine'})", ""},
		{"(data) => true // data.total\n", ""},
		{"(data) => /* data.total */ true", ""},
		{"(data) => /* data.total", ""},
		{"(data, context) => context.data.total > 0", ""},
		{"(data) => data . total > 0", "total"},
		{"(mydata) => mydata.total > 0", ""},
		{"(data) => 'it\\'s' + data.x", "x"},
		{"'open data.x", ""},
		{"", ""},
	} {
		if got := strings.Join(listUnguardedReads(c.source), "|"); got != c.reads {
			t.Errorf("%q reads %q, want %q", c.source, got, c.reads)
		}
	}
}

func TestWithhold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in, out string
		cut     []string
	}{
		"everywhere": {
			`{"judgeConfig":{"samples":3,"strictMode":true},"states":{"a":{"transitions":{"go":{"target":"b","reference":"r","samples":5}}}}}`,
			`{"judgeConfig":{"strictMode":true},"states":{"a":{"transitions":{"go":{"target":"b"}}}}}`,
			[]string{"samples", "reference"},
		},
		"other places": {
			`{"samples":1,"tags":{"reference":"x"},"states":{"samples":{"transitions":{"reference":"b","go":{"target":"b","schema":{"samples":{}},"evidence":[{"arguments":{"reference":"{{data.x}}"}}]}}}}}`,
			`{"samples":1,"tags":{"reference":"x"},"states":{"samples":{"transitions":{"reference":"b","go":{"target":"b","schema":{"samples":{}},"evidence":[{"arguments":{"reference":"{{data.x}}"}}]}}}}}`, nil,
		},
		"routes and final states": {
			`{"judgeConfig":null,"states":{"a":{"transitions":{"go":[{"condition":"true","target":"b"}]}},"b":{"final":true}}}`,
			`{"judgeConfig":null,"states":{"a":{"transitions":{"go":[{"condition":"true","target":"b"}]}},"b":{"final":true}}}`, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, cut, err := RemoveJudgeSettings([]byte(c.in), "samples", "reference")
			if err != nil || string(out) != c.out || !slices.Equal(cut, c.cut) {
				t.Errorf("%s without %q, %v; want %s without %q", out, cut, err, c.out, c.cut)
			}
		})
	}
}

// TestDominators compares the dominator tree with the definition: through dominates target if a
// search that stops at through does not reach target. Few graphs have a dominator that is not a
// semidominator, so the test needs many graphs of some size.
func TestDominators(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // graphs
		n := 1 + random.IntN(14)
		d := &Definition{InitialState: "s0", States: map[string]*State{}}
		for i := range n {
			s := &State{Name: fmt.Sprint("s", i), Transitions: map[string]*Transition{}}
			for j := range random.IntN(4) {
				action := fmt.Sprint("a", j)
				s.Actions = append(s.Actions, action)
				s.Transitions[action] = &Transition{Action: action, Routes: []Route{{Target: fmt.Sprint("s", random.IntN(n+1))}}}
			}
			d.States[s.Name], d.StateNames = s, append(d.StateNames, s.Name)
		}
		g := newGraph(d)
		known := newDominators(g)
		reached := g.findReachable()
		for target := range n {
			if known.reaches(target) != reached[target] {
				t.Fatalf("graph %d, s%d: reached %v", seed, target, reached[target])
			}
			for through := range n {
				past, _ := g.searchFrom(through)
				want := reached[target] && reached[through] && (through == target || !past[target])
				if got := known.dominates(through, target); got != want && reached[target] {
					t.Fatalf("graph %d, s%d dominates s%d: %v, want %v", seed, through, target, got, want)
				}
			}
		}
	}
}
