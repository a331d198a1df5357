package workflow_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

func drawText(t testing.TB, d *workflow.Definition, m workflow.Marks) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.WriteText(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// checkText reports a line of a text drawing that a terminal would not show as it is, or not within 80 columns.
func checkText(drawn string) error {
	for line := range strings.SplitSeq(strings.TrimSuffix(drawn, "\n"), "\n") {
		columns := 0
		for _, r := range line {
			if r != ' ' && !unicode.IsPrint(r) {
				return fmt.Errorf("%q has the character %U", line, r)
			}
			switch {
			case unicode.Is(unicode.M, r):
			case r >= 0x1100 && !(r >= 0x2000 && r < 0x2e80): // the range has the drawing's own characters
				columns += 2
			default:
				columns++
			}
		}
		if columns > 80 {
			return fmt.Errorf("%q has %d columns", line, columns)
		}
	}
	return nil
}

// two returns a definition of two states, with one label everywhere.
func two(label string) *workflow.Definition {
	first := "1" + label
	a := &workflow.State{Name: first, Actions: []string{label, label + "2"}, Transitions: map[string]*workflow.Transition{
		label:       {Action: label, Routes: []workflow.Route{{Target: label, Condition: label}, {Target: first, Condition: "true"}}},
		label + "2": {Action: label + "2", Routes: []workflow.Route{{Target: label}}},
	}}
	b := &workflow.State{Name: label, Final: true, Outcome: label}
	return &workflow.Definition{Name: label, InitialState: first, StateNames: []string{first, label}, States: map[string]*workflow.State{first: a, label: b}}
}

// everyMark marks a definition of two with everything.
func everyMark(label string) workflow.Marks {
	first := "1" + label
	return workflow.Marks{
		Current: first, Visited: []string{label, first}, Path: []workflow.Move{{From: first, Action: label, To: first}}, Next: []string{label, label + "2"},
		Refusals: []workflow.Refusals{{State: first, Action: label, Count: 123456}}, Traffic: []workflow.Traffic{{State: first, Action: label, Asked: 1 << 40, Refused: 7}},
	}
}

// Whatever a label holds, it is drawn as text: markup is escaped, hidden characters are written out, and long words
// are cut.
func TestHostileLabels(t *testing.T) {
	for name, c := range map[string]struct {
		label string
		shows string // in the SVG
	}{
		"HTML":              {`<b onclick="alert(1)">x</b>`, "&lt;b onclick"},
		"script":            {`</title></style><script>alert(1)</script>`, "&lt;script&gt;"},
		"SVG":               {`<svg onload=alert(1)><use href="#x"/></svg>`, "&lt;svg onload"},
		"an address":        {`javascript:alert(1)`, ">javascript:alert(1)<"},
		"the end of a text": {`]]>--><!--<![CDATA[`, "]]&gt;"},
		"an entity":         {`&amp;&#60;&lol;`, "&amp;amp;"},
		"a long word":       {strings.Repeat("w", 100_000), "www…<"},
		"right to left":     {"abc\u202Edef\u2066\u200F", "⟨U+202E⟩"},
		"an escape":         {"\x1b[2J\x1b]8;;http://x\x07", "⟨U+001B⟩[2J"},
		"invalid UTF-8":     {"a\xff\xfe\xc0b", "⟨0xFF⟩"},
		"nothing to see":    {"\u200b\u00ad\ufeff\u2028\u3164", "⟨U+200B⟩"},
		"a null":            {"a\x00b", "⟨U+0000⟩"},
		"a pile of accents": {"z" + strings.Repeat("\u0334\u0335", 300), "⟨U+0334⟩"},
		"wide characters":   {strings.Repeat("\ufdfd漢", 200), "…<"},
	} {
		t.Run(name, func(t *testing.T) {
			d := two(c.label)
			svg := drawSVG(t, d, everyMark(c.label))
			if err := checkSVG(svg); err != nil {
				t.Fatalf("%v\n%.3000s", err, svg)
			}
			if !strings.Contains(svg, c.shows) {
				t.Errorf("does not show %q: %.6000s", c.shows, svg)
			}
			for _, r := range svg {
				if r != '\n' && r != ' ' && !unicode.IsPrint(r) {
					t.Errorf("the drawing has the character %U", r)
				}
			}
			if len(svg) > 32<<10 {
				t.Errorf("%d bytes", len(svg))
			}
			text := drawText(t, d, everyMark(c.label))
			if err := checkText(text); err != nil {
				t.Error(err)
			}
			if n := strings.Count(text, "\n"); n < 5 || n > 8 {
				t.Errorf("%d lines: %s", n, text)
			}
		})
	}
}

func TestDrawingsOfAnything(t *testing.T) {
	label := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,200}`), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(label, 1, 8, rapid.ID[string]).Draw(rt, "states")
		pick := rapid.SampledFrom(names)
		d := &workflow.Definition{Name: label.Draw(rt, "name"), InitialState: pick.Draw(rt, "initial"), StateNames: names, States: map[string]*workflow.State{}}
		m := workflow.Marks{Current: pick.Draw(rt, "current"), Visited: rapid.SliceOf(pick).Draw(rt, "visited")}
		for _, n := range names {
			s := &workflow.State{Name: n, Outcome: label.Draw(rt, "outcome"), Final: rapid.Bool().Draw(rt, "final"), Transitions: map[string]*workflow.Transition{}}
			s.Actions = rapid.SliceOfNDistinct(label, 0, 5, rapid.ID[string]).Draw(rt, "actions")
			for _, a := range s.Actions {
				to := pick.Draw(rt, "to")
				s.Transitions[a] = &workflow.Transition{Action: a, Routes: []workflow.Route{{Target: to, Condition: label.Draw(rt, "condition")}}}
				m.Path, m.Next = append(m.Path, workflow.Move{From: n, Action: a, To: to}), append(m.Next, a)
				m.Refusals = append(m.Refusals, workflow.Refusals{State: n, Action: a, Count: rapid.IntRange(0, 1e6).Draw(rt, "refusals")})
			}
			d.States[n] = s
		}
		svg := drawSVG(t, d, m)
		if err := checkSVG(svg); err != nil {
			rt.Fatalf("%v\n%s", err, svg)
		}
		if err := checkText(drawText(t, d, m)); err != nil {
			rt.Fatal(err)
		}
	})
}

// Any definition that parses is drawn within a second as valid XML, inside its box.
func FuzzSVG(f *testing.F) {
	for _, doc := range examples(f) {
		f.Add(doc)
	}
	f.Add([]byte(hostile))
	f.Add([]byte(everything))
	f.Fuzz(func(t *testing.T, doc []byte) {
		d, err := workflow.Parse("fuzz", doc)
		if err != nil {
			t.Skip()
		}
		m := workflow.Marks{Current: d.InitialState, Visited: d.StateNames}
		if s := d.States[d.InitialState]; s != nil {
			m.Next = s.Actions
		}
		svg, took := "", time.Hour
		for try := 0; try < 5 && took > time.Second; try++ { // other tests may take the processor
			began := time.Now()
			svg = drawSVG(t, d, m)
			took = time.Since(began)
		}
		if took > time.Second {
			t.Errorf("drawn in %s", took)
		}
		if err := checkSVG(svg); err != nil {
			t.Errorf("%v\n%s", err, svg)
		}
		if err := checkText(drawText(t, d, m)); err != nil {
			t.Error(err)
		}
	})
}

// TestLargeDefinitionsAreListed: up to 200 states are drawn, more are listed, and the list says what it leaves out.
func TestLargeDefinitionsAreListed(t *testing.T) {
	count := func(svg string) int { return strings.Count(svg, `<g class="gavel-state`) }
	if svg := drawSVG(t, manyStates(t, 200), workflow.Marks{}); count(svg) != 200 || strings.Contains(svg, "Left out") || !strings.Contains(svg, "gavel-head") {
		t.Errorf("200 states: %d, %.300s", count(svg), svg)
	}
	if svg := drawSVG(t, manyStates(t, 201), workflow.Marks{}); count(svg) != 200 || !strings.Contains(svg, "Left out: 1 state.") {
		t.Errorf("201 states: %d, %.300s", count(svg), svg)
	}
	svg := drawSVG(t, manyStates(t, 2000), workflow.Marks{Current: "state 1999"})
	if count(svg) != 200 || !strings.Contains(svg, "Left out: 1800 states.") || !strings.Contains(svg, `data-state="state 1999"`) || !strings.Contains(svg, "A diagram of 2000 states") {
		t.Errorf("2000 states: %d, %.600s", count(svg), svg)
	}
	if len(svg) > 64<<10 {
		t.Errorf("2000 states: %d bytes", len(svg))
	}
}

// Drawing costs nothing at the start of a program: the layout has no package initialisation, and that of workflow is
// small. Every command and every sandbox worker pays for it.
func TestDrawingCostsNothingAtStart(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(string(out), "init github.com/gavel-mcp/gavel/engine/workflow/layout ") {
		t.Errorf("the layout is initialised at start: %s", out)
	}
	m := regexp.MustCompile(`init github\.com/gavel-mcp/gavel/engine/workflow @.* clock, (\d+) bytes`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no trace of this package: %s", out)
	}
	if n, _ := strconv.Atoi(string(m[1])); n > 64<<10 {
		t.Errorf("%d bytes at start", n)
	}
}
