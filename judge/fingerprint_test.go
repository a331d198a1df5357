package judge

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestFingerprint(t *testing.T) {
	t.Parallel()
	const base = `{"comments":"All twelve figures match.","count":12,"done":true,"who":null,"tags":["a b","c"]}`
	tests := []struct {
		name, data string
		same       bool
	}{
		{"itself", base, true},
		{"white space of the document", strings.ReplaceAll(base, ",", " ,\n\t"), true},
		{"another order of keys", `{"who":null,"tags":["a b","c"],"done":true,"count":12,"comments":"All twelve figures match."}`, true},
		{"other case", strings.Replace(base, "All twelve", "ALL TWELVE", 1), true},
		{"other punctuation", strings.Replace(base, "match.", "match!!! --", 1), true},
		{"other spaces", strings.Replace(base, "All twelve", "All\\u00a0 twel ve\\u200b", 1), true},
		{"no punctuation", strings.Replace(base, "match.", "match", 1), true},
		{"full width", strings.Replace(base, "twelve", "ｔｗｅｌｖｅ", 1), true},
		{"styled", strings.Replace(base, "figures", "𝐟𝐢𝐠𝐮𝐫𝐞𝐬", 1), true},
		{"ligature", strings.Replace(base, "figures", "ﬁgures", 1), true},
		{"emoji", strings.Replace(base, "match.", "match. 👍🏽", 1), true},
		{"a bidirectional mark", strings.Replace(base, "match.", "match\\u202e.", 1), true},
		{"a number written otherwise", strings.Replace(base, ":12", ":1.2e1", 1), true},
		{"letters that nobody sees", strings.Replace(base, "match", "m\u3164at\u115fc\uffa0h", 1), true},
		{"letters that only modify", strings.Replace(base, "match", "m\u02bcatch\u00b2\u02b0", 1), true},
		{"escapes", strings.Replace(base, "All", "\\u0041ll", 1), true},

		{"another word", strings.Replace(base, "twelve", "eleven", 1), false},
		{"a digit", strings.Replace(base, "twelve", "12", 1), false},
		{"another number", strings.Replace(base, ":12", ":13", 1), false},
		{"a number as text", strings.Replace(base, ":12", `:"12"`, 1), false},
		{"another truth", strings.Replace(base, "true", "false", 1), false},
		{"null for a text", strings.Replace(base, `"All twelve figures match."`, "null", 1), false},
		{"another key", strings.Replace(base, "comments", "comment", 1), false},
		{"a key in capitals", strings.Replace(base, "comments", "Comments", 1), false},
		{"one key more", strings.Replace(base, "{", `{"x":1,`, 1), false},
		{"a list cut otherwise", strings.Replace(base, `"a b","c"`, `"a","bc"`, 1), false},
		{"a list in another order", strings.Replace(base, `"a b","c"`, `"c","a b"`, 1), false},
		{"an accent", strings.Replace(base, "figures", "figurés", 1), false},
		{"nested", `{"data":` + base + `}`, false},
	}
	want := Fingerprint([]byte(base))
	for _, tt := range tests {
		if !json.Valid([]byte(tt.data)) {
			t.Fatalf("%s: not JSON: %s", tt.name, tt.data)
		}
		if got := Fingerprint([]byte(tt.data)); bytes.Equal(want, got) != tt.same {
			t.Errorf("%s: same %v, want %v\n%s\n%s", tt.name, !tt.same, tt.same, want, got)
		}
	}
	// An accent gives the same fingerprint in every encoding.
	if a, b := Fingerprint([]byte("\"caf\u00e9\"")), Fingerprint([]byte("\"cafe\u0301\"")); !bytes.Equal(a, b) {
		t.Errorf("%s, %s", a, b)
	}
	if a, b := Fingerprint([]byte("\"\u1100\u1161\"")), Fingerprint([]byte("\"\u1100 \u1161\"")); !bytes.Equal(a, b) {
		t.Errorf("Hangul: %s, %s", a, b)
	}
	for _, minus := range []string{"-0", "0.0", "0e5"} {
		if got := string(Fingerprint([]byte(minus))); got != "0" {
			t.Errorf("%s: %s", minus, got)
		}
	}
}

// Data that is not JSON is compared byte by byte, and its memory is not shared with the caller.
func TestFingerprintOfNoJSON(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "{", `{"a":1}x`, `{"a":1} {"a":1}`, "\xff", `"a`} {
		raw := []byte(data)
		got := Fingerprint(raw)
		if string(got) != data {
			t.Errorf("%q: %q", data, got)
		}
		if len(raw) > 0 {
			if got[0] = 'x'; string(raw) != data {
				t.Errorf("%q is shared", data)
			}
		}
	}
	if got := string(Fingerprint([]byte("1e400"))); got != "1e400" {
		t.Errorf("a number beyond float64: %s", got)
	}
}

// 64 KiB of text that is costly to normalise takes only a moment.
func TestFingerprintOfMuch(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"combining marks": "a" + strings.Repeat("\u0301\u0316", 16<<10),
		"what grows":      strings.Repeat("\ufdfa", 21<<10), // one rune, 18 after NFKC
		"nesting":         "",
	} {
		doc, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if name == "nesting" {
			doc = []byte(strings.Repeat("[", 9000) + strings.Repeat("]", 9000))
		}
		if got := Fingerprint(doc); len(got) == 0 || len(got) > 64*len(doc) {
			t.Errorf("%s: %d bytes from %d", name, len(got), len(doc))
		}
	}
}

// A character that NFKC decomposes may contain a sign without meaning.
func TestFingerprintOfTakenApart(t *testing.T) {
	t.Parallel()
	if a, b := Fingerprint([]byte(`"\u3300"`)), Fingerprint([]byte(`"アパート"`)); string(a) != string(b) {
		t.Errorf("%s and %s", a, b)
	}
}

func TestFingerprintForgetsOnlyWording(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		noise := rapid.SampledFrom([]string{" ", "!", "\n", "\u200b", "…", "—", "\""}).Draw(t, "noise")
		at := rapid.IntRange(0, len([]rune(text))).Draw(t, "at")
		runes := []rune(text)
		// A mark can compose with the letter before it, even across a character without meaning. Noise in
		// such a place changes the text.
		next := at
		for next < len(runes) && (unicode.In(runes[next], unicode.Lm, unicode.No) || prompts.Hidden(runes[next])) {
			next++
		}
		if next < len(runes) && unicode.IsMark(runes[next]) {
			return
		}
		noisy := string(runes[:at]) + noise + string(runes[at:])
		if a, b := fingerprintText(text), fingerprintText(noisy); a != b {
			t.Fatalf("%q %q: %q, %q", text, noisy, a, b)
		}
		if g := fingerprintText(text); fingerprintText(g) != g {
			t.Fatalf("%q: the gist of %q is %q", text, g, fingerprintText(g))
		}
	})
}

// Short data are sent to many instances; only long data identify the question on their own.
func TestIsQuestion(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]bool{
		`{}`: false, `{"merge_strategy":"squash"}`: false,
		`{"` + strings.Repeat("k", 100) + `":"squash","n":` + strings.Repeat("1", 90) + `}`: false, // neither keys nor numbers count
		`{"c":"` + strings.Repeat("a", 63) + `"}`:                                           false,
		`{"c":"` + strings.Repeat("a", 64) + `"}`:                                           true,
		`{"c":"` + strings.Repeat("ä. ", 64) + `"}`:                                         true,
		`{"a":["` + strings.Repeat("x", 30) + `",{"b":"` + strings.Repeat("y", 34) + `"}]}`: true,
	} {
		if got := IsQuestion(document.ReadTrusted([]byte(data))); got != want {
			t.Errorf("%s: %t", data, got)
		}
	}
}
