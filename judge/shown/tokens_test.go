package shown

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Quotes from the JSON itself: several members, items, whole objects.
func TestContainJSON(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("lorem ipsum ", 1000)
	s := shownOf(t, `{"documentId":"DOC-7","total":400}`,
		`{"comments":"Read  sections 1 to 4; every \"figure\".","count":12.50,"dash":"---","items":["a1","b2",null,{"x":[1,22,"three"]}],"long":"`+long+`","nest":{"deep":{"y":"<value>"}},"ok":true,"q":null,"ssn":"[masked]","tick":"z"}`)
	for evidence, want := range map[string]bool{
		`"count":12.50,"dash":"---"`:                true,
		`"count": 12.50, "dash": "---"`:             true, // white space between tokens does not count
		`{"documentId":"DOC-7","total":4`:           false,
		`{"documentId":"DOC-7","total":`:            true,
		`{"documentId":"DOC-7"`:                     true,
		`"documentId":"DOC-8","total":400`:          false,
		`"total":400}`:                              true,
		`"total":401}`:                              false,
		`"dash":"---","count":12.50`:                false, // in reverse order
		`"count":12.50,"items"`:                     false, // skips a member
		`"count":12.50,"dash"`:                      true,
		`1 to 4; every \"figure\".","count":12.50`:  true, // from within a string
		`4","count":12.50`:                          false,
		`"comments":"Read sections 1`:               true,
		`["a1","b2"`:                                true,
		`"items": ["a1", "b2", null`:                true,
		`"a1","b2"`:                                 true,
		`"b2","a1"`:                                 false,
		`"a1","b`:                                   true,
		`{"x":[1,22,"three"]}`:                      true,
		`[1,22,`:                                    true,
		`[1,2`:                                      false, // half a number is a different number
		`22,"thr`:                                   true,
		`"nest":{"deep":{"y":"<value>"`:             true,
		`"nest":{"deep":{"y":"\u003cvalue\u003e"}}`: true,  // as it appears in the prompt
		`"nest":{"deep":{`:                          false, // only keys
		`"ok":true,"q":null`:                        true,
		`"q":null,"ssn"`:                            false, // has no content
		`"ssn":"[masked]","tick"`:                   false,
		`"ssn":"[masked]","tick":"z"`:               false, // a mask is not a text that was shown
		`"q":null,`:                                 false,
		`"dash":"---","items"`:                      false, // punctuation only
		`"items":["`:                                false,
		`[truncated 8000 chars]","nest"`:            false,
		`"tick":"z"`:                                true,
		`"tick":"z"}`:                               true,
		`},{"tick":"z"}`:                            false,
		`["a1"`:                                     true,
		`"dash":"---","items":["a1`:                 false, // may be only two characters of a string
		`"dash":"---","items":["a1"`:                true,
		`z"}`:                                       false, // may be only one character of a string
		`ure\".","count"`:                           true,
		`\".","count"`:                              false,
		`["a1" "b2"]`:                               false, // not a piece of the document
		`{count:12.50,dash:"---"}`:                  false,
		`"count":12.5,"dash":"---"`:                 false, // different literal
	} {
		if got, why := s.Contains(evidence); got != want || got == (why != "") {
			t.Errorf("%q: %t (%s)", evidence, got, why)
		}
	}
}

// Pointers and quotes in the forms that models write.
func TestContainInManners(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("all of it is quoted ", 40)
	s := shownOf(t, `{"empty":{"z":null,"l":[{}]},"e":""}`,
		`{"comments":"Read sections 1 to 4.","my key":"found","ä/b":"1","p":"/q","q":null,"short":"'k'","long":"`+long+`","see":"as in /context/e above"}`)
	for evidence, want := range map[string]bool{
		"/data/my key":                          true,
		"#/data/my%20key":                       true,
		"#/%C3%A4~1b":                           true,
		"/data/my%20key":                        false, // only after a #
		"#/data/%zz":                            false,
		"/context/empty":                        false, // no value in it has content
		"/context/empty/l":                      false,
		"/context/e":                            false, // an empty value, though the data mention its path
		"/data":                                 false,
		"/":                                     false,
		"#":                                     false,
		"/q":                                    true, // the whole of p
		"'k'":                                   true,
		"k":                                     false, // only a part, and too short
		long:                                    true,  // only its beginning is searched for
		`"` + long + `"`:                        true,
		`comments: "Read sections 1"`:           true,
		long[:600] + "and something else":       true, // the search ends before that
		`"` + long[:600] + "and something else": true,
		long[:490] + "and something else":       false,
		`"Read sections"...`:                    true,
		`"Read sections 1" … "4."`:              false, // a piece is too short
		`"Read sections" … "to 4."`:             true,
		`'Read sections' ... 'to 5.'`:           false,
		strings.Repeat("z", 600):                false,
	} {
		if got := s.find(evidence); got != want {
			t.Errorf("%.60q: %t", evidence, got)
		}
	}
}

// A quote of plain words is found if and only if a value contains it.
func TestPlainQuotes(t *testing.T) {
	t.Parallel()
	text := rapid.StringMatching(`[ab1 ]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		doc := rapid.MapOfN(rapid.StringMatching(`[xy]{1,3}`), text, 1, 4).Draw(t, "doc")
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		s := shownOf(t, `{}`, string(raw))
		evidence := collapseSpace(text.Draw(t, "evidence"))
		if rapid.Bool().Draw(t, "real") {
			value := rapid.SampledFrom(slices.Sorted(maps.Values(doc))).Draw(t, "value")
			from := rapid.IntRange(0, len(value)).Draw(t, "from")
			evidence = collapseSpace(value[from:rapid.IntRange(from, len(value)).Draw(t, "to")])
		}
		want := false
		for _, v := range doc {
			v = collapseSpace(v)
			want = want || evidence != "" && (v == evidence || len(evidence) >= minQuote && strings.Contains(v, evidence))
		}
		if got, why := s.Contains(evidence); got != want {
			t.Fatalf("%q in %s: %t (%s)", evidence, raw, got, why)
		}
	})
}

// Every run of shown members is found as a quote, with or without spaces between tokens, but not
// after one of its values has changed.
func TestMembersHold(t *testing.T) {
	t.Parallel()
	value := rapid.OneOf(
		rapid.Map(rapid.StringMatching(`[^\x00-\x1f\x7f-\x9f]{0,10}`), func(s string) any { return s + "1" }),
		rapid.Map(rapid.IntRange(-99, 99), func(n int) any { return n }),
		rapid.Map(rapid.SliceOfN(rapid.Bool(), 1, 3), func(b []bool) any { return b }),
	)
	rapid.Check(t, func(t *rapid.T) {
		doc := rapid.MapOfN(rapid.StringMatching(`[a-z"\\<: ]{1,6}`), value, 2, 5).Draw(t, "doc")
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		s := shownOf(t, `{}`, string(raw))
		keys := slices.Sorted(maps.Keys(doc))
		from := rapid.IntRange(0, len(keys)-2).Draw(t, "from")
		to := rapid.IntRange(from+2, len(keys)).Draw(t, "to")
		other := rapid.IntRange(from, to-1).Draw(t, "other")
		space := rapid.SampledFrom([]string{"", " "}).Draw(t, "space")
		var real, forged []string
		for i, key := range keys[from:to] {
			member := encoded(t, key) + ":" + space + encoded(t, doc[key])
			real = append(real, member)
			if from+i == other {
				member = encoded(t, key) + ":" + space + `"was never there"`
			}
			forged = append(forged, member)
		}
		if held, why := s.Contains(strings.Join(real, ","+space)); !held {
			t.Fatalf("%s of %s: %s", real, s[1].Text, why)
		}
		if held, _ := s.Contains(strings.Join(forged, ","+space)); held {
			t.Fatalf("%s holds in %s", forged, s[1].Text)
		}
	})
}

func encoded(t *rapid.T, v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Searching for a quote takes little time, however repetitive the data and the quote are.
func BenchmarkContainNot(b *testing.B) {
	ones := "[" + strings.TrimSuffix(strings.Repeat("1,", 390), ",") + "]"
	s := shownOf(b, `{}`, `{"l":[`+strings.TrimSuffix(strings.Repeat(ones+",", 25), ",")+`]}`)
	quote := strings.Repeat("1,", 249) + "2]"
	for b.Loop() {
		if held, _ := s.Contains(quote); held {
			b.Fatal("it holds")
		}
	}
}
