package script

import (
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for _, c := range []struct {
		name, in string
		limit    int
		want     string
	}{
		{"plain", "plain text", 100, "plain text"},
		{"exact length", "abc", 3, "abc"},
		{"cut", "abcdef", 3, "abc"},
		{"lines become spaces", "a\nb\tc\r\nd", 100, "a b c  d"},
		{"terminal escape", "a\x1b[31mred\x07\x7f", 100, "a[31mred"},
		{"C1", "a\u009bb\u0085c", 100, "abc"},
		{"reading order", "a\u202eb\u2066c\u200fd", 100, "abcd"},
		{"invisible", "a\u200bb\ufeffc\u2028d", 100, "abcd"},
		{"tags", "a\U000e0041b", 100, "ab"},
		{"ill-formed", "a\xffb", 100, "a\ufffdb"},
		{"umlauts stay", "größe 中文 😀", 100, "größe 中文 😀"},
		{"units, not bytes", "中中中中", 3, "中中中"},
		{"pairs are not split", "a😀😀", 4, "a😀"},
		{"limit of zero", "a", 0, ""},
		{"what is hidden does not count", "\x1b\x1b\x1babc", 3, "abc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Clean(c.in, c.limit); got != c.want {
				t.Errorf("Clean(%q, %d) = %q, want %q", c.in, c.limit, got, c.want)
			}
		})
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[0m\u202e😀\xff", 5)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 0 || limit > 1<<20 {
			return
		}
		got := Clean(s, limit)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, isHidden) {
			t.Fatalf("%q is not clean", got)
		}
		if n := len(utf16.Encode([]rune(got))); n > limit {
			t.Fatalf("%d units, limit %d", n, limit)
		}
		if again := Clean(got, limit); again != got {
			t.Fatalf("not stable: %q, then %q", got, again)
		}
	})
}
