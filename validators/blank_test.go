package validators

import (
	"context"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/validators/document"
)

// A required field needs text with at least one visible character.
func TestBlankFields(t *testing.T) {
	t.Parallel()
	set, problems, err := NewCompiler(nil, Options{}).Compile(context.Background(), "o", Owner{ID: "o"}, Checks{RequiredFields: []string{"f"}})
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	missing := func(value string) bool {
		return len(set.CheckFields(document.ReadTrusted([]byte(`{"f":`+value+`}`)))) > 0
	}
	for _, blank := range []string{
		`""`, `" "`, `"\t\n\r"`, `"\u0020"`, "\"\u00a0\"", "\"\u2003\"", "\"\u3000\"", `"\u0000"`, "\"\u007f\"", "\"\u00ad\"",
		"\"\u200b\"", "\"\u200d\"", "\"\u2060\"", "\"\ufeff\"", "\"\u202e\"", `"\u200B\uFEFF"`, "\"\u2800\"", "\"\u3164\"", "\"\u115f\"", "\"\uffa0\"",
		"\"\u034f\"", "\"\ufe0f\"", "\"\U000e0041\"", "\"\U000e0100\"", "\"\u0301\"", "\" \u0301\"", "\"\U0001d159\"", "\"\ufdd0\"", "\" \u200b \u3164 \"",
	} {
		if !missing(blank) {
			t.Errorf("%s (%q) is taken for a text", blank, blank)
		}
	}
	for _, seen := range []string{
		`"x"`, `" x"`, "\"\u200bx\"", `"\u0078"`, `"."`, `"0"`, "\"é\"", "\"e\u0301\"", "\"日\"", "\"👍🏽\"", "\"👨\u200d👩\"", "\"\u00b7\"", `"\\"`, `"\""`,
		`0`, `false`, `[]`, `{}`, `[""]`,
	} {
		if missing(seen) {
			t.Errorf("%s is missing", seen)
		}
	}
}

// A single visible character makes a blank text not blank.
func TestBlankAndVisible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		blank := rapid.StringOf(rapid.RuneFrom([]rune(" \t\u00a0\u200b\u3164\ufeff\u2800\u0301"))).Draw(t, "blank")
		raw, err := json.Marshal(blank)
		if err != nil || !isBlank(document.ReadTrusted(raw)) {
			t.Fatalf("%q: %v", blank, err)
		}
		seen := rapid.RuneFrom([]rune("a0.é日\"\\")).Draw(t, "seen")
		if raw, err = json.Marshal(blank + string(seen) + blank); err != nil || isBlank(document.ReadTrusted(raw)) {
			t.Fatalf("%q: %v", raw, err)
		}
	})
}
