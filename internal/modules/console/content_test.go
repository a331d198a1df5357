package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators"
)

// hostile is a text that does something if it is not escaped; seen is how people see it.
const (
	hostile       = "</pre><img src=x onerror=alert(1)><svg onload=alert(2)><script>alert(3)</script>'\"{{.}} javascript:alert(4) \u202eevil\u200b \u001b[31m&lt;"
	hostileAction = "act <b>\"'><img src=x onerror=alert(9)>"
	seen          = "</pre><img src=x onerror=alert(1)><svg onload=alert(2)><script>alert(3)</script>"
	marked        = "javascript:alert(4) ⟨U+202E⟩evil⟨U+200B⟩ "
	escaped       = "␛[31m&lt;" // in a text; JSON has escaped it itself
)

// quoteJSON writes a value as JSON, with < and > as they are.
func quoteJSON(value any) json.RawMessage { return json.RawMessage(writeJSON(value)) }

// hostileFetcher is a source whose content is hostile.
type hostileFetcher struct{}

func (hostileFetcher) Fetch(context.Context, judge.EvidenceRequest, bool) (judge.FetchResult, error) {
	return judge.FetchResult{Content: quoteJSON(map[string]string{"said": seen})}, nil
}

// doubtful is a model that quotes the data, and cannot assess the second criterion.
func doubtful(s *setup) {
	asked := llm.CompleterFunc(func(context.Context, llm.Request) (llm.Reply, error) {
		return llm.Reply{Model: "scripted", Calls: 1, Answer: llm.Answer{
			Keyed:      true,
			Confidence: 0.9, Reasoning: "Undecided " + hostile,
			Criteria: []llm.Criterion{
				{ID: "c1", Status: llm.StatusMet, Evidence: "compared   the totals with invoice 4711"},
				{ID: "c2", Status: llm.StatusCannotAssess},
			},
		}}, nil
	})
	model, err := judge.NewModel(judge.ModelConfig{Completer: asked})
	if err != nil {
		panic(err)
	}
	s.judge.Model, s.judge.Fetcher = model, hostileFetcher{}
}

// judged is a workflow with evidence and a model. Its names and criteria are hostile too.
func judged() string {
	return fmt.Sprintf(`{"name":"judged","initialState":"open","judgeConfig":{"strictMode":true},"states":{
		"open":{"transitions":{%s:{"target":"shut <i>","description":"<u>Shuts it</u>","useLLM":true,"onJudgeUnavailable":"escalate",
			"criteria":["The comments compare the totals <b>","Nothing is left open"],"evidence":[{"name":"facts","source":"facts"}]}}},
		"shut <i>":{"final":true,"outcome":"success"}}}`, quoteJSON(hostileAction))
}

var (
	element   = regexp.MustCompile(`(?s)<([a-z][a-z0-9]*)((?:\s[^<>]*)?)>`)
	ourTags   = strings.Fields("html head meta link title style body a header svg rect path span nav ul li details summary div dl dt dd form input button main p section h1 h2 h3 strong pre code ol mark blockquote figure g text title desc defs marker polygon circle tspan table thead tbody tr th td del ins time select option label textarea kbd br em script polyline line")
	attribute = regexp.MustCompile(`\s(on[a-z]+)\s*=`)
	address   = regexp.MustCompile(`(?:href|action|src)="([^"]*)"`)
)

// checkInert fails the test if a text from outside became a part of the page.
func checkInert(t *testing.T, where, page string) {
	t.Helper()
	ours := map[string]bool{}
	for _, tag := range ourTags {
		ours[tag] = true
	}
	for _, e := range element.FindAllStringSubmatch(unseen.ReplaceAllString(page, ""), -1) {
		if !ours[e[1]] || e[1] == "script" {
			t.Errorf("%s has the element %s", where, e[0])
		}
		if attribute.MatchString(e[2]) {
			t.Errorf("%s has the attribute %s", where, e[0])
		}
	}
	for _, a := range address.FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(a[1], "/console/") && !strings.HasPrefix(a[1], "#") && !strings.HasPrefix(a[1], "?") && !strings.HasPrefix(a[1], "data:image/svg+xml,") {
			t.Errorf("%s has the address %q", where, a[1])
		}
	}
	if at := strings.IndexAny(page, "\u202e\u200b\x1b"); at >= 0 {
		t.Errorf("%s has an invisible mark: %q", where, page[max(0, at-40):at+10])
	}
	if n := strings.Count(page, "<script"); n != 1 {
		t.Errorf("%s has %d scripts", where, n)
	}
}

func TestHostileContentIsInertText(t *testing.T) {
	k := newKit(t, doubtful)
	k.define(operator, judged())
	mallory := engine.Principal{ID: "agent <img src=x onerror=alert(5)> \u202e", Role: engine.RoleAgent}
	k.define(operator, paper)
	long := strings.Repeat("x", 20_000)
	text, quoted := quoteJSON(hostile), quoteJSON(seen)
	id := k.start(mallory, "paper", fmt.Sprintf(`{"text":%s,"long":%q,%s:1}`, text, long, text))
	k.advance(mallory, id, "submit", fmt.Sprintf(`{"title":%s}`, text))
	review := k.park(mallory, id, "publish", fmt.Sprintf(`{"text":%s,"long":%q}`, text, long))
	other := k.start(mallory, "judged", fmt.Sprintf(`{%s:%s}`, quoted, quoted))
	unsure := k.park(mallory, other, hostileAction, fmt.Sprintf(`{"comments":"I compared the totals with invoice 4711.","text":%s,"long":%q}`, quoted, long))
	if _, err := k.Checkpoint(t.Context(), operator, engine.CheckpointRequest{ID: id, Description: hostile}); err != nil {
		t.Fatal(err)
	}
	v := k.signIn(operator)
	decision := "instances/" + id + "/decisions/3"
	for _, page := range []string{
		"", "instances", "instances?workflow=%3Cscript%3Ealert(1)%3C/script%3E", "instances/" + id, decision, "reviews", "reviews/" + review,
		"instances/" + id + "/cancel", "instances/" + id + "/undo", "instances/" + other, "instances/" + other + "/decisions/2", "reviews/" + unsure, "reviews?workflow=%22%3E%3Cimg%20src=x%3E",
	} {
		body := v.show(page)
		checkInert(t, "/"+page, body)
		if n := len(body); n > 200_000 {
			t.Errorf("/%s has %d bytes", page, n)
		}
	}
	wantText(t, v.show("instances/"+id), seen, marked, marked+escaped, "agent <img src=x onerror=alert(5)> ⟨U+202E⟩", "The whole document", "more characters")
	wantText(t, v.show(decision), seen, marked, "The whole document")
	wantText(t, v.show("reviews/"+review), seen, marked, "The whole document")
	wantText(t, v.show("instances/"+other+"/decisions/2"), "Undecided "+seen, "The comments compare the totals <b>", `"said": "`)
	wantText(t, v.show("reviews/"+unsure), "Undecided "+seen, "<u>Shuts it</u>", "shut <i>")
	if body := v.show("reviews/" + unsure); !strings.Contains(body, "<mark>compared the totals with invoice 4711</mark>") {
		t.Error("the quote is not marked in the data")
	}
	whole := v.get(decision + "/-/data.json")
	var data map[string]string
	if err := json.Unmarshal([]byte(whole.body), &data); err != nil || data["text"] != hostile || data["long"] != long {
		t.Errorf("the whole document: %v", err)
	}
	if got := whole.header; !strings.HasPrefix(got.Get("Content-Disposition"), "attachment") || got.Get("Content-Type") != "application/json" || !strings.Contains(got.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("the download has the headers %v", got)
	}
	got := v.send("instances/"+id+"/cancel", "confirm", "revision", "99", "reason", seen) // what was typed stays as it is
	checkInert(t, "a failed form", got.body)
	wantText(t, got.body, seen)
	if got := v.send("instances/"+id+"/cancel", "confirm", "revision", "2", "reason", hostile); got.status != http.StatusSeeOther {
		t.Fatalf("cancel: %d\n%s", got.status, textOf(got.body))
	}
	checkInert(t, "the cancelled instance", v.show("instances/"+id))
	checkInert(t, "the stale review", v.show("reviews/"+review))
	wantText(t, v.show("reviews/"+review), "No longer valid")
}

func TestADecisionSaysWhatWasNotChecked(t *testing.T) {
	k := newKit(t, doubtful)
	k.define(operator, judged())
	id := k.start(agent, "judged", `{}`)
	review := k.park(agent, id, hostileAction, `{"comments":"I compared the totals with invoice 4711."}`)
	v := k.signIn(auditor)
	for _, page := range []string{"instances/" + id + "/decisions/2", "reviews/" + review} {
		wantText(t, v.show(page), "What was not checked", "No script checked the data.", "No schema is declared",
			"Only the requester's own words show it: The comments compare the totals <b>", "Not assessed: Nothing is left open", "fetched for the decision", "sha256:")
	}
	body := v.show("reviews/" + review)
	if facts, opinion := strings.Index(body, "<h2>Evidence</h2>"), strings.Index(body, "<h2>Why you are asked</h2>"); facts < 0 || facts > opinion {
		t.Errorf("evidence at %d, the model's opinion at %d", facts, opinion)
	}
}

func TestUncheckedLayersAreListed(t *testing.T) {
	pass := func(layers ...judge.LayerName) (out []judge.Opinion) {
		for _, l := range layers {
			out = append(out, judge.Opinion{Layer: l, Outcome: judge.Approve, Confidence: 1})
		}
		return out
	}
	refused := append(pass(judge.LayerTransition), judge.Opinion{Layer: judge.LayerFields, Outcome: judge.Reject})
	for what, c := range map[string]struct {
		decision judge.Verdict
		want     []string
		not      string
	}{
		"nothing but legality": {judge.Verdict{Opinions: pass(judge.LayerTransition)}, []string{"No field is required", "No schema", "No evidence", "No script", "No model"}, "Not examined"},
		"refused for a field":  {judge.Verdict{Opinions: refused}, []string{"No schema", `Not examined after the answer of the layer "Required fields": evidence, script, model.`}, "No model"},
		"all layers":           {judge.Verdict{Opinions: pass(judge.LayerTransition, judge.LayerFields, judge.LayerSchema, judge.LayerEvidence, judge.LayerScript, judge.LayerContent, judge.LayerModel)}, nil, "No "},
		"rejected by a person": {judge.Verdict{Opinions: []judge.Opinion{{Layer: judge.ByReviewer, Outcome: judge.Reject}}}, []string{"a person decided"}, "No script"},
		"failed evidence": {
			judge.Verdict{Opinions: pass(judge.LayerTransition, judge.LayerEvidence), Degraded: true, Sandbox: []string{"seccomp"}, Evidence: []judge.Evidence{{Name: "tests", Failure: judge.FailureTimeout}, {Name: "log", Truncated: true}}},
			[]string{`"tests" could not be fetched (timeout)`, `Only a part of the evidence "log"`, "without a protection: seccomp", "needed but not available"},
			"No evidence",
		},
	} {
		got := strings.Join(listUnchecked(engine.Decision{Verdict: c.decision}), "\n")
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is missing in\n%s", what, want, got)
			}
		}
		if strings.Contains(got, c.not) {
			t.Errorf("%s: %q should not be in\n%s", what, c.not, got)
		}
	}
}

func TestQuotesAreMarked(t *testing.T) {
	for _, c := range []struct{ text, quote, want string }{
		{`{"a": "one two three"}`, "two  three", `{&#34;a&#34;: &#34;one <mark>two three</mark>&#34;}`},
		{`{"a": "say \"<b>\" now"}`, `say "<b>" now`, `{&#34;a&#34;: &#34;<mark>say \&#34;&lt;b&gt;\&#34; now</mark>&#34;}`},
		{`{"a": "line\nnext"}`, "line next", `{&#34;a&#34;: &#34;<mark>line\nnext</mark>&#34;}`},
		{`{"a": ".*"}`, `.*`, `{&#34;a&#34;: &#34;<mark>.*</mark>&#34;}`},
		{`{"a": "x"}`, "y", `{&#34;a&#34;: &#34;x&#34;}`},
		{`{"a": "x"}`, `""`, `{&#34;a&#34;: &#34;x&#34;}`},
	} {
		if got := string(markSpans(c.text, findQuote(c.text, c.quote))); got != c.want {
			t.Errorf("%q in %s: %s, want %s", c.quote, c.text, got, c.want)
		}
	}
	if got := string(markSpans("abcdef<", [][2]int{{2, 5}, {0, 3}, {1, 2}})); got != "<mark>abc</mark><mark>de</mark>f&lt;" {
		t.Errorf("overlapping spans: %s", got)
	}
}

func TestFindingsAreNotRepeated(t *testing.T) {
	all := []validators.Finding{{Message: "Too short."}, {Message: "Too short.", Hint: "Say more."}, {Message: "Late."}}
	if got := omitSaid("Too short.", all); len(got) != 2 || got[0].Hint == "" || got[1].Message != "Late." {
		t.Errorf("got %+v", got)
	}
}

// secretive is a workflow with a sensitive field.
const secretive = `{"name":"secretive","initialState":"a","sensitive":["/iban"],"states":{
	"a":{"transitions":{"pay":{"target":"b","requireAssurance":"human"},"go":"b"}},
	"b":{"transitions":{"back":"a"}}}}`

// TestNoPageShowsWhatRESTMasks compares pages with the operation behind GET /v1/instances/{id}.
func TestNoPageShowsWhatRESTMasks(t *testing.T) {
	const secret = "DE75512108001245126199"
	k := newKit(t)
	k.define(operator, secretive)
	id := k.start(agent, "secretive", fmt.Sprintf(`{"iban":%q}`, secret))
	k.advance(agent, id, "go", fmt.Sprintf(`{"iban":%q,"note":"to %s"}`, secret, secret))
	k.advance(agent, id, "back", `{}`)
	review := k.park(agent, id, "pay", fmt.Sprintf(`{"iban":%q,"note":"pay %s"}`, secret, secret))
	pages := []string{"", "instances", "instances/" + id, "instances/" + id + "?revision=2", "reviews", "reviews/" + review}
	for seq := 1; seq <= 4; seq++ {
		decision := fmt.Sprintf("instances/%s/decisions/%d", id, seq)
		pages = append(pages, decision, decision+"/-/data.json", decision+"/-/context.json", decision+"/-/decision.json", decision+"/-/evidence.json")
	}
	for _, file := range []string{"review.json", "data.json", "context.json", "evidence.json"} {
		pages = append(pages, "reviews/"+review+"/-/"+file)
	}
	pages = append(pages, "instances/"+id+"/-/context.json", "instances/"+id+"/-/timeline.json")
	for _, who := range []engine.Principal{reviewer, auditor, operator} {
		status, err := k.Status(t.Context(), who, id)
		if err != nil {
			t.Fatal(err)
		}
		masked := !strings.Contains(string(status.Context), secret)
		if masked != (who.Role != engine.RoleOperator) {
			t.Fatalf("%s: the engine masks: %v", who.Role, masked)
		}
		v, shown := k.signIn(who), 0
		for _, page := range pages {
			if strings.Contains(v.show(page), secret) {
				shown++
				if masked {
					t.Errorf("%s: /%s shows a sensitive value", who.Role, page)
				}
			}
		}
		if !masked && shown == 0 {
			t.Errorf("%s sees the value nowhere, although the engine shows it", who.Role)
		}
	}
	for _, page := range []string{"instances/" + id + "/-/timeline.json", "instances/" + id + "/decisions/4/-/decision.json"} {
		if strings.Contains(k.signIn(operator).show(page), secret) {
			t.Errorf("/%s shows a sensitive value to an operator, unlike the history", page)
		}
	}
}

func TestPagesByRole(t *testing.T) {
	k := newKit(t)
	k.define(operator, paper)
	k.define(operator, strings.Replace(paper, `"paper"`, `"limited-paper"`, 1))
	id := k.start(agent, "paper", `{}`)
	k.advance(agent, id, "submit", `{"title":"On moves"}`)
	review := k.park(agent, id, "publish", `{}`)
	theirs := k.start(agent, "limited-paper", `{}`)
	const ok, no, forbidden, away = http.StatusOK, http.StatusNotFound, http.StatusForbidden, http.StatusSeeOther
	for path, want := range map[string][5]int{ // operator, reviewer, auditor, limited reviewer, without a session
		"instances":                                    {ok, ok, ok, ok, away},
		"instances/" + id:                              {ok, ok, ok, no, away},
		"instances/" + theirs:                          {ok, ok, ok, ok, away},
		"instances/wf-none":                            {no, no, no, no, away},
		"instances/" + id + "/decisions/2":             {ok, ok, ok, no, away},
		"instances/" + id + "/decisions/99":            {no, no, no, no, away},
		"instances/" + id + "/decisions/x":             {no, no, no, no, away},
		"instances/" + id + "/-/context.json":          {ok, ok, ok, no, away},
		"instances/" + id + "/decisions/2/-/data.json": {ok, ok, ok, no, away},
		"reviews":                              {ok, ok, ok, ok, away},
		"reviews/" + review:                    {ok, ok, ok, no, away},
		"reviews/" + review + "/-/review.json": {ok, ok, ok, no, away},
		"reviews/rev-none":                     {no, no, no, no, away},
		"instances/" + id + "/cancel":          {ok, forbidden, forbidden, forbidden, away},
		"instances/" + id + "/undo":            {ok, forbidden, forbidden, forbidden, away},
	} {
		for i, v := range []*visitor{k.signIn(operator), k.signIn(reviewer), k.signIn(auditor), k.signIn(limited), k.visit()} {
			if got := v.get(path); got.status != want[i] {
				t.Errorf("/%s: visitor %d got %d, want %d", path, i, got.status, want[i])
			}
		}
	}
	narrow := k.signIn(limited)
	for _, page := range []string{"", "instances", "reviews"} {
		if body := narrow.show(page); strings.Contains(body, id) || strings.Contains(body, review) {
			t.Errorf("/%s shows a visitor with a limited token what is outside", page)
		}
	}
	wantText(t, narrow.show("instances"), "limited-paper", "1 shown")
}

// TestLongHistoriesStayUsable bounds pages about an instance with 20,000 events.
func TestLongHistoriesStayUsable(t *testing.T) {
	if testing.Short() || storetest.RaceDetector {
		t.Skip("records 20,000 events")
	}
	k := newKit(t)
	k.define(operator, loop)
	id := k.start(agent, "loop", `{"n":0}`)
	for range 10_000 {
		k.advance(agent, id, "go", `{"n":1}`)
		k.advance(agent, id, "back", `{"n":0}`)
	}
	v := k.signIn(operator)
	for _, page := range []string{"instances/" + id, "instances/" + id + "?before=10000", "instances/" + id + "?before=2", "instances/" + id + "?revision=9999", "instances/" + id + "/decisions/15000", "instances/" + id + "/undo"} {
		began := time.Now()
		body := v.show(page)
		t.Logf("/%s: %d bytes in %v", page, len(body), time.Since(began))
		if len(body) > 200_000 {
			t.Errorf("/%s has %d bytes", page, len(body))
		}
	}
	wantText(t, v.show("instances/"+id), "50 of 20\u202f001 events", "Older")
	wantText(t, v.show("instances/"+id+"?before=10000"), "event 9999", "newest")
	if got := v.get("instances/" + id + "?before=9999999"); got.status != http.StatusOK {
		t.Errorf("a cursor past the end got %d", got.status)
	}
	if e, err := k.Status(t.Context(), operator, id); err != nil || e.Seq != 20_001 || e.Status != record.Running {
		t.Errorf("%d events, %v", e.Seq, err)
	}
}

func TestARefusalBeginsWithItsReason(t *testing.T) {
	k := newKit(t, doubtful)
	k.define(operator, paper)
	k.define(operator, judged())
	id := k.start(agent, "paper", `{}`)
	k.advance(agent, id, "submit", `{}`)
	v := k.signIn(reviewer)
	page := v.show("instances/" + id + "/decisions/2")
	large := findAll(page, `<p class="question">([^<]*)</p>`)
	if len(large) != 1 || strings.Count(large[0], ". ") > 0 || len(large[0]) > maxHeading || !strings.Contains(large[0], "title") {
		t.Errorf("set large: %q", large)
	}
	if strings.Contains(textOf(page), "100 % sure") {
		t.Error("a rule is said to be 100 % sure")
	}
	other := k.start(agent, "judged", `{}`)
	k.park(agent, other, hostileAction, `{"comments":"I compared the totals with invoice 4711."}`)
	wantText(t, v.show("instances/"+other+"/decisions/2"), "Decided by Model, 50 % sure: ")
}
