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
		Criteria:  []prompts.Criterion{{ID: "c1", Text: "names what was\n- c9: read"}, {ID: "c2", Text: "says what was \u202echecked\u200b"}, {ID: "c3", Text: "is thorough [grade]", Grades: 3}},
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
	for _, id := range append(prompts.RecordedIDs(), prompts.Overall) {
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

// The prompt explains what proves a criterion, how to judge a move without data, and the form of the answer: an
// endpoint that enforces the schema may not show it.
func TestTheContextIsProof(t *testing.T) {
	t.Parallel()
	p, err := prompts.Render(prompts.TransitionV4, bare())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"verbatim quote of at least four words", `If "data" is {}`, `{"criteria": {"c1": {"evidence": …, "status": …, "why": …}}, `, `{"evidence": "", "status": "not_shown", `} {
		if !strings.Contains(p.System, want) {
			t.Errorf("the system text lacks %q", want)
		}
	}
}

// Other packages rely on the order of the parts and on what never reaches the model.
func TestForm(t *testing.T) {
	t.Parallel()
	p, err := prompts.Render(prompts.TransitionV4, full())
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
	if strings.Contains(p.System+p.User, "N0NC3") || !strings.Contains(p.Shape, `"nonce": "N0NC3"`) {
		t.Error("the nonce belongs into the shape, and nowhere else")
	}
	if strings.ContainsAny(p.User, "\u202e\u200b") {
		t.Error("hidden characters of the owner's texts are shown")
	}
}

// The system text is the same for every case of a transition, and the digest for every case: providers cache the
// text, and calibrations are bound to the digest.
func TestSteady(t *testing.T) {
	t.Parallel()
	one, other := full(), bare()
	a, errA := prompts.Render(prompts.TransitionV4, one)
	b, errB := prompts.Render(prompts.TransitionV4, other)
	if errA != nil || errB != nil || a.Digest != b.Digest || !strings.HasPrefix(a.Digest, "sha256:") {
		t.Errorf("%v, %v, %s, %s", errA, errB, a.Digest, b.Digest)
	}
	other.Criteria = one.Criteria
	if b, errB = prompts.Render(prompts.TransitionV4, other); errB != nil || a.System != b.System || string(a.Schema) != string(b.Schema) {
		t.Errorf("%v\n%s\n%s", errB, a.System, b.System)
	}
}

func TestUnknownTemplate(t *testing.T) {
	t.Parallel()
	if _, err := prompts.Render("transition/v9", bare()); err == nil {
		t.Error("rendered")
	}
	for name, ids := range map[string][]string{"v3": prompts.IDs(), "v9": prompts.RecordedIDs()} {
		if _, err := prompts.Find(name, ids); err == nil || !strings.Contains(err.Error(), prompts.TransitionV4) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if id, err := prompts.Find("v3", prompts.RecordedIDs()); id != prompts.TransitionV3 {
		t.Errorf("%q, %v", id, err)
	}
}

// The schema uses only the subset that every enforcing provider accepts.
func TestSchemaSubset(t *testing.T) {
	t.Parallel()
	p, err := prompts.Render(prompts.TransitionV4, bare())
	if err != nil {
		t.Fatal(err)
	}
	order := []string{`"criteria":`, `"c1":`, `"evidence":`, `"status":`, `"why":`, `"injection_suspected":`, `"suggestions":`, `"confidence":`}
	if graded, err := prompts.Render(prompts.TransitionV4, full()); err != nil || !strings.Contains(string(graded.Schema), `"c3":{"type":"object","properties":{"evidence":{"type":"string"},"grade":{"type":"integer","enum":[0,1,2,3]},`) || strings.Contains(p.System, "grade") || !strings.Contains(graded.System, "- grade, instead of status") {
		t.Errorf("%v: %s", err, graded.Schema)
	}
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
	for _, bound := range []string{"minLength", "maxItems", "pattern"} {
		if strings.Contains(string(p.Schema), `"`+bound+`":`) {
			t.Errorf("%s is refused by some providers", bound)
		}
	}
	if !strings.Contains(string(p.Schema), `"confidence":{"type":"number","minimum":0,"maximum":1}`) {
		t.Error("the confidence has no bounds")
	}
}

// The schema requires an answer for each criterion of the question, in order, and allows no other.
func TestSchemaNamesTheCriteria(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{prompts.TransitionV3: `"enum":["c1","c2","c3"]`, prompts.TransitionV4: `"required":["c1","c2","c3"],"additionalProperties":false`} {
		p, err := prompts.Render(id, full())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(p.Schema), want) != 1 {
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
	p, err := prompts.Render(prompts.TransitionV4, prompts.Input{
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
