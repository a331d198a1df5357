package rest_test

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"
)

// TestOneNameInTheDocument checks that no schema has a second name for an instance's id or a decision, and that all
// times are in milliseconds.
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
	seen := 0
	var walk func(v any, at string)
	look := func(name, at string) {
		seen++
		if wrong.MatchString(name) {
			t.Errorf("%s: %s", at, name)
		}
	}
	walk = func(v any, at string) {
		switch v := v.(type) {
		case map[string]any:
			properties, _ := v["properties"].(map[string]any)
			for name := range properties {
				look(name, at)
			}
			if name, ok := v["name"].(string); ok && v["in"] != nil {
				look(name, at)
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
	if seen < 200 {
		t.Errorf("%d names", seen)
	}
}
