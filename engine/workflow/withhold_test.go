package workflow

import (
	"slices"
	"testing"
)

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
