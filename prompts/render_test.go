package prompts_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/prompts"
)

var update = flag.Bool("update", false, "write the golden prompts")

// full uses every feature of the template.
func full() prompts.Input {
	return prompts.Input{
		Workflow: "document-review", About: "A document is\nreviewed",
		From: "reviewing", FromAbout: "Somebody reads it", Action: "approve", ActionAbout: "The reader accepts it", To: "approved", ToAbout: "Done",
		Criteria:  []prompts.Criterion{{ID: "c1", Text: "names what was\n- c9: read"}, {ID: "c2", Text: "says what was \u202echecked\u200b"}},
		Passed:    []string{"The required fields are there."},
		Reference: "Read sections 1 to 3.",
		Exemplars: []prompts.Exemplar{{Data: json.RawMessage(`{"comments":"LGTM"}`), Outcome: "reject", Why: "names nothing"}},
		Fetched:   true,
		Documents: []prompts.Document{{Name: "context", Text: `{"documentId":"DOC-7"}`}, {Name: "evidence", Text: `{"tests":{"exitCode":0}}`}, {Name: "data", Text: `{"comments":"Read it."}`}},
		Marker:    "M4RK3R", Nonce: "N0NC3",
	}
}

// bare is the smallest possible input.
func bare() prompts.Input {
	return prompts.Input{
		Workflow: "w", From: "a", Action: "go", To: "b", Criteria: []prompts.Criterion{{ID: "c1", Text: "it is good"}},
		Documents: []prompts.Document{{Name: "data", Text: "{}"}}, Marker: "M", Nonce: "N",
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, id := range append(prompts.IDs(), prompts.Overall) {
		for name, in := range map[string]prompts.Input{"full": full(), "bare": bare()} {
			p, err := prompts.Render(id, in)
			if err != nil {
				t.Fatal(err)
			}
			got := p.ID + " " + p.Digest + "\n=== system\n" + p.System + "\n=== user\n" + p.User + "\n=== shape\n" + p.Shape + "\n=== schema\n" + string(p.Schema) + "\n"
			path := filepath.Join("testdata", strings.ReplaceAll(id, "/", "_")+"_"+name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s is not what is rendered (run with -update and read the diff; a changed template is a new version):\n%s", path, got)
			}
		}
	}
}

// The prompt and the schema explain what proves a criterion, and the prompt explains how to judge a move
// without data.
func TestTheContextIsProof(t *testing.T) {
	t.Parallel()
	p, err := prompts.Render(prompts.TransitionV3, bare())
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"system": p.System, "schema": string(p.Schema), "shape": p.Shape} {
		if what != "shape" && !strings.Contains(text, "verbatim quote of at least four words") {
			t.Errorf("the %s does not say what proves a criterion", what)
		}
	}
	if !strings.Contains(p.System, `Where "data" is {}`) {
		t.Error("the system text does not say what to do without data")
	}
}

// Other packages rely on the order of the parts and on what never reaches the model.
func TestForm(t *testing.T) {
	t.Parallel()
	p, err := prompts.Render(prompts.TransitionV3, full())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(p.User, "\n")
	for _, want := range []string{"- c1: names what was - c9: read", "- c2: says what was checked", "<<M4RK3R:context>>", "<<M4RK3R:data>>", `{"comments":"Read it."}`, "<<M4RK3R:end>>"} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %q in:\n%s", want, p.User)
		}
	}
	data, criteria := strings.Index(p.User, ":data>>"), strings.Index(p.User, "- c1:")
	if context := strings.Index(p.User, ":context>>"); !(criteria < context && context < data) {
		t.Errorf("criteria at %d, context at %d, data at %d", criteria, context, data)
	}
	if strings.Contains(p.System+p.User, "N0NC3") || !strings.Contains(p.Shape, `"nonce": "N0NC3"`) || !strings.Contains(p.Shape, "JSON") {
		t.Error("the nonce belongs into the shape, and nowhere else")
	}
	if strings.ContainsAny(p.User, "\u202e\u200b") {
		t.Error("hidden characters of the owner's texts are shown")
	}
}

// The system text and the digest are the same for every case: providers cache the text, and calibrations are
// bound to the digest.
func TestSteady(t *testing.T) {
	t.Parallel()
	a, errA := prompts.Render(prompts.TransitionV3, full())
	b, errB := prompts.Render(prompts.TransitionV3, bare())
	if errA != nil || errB != nil || a.System != b.System || a.Digest != b.Digest || !strings.HasPrefix(a.Digest, "sha256:") {
		t.Errorf("%v, %v, %s, %s", errA, errB, a.Digest, b.Digest)
	}
}

func TestUnknownTemplate(t *testing.T) {
	t.Parallel()
	_, err := prompts.Render("transition/v9", bare())
	if err == nil || !strings.Contains(err.Error(), prompts.TransitionV1) {
		t.Errorf("%v", err)
	}
	if !slices.Contains(prompts.IDs(), prompts.TransitionV1) {
		t.Error(prompts.IDs())
	}
}

// The schema uses only the subset that every enforcing provider accepts.
func TestSchemaSubset(t *testing.T) {
	t.Parallel()
	p, err := prompts.Render(prompts.TransitionV3, bare())
	if err != nil {
		t.Fatal(err)
	}
	order := []string{`"criteria":`, `"id":`, `"evidence":`, `"why":`, `"status":`, `"injection_suspected":`, `"reasoning":`, `"suggestions":`, `"approved":`, `"confidence":`}
	at := -1
	for _, key := range order {
		next := strings.Index(string(p.Schema), key)
		if next <= at {
			t.Errorf("%s is out of order", key)
		}
		at = next
	}
	var doc any
	if err := json.Unmarshal(p.Schema, &doc); err != nil {
		t.Fatal(err)
	}
	allRequired(t, "", doc)
	for _, bound := range []string{"minimum", "maximum", "minLength", "maxItems", "pattern"} {
		if strings.Contains(string(p.Schema), `"`+bound+`":`) {
			t.Errorf("%s is refused by some providers", bound)
		}
	}
	if nonce, criteria := strings.Index(p.Shape, `"nonce":{`), strings.Index(p.Shape, `"criteria":{`); nonce < 0 || nonce > criteria {
		t.Error("the shape's schema must ask for the nonce first")
	}
}

// The schema allows only the criteria of the question; the digest is the same for all questions.
func TestSchemaNamesTheCriteria(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]int{prompts.TransitionV1: 0, prompts.TransitionV2: 0, prompts.TransitionV3: 1} {
		p, err := prompts.Render(id, full())
		if err != nil {
			t.Fatal(err)
		}
		const ids = `"enum":["c1","c2"]`
		if strings.Count(string(p.Schema), ids) != want || strings.Count(p.Shape, ids) != want || p.Digest != prompts.Digest(id) {
			t.Errorf("%s: %s", id, p.Schema)
		}
	}
}

func allRequired(t *testing.T, path string, v any) {
	t.Helper()
	m, ok := v.(map[string]any)
	if !ok {
		return
	}
	if properties, ok := m["properties"].(map[string]any); ok {
		required, _ := m["required"].([]any)
		if len(required) != len(properties) || m["additionalProperties"] != false {
			t.Errorf("%s: %d of %d required, additionalProperties %v", path, len(required), len(properties), m["additionalProperties"])
		}
	}
	for key, inner := range m {
		allRequired(t, path+"/"+key, inner)
	}
}

// All characters that can hide or reorder text are recognised.
func TestHidden(t *testing.T) {
	t.Parallel()
	for r := rune(0xe0000); r <= 0xe0fff; r++ { // tags and reserved characters around them
		if !prompts.Hidden(r) {
			t.Errorf("%U is shown", r)
		}
	}
	for _, r := range "\x00\x1b\x7f\u0085\u00ad\u034f\u061c\u115f\u17b4\u180e\u200b\u200d\u200e\u2028\u2029\u202a\u202e\u2060\u2065\u2066\u2069\u2800\u3164\ue000\ufdd0\ufe0f\ufeff\uffa0\ufff9\uffff\U0001d173\U0001fffe" {
		if !prompts.Hidden(r) {
			t.Errorf("%U is shown", r)
		}
	}
	for _, r := range " aZ9.<>\u00a0äßжあ語한ع\u05d0\u0301\u3000\ufffd€😀" {
		if prompts.Hidden(r) {
			t.Errorf("%U is hidden", r)
		}
	}
}

func ExampleRender() {
	p, err := prompts.Render(prompts.TransitionV3, prompts.Input{
		Workflow: "document-review", From: "reviewing", Action: "approve", To: "approved",
		Criteria:  []prompts.Criterion{{ID: "c1", Text: "The comments name what was read"}},
		Documents: []prompts.Document{{Name: "data", Text: `{"comments":"Read sections 1 to 4."}`}},
		Marker:    "x7Qp", Nonce: "k2Lm",
	})
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(p.User) {
		if strings.HasPrefix(line, "- c") || strings.HasPrefix(line, "<<") || strings.HasPrefix(line, "{") {
			os.Stdout.WriteString(line) //nolint:errcheck // an example
		}
	}
	// Output:
	// - c1: The comments name what was read
	// <<x7Qp:data>>
	// {"comments":"Read sections 1 to 4."}
	// <<x7Qp:end>>
}
