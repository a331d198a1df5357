package httpapi_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// TestFormerNames holds that a client of the release before still is understood, and finds
// what it looks for.
func TestFormerNames(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	id := a.start(agent)
	a.ask(agent, "POST /v1/instances/"+id+"/advance", `{"action":"submit","data":{"title":"T"}}`).is(http.StatusOK)
	review := into[engine.AdvanceResult](a.ask(agent, "POST /v1/instances/"+id+"/advance", `{"action":"publish"}`).is(http.StatusOK)).Review.ID
	at := "GET /v1/instances/" + id
	list := a.ask(reviewer, "GET /v1/reviews?status=all&instance="+id, "").is(http.StatusOK)
	if got := into[engine.ReviewsResult](list); got.Count != 1 {
		t.Errorf("%d reviews of the instance", got.Count)
	}
	a.ask(reviewer, "GET /v1/reviews?id="+id+"&instance="+id, "").is(http.StatusBadRequest)
	if got := into[engine.ReviewsResult](a.ask(reviewer, "GET /v1/reviews?instance=wf-other", "").is(http.StatusOK)); got.Count != 0 {
		t.Errorf("%d reviews of another instance", got.Count)
	}
	a.ask(reviewer, "POST /v1/reviews/"+review+"/resolve", `{"decision":"reject","reason":"No."}`).is(http.StatusOK)
	a.ask(agent, "POST "+at[4:]+"/checkpoints", `{"metadata":{"id":"mine","tookMs":1}}`).is(http.StatusOK)
	for what, want := range map[string][]string{
		"GET /v1/reviews?status=all":       {`"id":"` + id + `","workflowId":"` + id + `"`, `"decision":"reject","resolution":"reject"`},
		"GET /v1/reviews/" + review:        {`"workflowId":"` + id + `"`, `"resolution":"reject"`, `"tookNs":`},
		"GET /v1/decisions?instance=" + id: {`"workflowId":"` + id + `"`, `"tookNs":`},
		"GET /v1/events":                   {`"workflowId":"` + id + `"`},
		at + "/history":                    {`"workflowId":"` + id + `"`, `"tookNs":`},
		at + "/timeline":                   {`"workflowId":"` + id + `"`},
		at + "/checkpoints":                {`"workflowId":"` + id + `"`, `"metadata":{"id":"mine","tookMs":1}`},
	} {
		body := string(a.ask(reviewer, what, "").is(http.StatusOK).body)
		for _, part := range want {
			if !strings.Contains(body, part) {
				t.Errorf("%s answers without %s: %s", what, part, body)
			}
		}
	}
}

// TestOneNameInTheDocument holds that no schema has a second name of an instance's id or of a
// decision, and no time that is not in milliseconds, but for what is deprecated.
func TestOneNameInTheDocument(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	wrong := regexp.MustCompile(`^(workflowId|instanceId|resolution)$|(Ns|Us|Secs|Seconds|Minutes|Hours|Days|Duration)$`)
	seen, deprecated := 0, 0
	var walk func(v any, at string)
	look := func(name, at string, schema map[string]any) {
		seen++
		if schema["deprecated"] == true {
			deprecated++
		} else if wrong.MatchString(name) {
			t.Errorf("%s: %s", at, name)
		}
	}
	walk = func(v any, at string) {
		switch v := v.(type) {
		case map[string]any:
			properties, _ := v["properties"].(map[string]any)
			for name, schema := range properties {
				look(name, at, schema.(map[string]any))
			}
			if name, ok := v["name"].(string); ok && v["in"] != nil {
				look(name, at, v)
			}
			for name, one := range v {
				walk(one, at+"/"+name)
			}
		case []any:
			for _, one := range v {
				walk(one, at)
			}
		}
	}
	walk(doc, "")
	if seen < 200 || deprecated != 16 {
		t.Errorf("%d names, %d of them deprecated", seen, deprecated)
	}
}
