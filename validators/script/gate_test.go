package script

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestGate(t *testing.T) {
	for _, c := range []struct {
		name   string
		script Script
		want   string // part of the problem; "" if the source passes
	}{
		{"honest", Script{Kind: Validator, Source: "(d) => d.n > 2"}, ""},
		{"condition", Script{Kind: Condition, Source: "data.n > 2"}, ""},
		{"schema", Script{Kind: Schema, Source: `{"type":"object"}`}, ""},
		{"unknown kind", Script{Kind: "python", Source: "x"}, `unknown script kind "python"`},
		{"empty", Script{Kind: Validator, Source: " \n\t"}, "is empty; write one function"},
		{"empty condition", Script{Kind: Condition}, "is empty; write one expression"},
		{"empty schema", Script{Kind: Schema}, "is empty; write a JSON Schema"},
		{"as long as may be", Script{Kind: Validator, Source: "d=>1" + strings.Repeat(" ", 96)}, ""},
		{"a byte longer", Script{Kind: Validator, Source: "d=>1" + strings.Repeat(" ", 97)}, "has 101 bytes, more than the 100"},
		{"schema of that length", Script{Kind: Schema, Source: "{}" + strings.Repeat(" ", 99)}, ""},
		{"schema too long", Script{Kind: Schema, Source: "{}" + strings.Repeat(" ", 199)}, "has 201 bytes, more than the 200"},
		{"bad UTF-8", Script{Kind: Validator, Source: "d=>'\xff'"}, "not valid UTF-8"},
		{"NUL", Script{Kind: Validator, Source: "d=>'\x00'"}, "NUL"},
		{"64 levels", Script{Kind: Validator, Source: strings.Repeat("(", 64)}, ""},
		{"65 levels", Script{Kind: Validator, Source: strings.Repeat("([{", 22)}, "deeper than 64"},
		{"side by side", Script{Kind: Validator, Source: strings.Repeat("()", 50)}, ""},
		{"closing first", Script{Kind: Validator, Source: strings.Repeat(")", 30) + strings.Repeat("(", 65)}, "deeper than 64"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := checkSource(c.script, 100, 200)
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("gate says %q, want %q", got, c.want)
			}
		})
	}
}

func FuzzGate(f *testing.F) {
	f.Add("(data, context) => true", true)
	f.Add("((((((((", false)
	f.Add("\xff\x00", true)
	f.Fuzz(func(t *testing.T, source string, validator bool) {
		s := Script{Kind: Condition, Source: source}
		if validator {
			s.Kind = Validator
		}
		if wrong := checkSource(s, 1024, 1024); wrong == "" {
			if len(source) > 1024 || !utf8.ValidString(source) || strings.ContainsRune(source, 0) || strings.TrimSpace(source) == "" || countBracketDepth(source) > maxNesting {
				t.Errorf("%q passed", source)
			}
		} else if !utf8.ValidString(wrong) || len(wrong) > 300 {
			t.Errorf("the answer is %q", wrong)
		}
	})
}

func TestConfigRefusesUnworkableSettings(t *testing.T) {
	for name, c := range map[string]Config{
		"workers": {Workers: -1}, "per caller": {Workers: 2, PerCaller: 3}, "queue": {Queue: -1}, "wait": {Wait: -1}, "soft": {Soft: -1}, "hard below soft": {Soft: 100e6, Hard: 150e6},
		"total below hard": {Total: 100e6}, "tiny memory": {ScriptMemory: 1}, "worker below script": {WorkerMemory: 40 << 20},
		"source": {MaxSource: 2 << 20}, "input": {MaxInput: 64 << 20}, "recycle": {Recycle: -5}, "scripts": {MaxScripts: 10_000},
	} {
		if p, err := NewPool(c); err == nil {
			t.Errorf("%s: accepted", name)
			_ = p.Close()
		}
	}
	if err := (Config{}).WithDefaults().validate(); err != nil {
		t.Error(err)
	}
	if got := (Config{Workers: 7}).WithDefaults(); got.Workers != 7 || got.Queue != 2048 || got.Logger == nil || got.Now == nil {
		t.Errorf("defaults: %+v", got)
	}
}

func TestCheckInput(t *testing.T) {
	if err := checkInput("data", []byte("12345"), 5); err != nil {
		t.Error(err)
	}
	if err := checkInput("data", []byte("123456"), 5); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "data has 6 bytes") {
		t.Error(err)
	}
}
