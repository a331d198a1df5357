package evidence_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/internal/evidence"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                           "",
		"\x1b":                       "",
		"a\x1b[":                     "a",
		"a\x1b[38;5;1mb":             "ab",
		"a\x1b[?25lb\x1b(Bc\x1b=d":   "abcd",
		"a\x1b]0;title\x07b":         "ab",
		"a\x1b]0;title\x1b\\b":       "ab",
		"a\x1b]0;no end\nb":          "a\nb", // at most to the end of the line
		"a\x1bPdevice\x1b\\b":        "ab",
		"a\x1b[31\nb":                "a\nb", // incomplete
		"a\x1b\nb":                   "a\nb",
		"50%\r100%\r\nend":           "50%100%\nend",
		"\xef\xbb\xbfa":              "\uFEFFa",
		"\xed\xa0\x80a\xf5":          "\uFFFDa\uFFFD",
		"a\uFFFDb\x7f\x00\u0080\tc":  "a\uFFFDb\tc",
		"\u2028 stays, as do \u202e": "\u2028 stays, as do \u202e",
	} {
		if got := evidence.Clean([]byte(in)); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add([]byte("a\x1b[31mb\x1b]0;x\x07c\xff\u009b1md"))
	f.Fuzz(func(t *testing.T, in []byte) {
		out := evidence.Clean(in)
		if !utf8.ValidString(out) || strings.ContainsFunc(out, func(r rune) bool {
			return r < ' ' && r != '\n' && r != '\t' || r >= 0x7F && r < 0xA0
		}) {
			t.Errorf("%q becomes %q", in, out)
		}
		if strings.Count(out, "\n") != strings.Count(string(in), "\n") {
			t.Errorf("%q becomes %q: lines were lost", in, out)
		}
		if again := evidence.Clean([]byte(out)); again != out {
			t.Errorf("%q becomes %q, then %q", in, out, again)
		}
	})
}

// However the input is split, a capture keeps the first third and the last two thirds.
func TestCapture(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 60).Draw(t, "limit")
		chunks := rapid.SliceOf(rapid.SliceOfN(rapid.ByteRange('a', 'z'), 0, 50)).Draw(t, "chunks")
		var all []byte
		for _, c := range chunks {
			all = append(all, c...)
		}
		got, truncated := evidence.Captured(limit, chunks...)
		want := string(all)
		if len(all) > limit {
			first := limit / 3
			head, tail := string(all[:first]), string(all[len(all)-(limit-first):])
			if head != "" {
				head += "\n"
			}
			want = fmt.Sprintf("%s[... %d bytes left out ...]\n%s", head, len(all)-limit, tail)
		}
		if got != want || truncated != (len(all) > limit) {
			t.Errorf("limit %d of %d bytes: %q, want %q", limit, len(all), got, want)
		}
	})
}

func TestCaptureCutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("é", 40), strings.Repeat("世", 40), strings.Repeat("🙂", 40), strings.Repeat("a世", 40)} {
		for limit := 6; limit < 40; limit++ {
			if got, _ := evidence.Captured(limit, []byte(text)); strings.ContainsRune(got, utf8.RuneError) {
				t.Errorf("limit %d: %q", limit, got)
			}
		}
	}
}
