package judge

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// entryOf returns one calibration as written in a file, with changes; "" removes a key.
func entryOf(changes ...string) string {
	fields := []string{"model", "promptDigest", "criteriaDigest", "platt", "n", "dataset", "fitted", "approvals"}
	values := map[string]string{
		"model": `"m"`, "promptDigest": `"sha256:p"`, "criteriaDigest": `"sha256:c"`,
		"platt": `{"a":-0.7,"b":0.2}`, "n": "240", "dataset": `"reviews"`, "fitted": `"2026-11-20"`,
		"approvals": `{"n":160,"groups":120,"mean":0.86,"right":0.88,"rightLow":0.81,"ece":0.04}`,
	}
	for i := 0; i < len(changes); i += 2 {
		values[changes[i]] = changes[i+1]
		if !strings.Contains(strings.Join(fields, " "), changes[i]) {
			fields = append(fields, changes[i])
		}
	}
	var parts []string
	for _, f := range fields {
		if values[f] != "" {
			parts = append(parts, fmt.Sprintf("%q:%s", f, values[f]))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func fileOf(entries ...string) string {
	return `{"v":1,"calibrations":[` + strings.Join(entries, ",") + `]}`
}

func TestParseCalibrationsRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, file, want string }{
		{"nothing", "", "the document is empty"},
		{"half", `{"v":1,"calibrations":[{"model":"m"`, "got the end of the text"},
		{"no object", `[]`, "expected an object, got an array"},
		{"a text", `"x"`, "expected an object, got a string"},
		{"no version", `{"calibrations":[]}`, `missing key "v"`},
		{"no calibrations", `{"v":1}`, `missing key "calibrations"`},
		{"another version", `{"v":2,"calibrations":[]}`, "v: is 2; this program reads 1"},
		{"half a version", `{"v":1.5,"calibrations":[]}`, "v: "},
		{"something after", fileOf() + "{}", "unexpected text after"},
		{"rubbish after", fileOf() + "x", "unexpected text after"},
		{"no list", `{"v":1,"calibrations":{}}`, "/calibrations: expected an array, got an object"},
		{"null", fileOf("null"), "/calibrations/0: expected an object, got null"},
		{"unknown key", fileOf(entryOf("note", `"x"`)), `/calibrations/0/note: unknown key "note"; known keys are "model", `},
		{"unknown key above", `{"v":1,"calibrations":[],"x":1}`, `/x: unknown key "x"; known keys are "v", "calibrations"`},
		{"a path as a key", `{"v":1,"calibrations":[],"calibrations[]":{}}`, `unknown key "calibrations[]"`},
		{"no key at all", `{"v":1,"calibrations":[],"":{}}`, `unknown key ""`},
		{"a path as a key below", fileOf(entryOf("platt.a", `[]`)), `/calibrations/0/platt.a: unknown key "platt.a"`},
		{"a key in capitals", fileOf(entryOf("model", "", "Model", `"m"`)), `/calibrations/0/Model: unknown key "Model"`},
		{"a key twice", fileOf(entryOf("n", `1,"n":2`)), `/calibrations/0/n: duplicate key "n"`},
		{"a key missing", fileOf(entryOf(), entryOf("n", "")), `/calibrations/1: missing key "n"`},
		{"a digest missing", fileOf(entryOf("criteriaDigest", "")), `/calibrations/0: missing key "criteriaDigest"`},
		{"an empty model", fileOf(entryOf("model", `""`)), "calibrations[0].model: is empty"},
		{"an empty prompt", fileOf(entryOf("promptDigest", `""`)), "calibrations[0].promptDigest: is empty"},
		{"empty criteria", fileOf(entryOf("criteriaDigest", `""`)), "calibrations[0].criteriaDigest: is empty"},
		{"a number as text", fileOf(entryOf("n", `"240"`)), "/calibrations/0/n: expected a number"},
		{"half a case", fileOf(entryOf("n", `1.5`)), "/calibrations/0/n: expected a whole number"},
		{"no case", fileOf(entryOf("n", `0`)), "calibrations[0].n: is 0;"},
		{"no platt", fileOf(entryOf("platt", "")), `/calibrations/0: missing key "platt"`},
		{"another method", fileOf(entryOf("isotonic", `{"x":[0],"y":[0]}`)), `/calibrations/0/isotonic: unknown key "isotonic"`},
		{"null as a number", fileOf(entryOf("platt", `{"a":null,"b":0}`)), "/calibrations/0/platt/a: expected a number, got null"},
		{"half a platt", fileOf(entryOf("platt", `{"a":-1}`)), `/calibrations/0/platt: missing key "b"`},
		{"a platt upside down", fileOf(entryOf("platt", `{"a":0.7,"b":0}`)), "calibrations[0].platt.a: is 0.7; above 0"},
		{"a number too large", fileOf(entryOf("platt", `{"a":-1e999,"b":0}`)), "/calibrations/0/platt/a: "},
		{"half a fit", fileOf(entryOf("approvals", `{"n":1}`)), `/calibrations/0/approvals: missing key "groups"`},
		{"a fit with more", fileOf(entryOf("approvals", `{"n":1,"x":1}`)), `/calibrations/0/approvals/x: unknown key "x"`},
		{"more groups than approvals", fileOf(entryOf("approvals", `{"n":1,"groups":2,"mean":1,"right":1,"rightLow":0.1,"ece":0}`)), "calibrations[0].approvals: n is 1 and groups is 2"},
		{"a fit of nothing", fileOf(entryOf("approvals", `{"n":0,"groups":0,"mean":1,"right":1,"rightLow":0.1,"ece":0}`)), "calibrations[0].approvals: n is 0"},
		{"a share above 1", fileOf(entryOf("approvals", `{"n":9,"groups":9,"mean":1.1,"right":1,"rightLow":0.1,"ece":0}`)), "calibrations[0].approvals.mean: is 1.1"},
		{"a bound above the share", fileOf(entryOf("approvals", `{"n":9,"groups":9,"mean":1,"right":0.5,"rightLow":0.6,"ece":0}`)), "calibrations[0].approvals.rightLow: is 0.6"},
		{"two for the same", fileOf(entryOf(), entryOf("promptDigest", `"sha256:q"`), entryOf("n", "9")), "calibrations[2]: same model, promptDigest and criteriaDigest as calibrations[0]"},
		{"two flaws", fileOf(entryOf("n", "0"), entryOf("model", `""`)), "calibrations[1].model"},
	} {
		got, err := ParseCalibrations([]byte(tt.file))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q\n%s", tt.name, err, tt.want, tt.file)
		}
		if got != nil {
			t.Errorf("%s: an error with calibrations", tt.name)
		}
	}
}

func TestCalibrationsApplyOnlyToTheirFit(t *testing.T) {
	t.Parallel()
	c, err := ParseCalibrations([]byte(fileOf(
		entryOf("platt", `{"a":-1,"b":0}`),
		entryOf("model", `"other"`, "platt", `{"a":-0.5,"b":1}`),
	)))
	if err != nil {
		t.Fatal(err)
	}
	bound := ModelRecord{Model: "m", PromptDigest: "sha256:p", CriteriaDigest: "sha256:c"}
	other := bound
	other.Model = "other"
	for _, tt := range []struct {
		name   string
		asked  ModelRecord
		stated float64
		want   float64
		fits   bool
	}{
		{"the identity", bound, 0.7, 0.7, true},
		{"held off 1", bound, 1, 0.999, true},
		{"held off 0", bound, 0, 0.001, true},
		{"another slope", other, 0.9, 1 / (1 + math.E/3), true},
		{"another model", ModelRecord{Model: "n", PromptDigest: bound.PromptDigest, CriteriaDigest: bound.CriteriaDigest}, 0.9, 0.82, false},
		{"another prompt", ModelRecord{Model: "m", PromptDigest: "sha256:x", CriteriaDigest: bound.CriteriaDigest}, 0.9, 0.82, false},
		{"other criteria", ModelRecord{Model: "m", PromptDigest: bound.PromptDigest, CriteriaDigest: "sha256:x"}, 0.9, 0.82, false},
	} {
		tt.asked.Stated = tt.stated
		got, digest, why := c.confidence(tt.asked)
		if math.Abs(got-tt.want) > 1e-6 || (digest != "") != tt.fits || why != "" {
			t.Errorf("%s: %v %q, want %v", tt.name, got, digest, tt.want)
		}
	}
	_, first, _ := c.confidence(bound)
	_, second, _ := c.confidence(other)
	if first == second || !strings.HasPrefix(first, "sha256:") {
		t.Errorf("digests %q and %q", first, second)
	}
}

// A calibration without a proven fit on approvals is not applied, and the reason is reported.
func TestCalibrationsHaveToFit(t *testing.T) {
	t.Parallel()
	bound := ModelRecord{Model: "m", PromptDigest: "sha256:p", CriteriaDigest: "sha256:c", Stated: 0.99}
	for _, tt := range []struct {
		name, approvals, why string // "": good enough
	}{
		{"not measured", "", "was not measured"},
		{"on the limits", `{"n":30,"groups":30,"mean":0.9,"right":0.85,"rightLow":0.8,"ece":0.1}`, ""},
		{"few groups", `{"n":600,"groups":29,"mean":0.9,"right":0.9,"rightLow":0.85,"ece":0.01}`, "in 29 groups, fewer than 30"},
		{"a bad fit", `{"n":600,"groups":300,"mean":0.9,"right":0.9,"rightLow":0.85,"ece":0.101}`, "its ECE on approvals is 0.101, more than 0.1"},
		{"a lenient judge", `{"n":600,"groups":300,"mean":0.94,"right":0.8,"rightLow":0.75,"ece":0.1}`, "it may overstate approvals by 0.190, more than 0.1: 0.940 on average, while 0.800 are right, at least 0.750"},
		{"too few to show it", `{"n":31,"groups":31,"mean":0.9,"right":0.9,"rightLow":0.75,"ece":0.05}`, "may overstate"},
		{"modest", `{"n":600,"groups":300,"mean":0.75,"right":0.84,"rightLow":0.8,"ece":0.09}`, ""},
	} {
		c, err := ParseCalibrations([]byte(fileOf(entryOf("approvals", tt.approvals))))
		if err != nil {
			t.Fatal(tt.name, err)
		}
		got, digest, why := c.confidence(bound)
		if (tt.why == "") != (digest != "") || (tt.why == "") != (why == "") || !strings.Contains(why, tt.why) || (tt.why != "") != (got == shrinkConfidence(0.99)) {
			t.Errorf("%s: %v %q %q", tt.name, got, digest, why)
		}
		_, applied, _ := c.confidence(ModelRecord{Model: "m", PromptDigest: "sha256:p", CriteriaDigest: "sha256:c"})
		if all := strings.Join(c.Shortcomings(), "\n"); !strings.Contains(all, tt.why) || (all == "") != (tt.why == "") || (applied != "") != (tt.why == "") {
			t.Errorf("%s: %s", tt.name, all)
		}
	}
}

func TestPlattSigns(t *testing.T) {
	t.Parallel()
	c := Calibration{Platt: Platt{A: -0.5, B: 1}}
	// 1/(1+exp(-0.5*ln(9)+1)) = 1/(1+e/3)
	if got, want := c.Apply(0.9), 1/(1+math.E/3); math.Abs(got-want) > 1e-12 {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCalibrationsHash(t *testing.T) {
	t.Parallel()
	parse := func(file string) *Calibrations {
		c, err := ParseCalibrations([]byte(file))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := entryOf(), entryOf("model", `"other"`)
	if x, y := parse(fileOf(a, b)).Hash(), parse(" "+fileOf(b, a)).Hash(); x != y || x == "" {
		t.Errorf("the order matters: %q, %q", x, y)
	}
	if parse(fileOf(a)).Hash() == parse(fileOf(entryOf("platt", `{"a":-0.7,"b":0.3}`))).Hash() {
		t.Error("another calibration has the same hash")
	}
	if got := parse(fileOf()).Hash() + (*Calibrations)(nil).Hash(); got != "" {
		t.Errorf("nothing has the hash %q", got)
	}
}

// A written calibration can be read back unchanged.
func TestCalibrationRoundTrip(t *testing.T) {
	t.Parallel()
	all := []Calibration{
		{Model: "m", PromptDigest: "p", CriteriaDigest: "c", Platt: Platt{A: -1.5}, N: 1, Approvals: &ApprovalFit{N: 40, Groups: 30, Mean: 0.9, Right: 0.95, RightLow: 0.9, ECE: 0.01}},
		{Model: "m", PromptDigest: "p", CriteriaDigest: "d", Platt: Platt{B: 0.5}, N: 9, Dataset: "x"},
	}
	text, err := json.Marshal(map[string]any{"v": 1, "calibrations": all})
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseCalibrations(text)
	if err != nil {
		t.Fatal(err)
	}
	made, err := NewCalibrations(all)
	if err != nil {
		t.Fatal(err)
	}
	if read.Hash() != made.Hash() {
		t.Errorf("%q, %q", read.Hash(), made.Hash())
	}
	bad := all[0]
	bad.Platt = Platt{A: math.NaN()}
	if _, err := NewCalibrations([]Calibration{bad}); err == nil {
		t.Error("NaN is accepted")
	}
}

// For any stated value, the confidence is 0..1, and a higher one never counts for less.
func TestConfidenceRises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := Calibration{Platt: Platt{
			A: -rapid.Float64Range(0, 1e308).Draw(t, "a"), B: rapid.Float64Range(-1e308, 1e308).Draw(t, "b"),
		}}
		low := rapid.Float64Range(0, 1).Draw(t, "low")
		high := rapid.Float64Range(low, 1).Draw(t, "high")
		for _, of := range []func(float64) float64{c.Apply, shrinkConfidence} {
			a, b := of(low), of(high)
			if !(a >= 0 && b <= 1) || b < a-1e-12 {
				t.Fatalf("%v gives %v, %v gives %v", low, a, high, b)
			}
		}
	})
}

func TestShrunk(t *testing.T) {
	t.Parallel()
	for stated, want := range map[float64]float64{
		1: 0.892, 0.99: 0.892, 0.875: 0.8, 0.5: 0.5, 0.3: 0.34, 0: 0.1, -1: 0.1, math.Inf(1): 0.892,
	} {
		if got := shrinkConfidence(stated); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v: %v, want %v", stated, got, want)
		}
	}
	if got := shrinkConfidence(math.NaN()); math.Abs(got-0.1) > 1e-12 {
		t.Errorf("NaN: %v", got)
	}
}

func FuzzParseCalibrations(f *testing.F) {
	f.Add([]byte(fileOf(entryOf())))
	f.Add([]byte(`{"v":1,"calibrations":[[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCalibrations(data)
		if err != nil {
			return
		}
		for at := range c.bound {
			got, digest, why := c.confidence(ModelRecord{Model: at.model, PromptDigest: at.prompt, CriteriaDigest: at.criteria, Stated: 0.8})
			if !(got >= 0 && got <= 1) || (digest == "") == (why == "") {
				t.Errorf("%v %q %q", got, digest, why)
			}
		}
	})
}
