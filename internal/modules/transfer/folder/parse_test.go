package folder_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/folder"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
)

func TestParseLine(t *testing.T) {
	at := time.Date(2025, 7, 10, 16, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		line string
		want portable.Line
		err  string
	}{
		"as documented": {
			`{"timestamp":"2025-07-10T18:00:00+02:00","from":"a","action":"go","to":"b","data":{"n":1.50},"by":"me"}`,
			portable.Line{Time: at, From: "a", Action: "go", To: "b", Data: json.RawMessage(`{"n":1.50}`)},
			"",
		},
		"the older shape": {
			`{"time": 1752163200000, "transition": "go", "fromState": "a", "toState": "b", "payload": {"n": 1}, "context": {"n": 1}}`,
			portable.Line{Time: at, From: "a", Action: "go", To: "b", Data: json.RawMessage(`{"n":1}`), Context: json.RawMessage(`{"n":1}`)},
			"",
		},
		"nulls are nothing":    {`{"from":null,"to":null,"toState":"a","data":null}`, portable.Line{To: "a"}, ""},
		"no time that is one":  {`{"timestamp":"yesterday","to":"a"}`, portable.Line{To: "a"}, ""},
		"a time out of bounds": {`{"time":9e17,"to":"a"}`, portable.Line{To: "a"}, ""},
		"a rollback": {
			`{"action":"rollback","to":"a","checkpointId":"cp-1"}`,
			portable.Line{Action: "rollback", To: "a", CheckpointID: "cp-1"},
			"",
		},
		"an export": {
			`{"to":"a","gavel":{"kind":"refused","status":"cancelled","hash":"aa"}}`,
			portable.Line{To: "a", Kind: record.Refused, Cancelled: true},
			"",
		},
		"an export of an import": {
			`{"to":"a","gavel":{"kind":"imported","hash":"bb","import":{"kind":"refused"}}}`,
			portable.Line{To: "a", Kind: record.Refused},
			"",
		},
		"gavel is no object":     {`{"to":"a","gavel":7}`, portable.Line{To: "a"}, ""},
		"not an object":          {`["go"]`, portable.Line{}, "not a JSON object"},
		"a key twice":            {`{"to":"a","to":"b"}`, portable.Line{}, `duplicate key "to"`},
		"a number that breaks":   {`{"data":{"n":12345678901234567890}}`, portable.Line{}, "64-bit float"},
		"an action that is none": {`{"action":{"$ne":""}}`, portable.Line{}, `"action" is not a string`},
		"data that is none":      {`{"data":[1]}`, portable.Line{}, `"data" is not an object`},
		"not UTF-8":              {"{\"to\":\"\xff\"}", portable.Line{}, "UTF-8"},
		"too deep":               {`{"data":` + strings.Repeat(`{"a":`, 80) + `1` + strings.Repeat(`}`, 81), portable.Line{}, "deep"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := folder.ParseLine([]byte(tt.line))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Hash) != 64 {
				t.Errorf("hash %q", got.Hash)
			}
			got.Hash = ""
			if a, b := text(got), text(tt.want); a != b {
				t.Errorf("got\n%s\nwant\n%s", a, b)
			}
		})
	}
}

func TestParseLog(t *testing.T) {
	const a, b = `{"to":"a"}`, `{"to":"b"}`
	tests := map[string]struct {
		log   string
		lines []int
		torn  bool
		err   string
	}{
		"empty":                      {"", nil, false, ""},
		"two":                        {a + "\n" + b + "\n", []int{1, 2}, false, ""},
		"no newline at the end":      {a + "\n" + b, []int{1, 2}, false, ""},
		"empty lines":                {"\n" + a + "\n \r\n" + b + "\r\n\n", []int{2, 4}, false, ""},
		"torn":                       {a + "\n" + b[:7], []int{1}, true, ""},
		"torn in a character":        {a + "\n{\"to\":\"\xc3", []int{1}, true, ""},
		"torn first line":            {a[:3], nil, true, ""},
		"torn, and a newline":        {a + "\n" + b[:7] + "\n", nil, false, ":2: it is not valid JSON"},
		"bad in the middle":          {a + "\n{\n" + b + "\n", nil, false, ":2: it is not valid JSON"},
		"whole but wrong at the end": {a + "\n" + `{"to":7}`, nil, false, `:2: "to" is not a string`},
		"a long line":                {a + "\n" + `{"to":"` + strings.Repeat("x", folder.MaxLine) + `"}` + "\n", nil, false, ":2: it is not valid JSON: the document has 1048585 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			lines, torn, err := folder.ParseLog("", []byte(tt.log))
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
					t.Errorf("got error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var numbers []int
			for _, l := range lines {
				numbers = append(numbers, l.Number)
			}
			if !slices.Equal(numbers, tt.lines) || torn != tt.torn {
				t.Errorf("got lines %v, torn %v", numbers, torn)
			}
		})
	}
}

// Every line is either read or rejected, and a line that is read is JSON that can be stored.
func FuzzParseLine(f *testing.F) {
	for _, name := range folders {
		for file, content := range dfa(f, name) {
			if strings.HasSuffix(file, ".log") {
				for line := range strings.Lines(content) {
					f.Add([]byte(line))
				}
			}
		}
	}
	f.Add([]byte(`{"timestamp":1e3,"data":{"a":null},"gavel":{"origin":{"kind":7}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		line, err := folder.ParseLine(raw)
		if err != nil {
			return
		}
		for _, doc := range []json.RawMessage{line.Data, line.Context} {
			if doc != nil && (!json.Valid(doc) || doc[0] != '{') {
				t.Fatalf("%q was read as %q", raw, doc)
			}
		}
		if y := line.Time.Year(); !line.Time.IsZero() && (y < 1970 || y > 2200) {
			t.Fatalf("the time %s", line.Time)
		}
	})
}
