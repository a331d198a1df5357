package llm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// shownDifferences is how many differences a message names.
const shownDifferences = 3

// missed says in plain words why a question was not found at its n-th asking: it was
// recorded less often, or how it differs from the recorded one that is nearest. It
// quotes no prompt: of texts it says where they differ.
func missed(q tapeQuestion, n int, tape []tapeEntry) string {
	if n > 0 {
		return fmt.Sprintf("the same request was recorded %d times and is asked once more", n)
	}
	nearest, line := []string(nil), 0
	var paths []string
	for i, e := range tape {
		if e.Req.Method != q.Method || e.Req.Path != q.Path {
			paths = append(paths, printable(e.Req.Method+" "+e.Req.Path))
			continue
		}
		d := differences("", decodedBody(e.Req.Body), decodedBody(q.Body), nil)
		if line == 0 || len(d) < len(nearest) {
			nearest, line = d, i+1
		}
	}
	switch {
	case len(tape) == 0:
		return "it is empty"
	case line == 0:
		slices.Sort(paths)
		paths = slices.Compact(paths)
		return "it holds only " + strings.Join(paths[:min(len(paths), shownDifferences)], ", ")
	case len(nearest) == 0:
		return fmt.Sprintf("line %d looks the same but for what was redacted there or for its place; record it again", line)
	}
	shown := strings.Join(nearest[:min(len(nearest), shownDifferences)], "; ")
	if more := len(nearest) - shownDifferences; more > 0 {
		shown += fmt.Sprintf("; and %d more", more)
	}
	return fmt.Sprintf("the nearest is line %d, where %s", line, shown)
}

func decodedBody(body json.RawMessage) any {
	v, err := decodeJSON(body)
	if err != nil {
		return nil
	}
	return v
}

// differences adds to found how two JSON values differ.
func differences(at string, recorded, asked any, found []string) []string {
	switch r := recorded.(type) {
	case map[string]any:
		a, ok := asked.(map[string]any)
		if !ok {
			break
		}
		for _, k := range sortedKeys(r, a) {
			rv, inR := r[k]
			av, inA := a[k]
			switch where := pathTo(at, printable(k)); {
			case !inA:
				found = append(found, where+" was recorded and is not asked")
			case !inR:
				found = append(found, where+" is asked and was not recorded")
			default:
				found = differences(where, rv, av, found)
			}
		}
		return found
	case []any:
		a, ok := asked.([]any)
		if !ok {
			break
		}
		for i := range min(len(r), len(a)) {
			found = differences(at+"["+strconv.Itoa(i)+"]", r[i], a[i], found)
		}
		if len(r) != len(a) {
			found = append(found, fmt.Sprintf("%s has %d elements (recorded) and %d (asked)", nameOf(at), len(r), len(a)))
		}
		return found
	}
	if told := differ(at, recorded, asked); told != "" {
		found = append(found, nameOf(at)+" "+told)
	}
	return found
}

// differ says how two values differ that are not both objects or both lists, "" when
// they do not.
func differ(at string, recorded, asked any) string {
	r, okR := recorded.(string)
	a, okA := asked.(string)
	switch {
	case okR && okA && r == a:
		return ""
	case okR && okA && isSetting(r) && isSetting(a) && !strings.HasPrefix(at, "messages"):
		return fmt.Sprintf("was %q and is %q", r, a)
	case okR && okA:
		same := 0
		for same < min(len(r), len(a)) && r[same] == a[same] {
			same++
		}
		return fmt.Sprintf("differs from character %d on (%d recorded, %d asked)",
			utf8.RuneCountInString(strings.ToValidUTF8(r[:same], ""))+1, utf8.RuneCountInString(r), utf8.RuneCountInString(a))
	}
	was, is := inWords(recorded), inWords(asked)
	if was == is {
		return ""
	}
	return "was " + was + " and is " + is
}

// isSetting reports whether a text is short enough to be a setting, which can be shown.
func isSetting(s string) bool {
	return len(s) <= 48 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// inWords is a value in words: a number, true, false and null as they are.
func inWords(v any) string {
	switch v := v.(type) {
	case json.Number:
		return printable(v.String())
	case bool:
		return strconv.FormatBool(v)
	case nil:
		return "null"
	case string:
		return "a text"
	case []any:
		return "a list"
	}
	return "an object"
}

func sortedKeys(a, b map[string]any) []string {
	var keys []string
	for k := range a {
		keys = append(keys, k)
	}
	for k := range b {
		if _, both := a[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func pathTo(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

func nameOf(at string) string {
	if at == "" {
		return "the body"
	}
	return at
}
