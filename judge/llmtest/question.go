package llmtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// Question is a model's question, extracted from a request's body.
type Question struct {
	// N is the number of earlier requests to the provider.
	N            int
	Path         string
	Model        string
	System, User string
	// Nonce is the nonce that the answer must repeat, or "".
	Nonce string
	// Criteria holds the ids of the criteria.
	Criteria []string
	// Documents maps names to the JSON texts between the markers.
	Documents map[string]string
	// Rung is the form in which the answer is requested.
	Rung llm.Rung
	// Raw is the whole body.
	Raw map[string]any
}

var (
	criterionLine = regexp.MustCompile(`(?m)^- (c[\d_]+):`)
	documentLines = regexp.MustCompile(`(?m)^<<(\w+):(\w+)>>\n(.*)\n<<\w+:end>>`)
	nonceText     = regexp.MustCompile(`"nonce": ?"([^"]+)"`)
)

// parseQuestion extracts what it can find and ignores the rest, because providers also answer requests that
// they do not fully understand.
func parseQuestion(n int, path string, body []byte) Question {
	q := Question{N: n, Path: path, Documents: map[string]string{}, Rung: llm.RungPrompt}
	if json.Unmarshal(body, &q.Raw) != nil {
		return q
	}
	q.Model, _ = q.Raw["model"].(string)
	messages, _ := q.Raw["messages"].([]any)
	for _, m := range messages {
		fields, _ := m.(map[string]any)
		content, _ := fields["content"].(string)
		switch fields["role"] {
		case "system", "developer":
			q.System += content
		default:
			q.User += content + "\n"
		}
	}
	for _, m := range criterionLine.FindAllStringSubmatch(q.User, -1) {
		if !slices.Contains(q.Criteria, m[1]) {
			q.Criteria = append(q.Criteria, m[1])
		}
	}
	for _, m := range documentLines.FindAllStringSubmatch(q.User, -1) {
		q.Documents[m[2]] = m[3]
	}
	if m := nonceText.FindAllStringSubmatch(q.System, -1); m != nil {
		q.Nonce = m[len(m)-1][1]
	}
	if _, tools := q.Raw["tools"].([]any); tools {
		q.Rung = llm.RungTool
	} else if format, ok := q.Raw["response_format"].(map[string]any); ok {
		q.Rung = llm.RungJSONObject
		if format["type"] == "json_schema" {
			q.Rung = llm.RungJSONSchema
		}
	}
	return q
}

// isKeyed reports whether each criterion is to be answered under its id.
func (q Question) isKeyed() bool { return strings.Contains(q.System, `{"criteria": {"c`) }

func (q Question) has(member string) bool { _, ok := q.Raw[member]; return ok }

// isStrict reports whether the requested schema is strict: it requires all its members and allows no others.
func (q Question) isStrict() bool {
	format, _ := q.Raw["response_format"].(map[string]any)
	named, _ := format["json_schema"].(map[string]any)
	schema, _ := named["schema"].(map[string]any)
	members, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	return named["strict"] == true && schema["additionalProperties"] == false && len(members) > 0 && len(required) == len(members)
}

// schema returns the properties of the answer's schema, by name.
func (q Question) schema() map[string]any {
	at := func(v any, path ...string) map[string]any {
		for _, name := range path {
			object, _ := v.(map[string]any)
			v = object[name]
		}
		object, _ := v.(map[string]any)
		return object
	}
	if tools, _ := q.Raw["tools"].([]any); len(tools) > 0 {
		return at(tools[0], "function", "parameters", "properties")
	}
	return at(q.Raw, "response_format", "json_schema", "schema", "properties")
}

// members returns the members of the data, then of the context, as written in the documents.
func (q Question) members() []string {
	var out []string
	for _, name := range []string{"data", "context"} {
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(q.Documents[name]), &members) != nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(members)) {
			out = append(out, fmt.Sprintf("%q:%s", key, members[key]))
		}
	}
	return out
}

// quotes lists possible evidence for criteria: long values of all documents, then the ends of those values,
// then parts of the documents themselves, then short values.
func (q Question) quotes() []string {
	var values, ends, whole, short []string
	for _, name := range []string{"data", "call", "evidence", "context"} {
		var v any
		if json.Unmarshal([]byte(q.Documents[name]), &v) != nil {
			continue
		}
		var all []string
		collectStrings(v, &all)
		for _, value := range all {
			words := strings.Fields(value)
			if len(words) < 4 {
				short = append(short, value)
				continue
			}
			values = append(values, value)
			for i := 1; len(words)-i >= 4; i++ {
				if strings.ContainsFunc(words[i-1], isAlphanumeric) { // otherwise the quote would be the same
					ends = append(ends, strings.Join(words[i:], " "))
				}
			}
		}
		for text := q.Documents[name]; len(all) > 0 && text != ""; {
			whole = append(whole, string([]rune(text)[:min(utf8.RuneCountInString(text), 200)]))
			if _, text, _ = strings.Cut(text, `,"`); text != "" {
				text = `"` + text
			}
		}
	}
	return slices.Concat(values, ends, whole, short)
}

func isAlphanumeric(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

func collectStrings(v any, out *[]string) {
	switch v := v.(type) {
	case string:
		if r := []rune(strings.Join(strings.Fields(v), " ")); strings.ContainsFunc(v, isAlphanumeric) {
			*out = append(*out, string(r[:min(len(r), 120)]))
		}
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			collectStrings(v[k], out)
		}
	case []any:
		for _, item := range v {
			collectStrings(item, out)
		}
	case float64, bool:
		raw, err := json.Marshal(v)
		if err == nil {
			*out = append(*out, string(raw))
		}
	}
}
