package document

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// longestWord is the maximum length, in characters, of words that are compared.
const longestWord = 64

// Suggest returns the known word nearest to word, or "" if none is near. Case, "_", "-" and spaces do not
// count. A swap of neighbours is one mistake, and about one mistake in three characters is tolerated. Of
// equally near words, the first wins. An exact match returns word itself.
func Suggest(word string, known []string) string {
	if slices.Contains(known, word) {
		return word
	}
	w := foldWord(word)
	if len(w) == 0 || len(w) > longestWord {
		return ""
	}
	best, bestDistance := "", max(1, len(w)/3)+1
	for _, k := range known {
		f := foldWord(k)
		if len(f) > longestWord || absInt(len(f)-len(w)) >= bestDistance {
			continue
		}
		// Words with nothing in common are never near, however short they are.
		if d := editDistance(w, f); d < bestDistance && d < max(len(w), len(f)) {
			best, bestDistance = k, d
		}
	}
	return best
}

func absInt(n int) int { return max(n, -n) }

// foldWord returns a word in the form that is compared.
func foldWord(word string) []rune {
	if len(word) > longestWord*utf8.UTFMax {
		return make([]rune, longestWord+1)
	}
	return []rune(strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return unicode.ToLower(r)
	}, word))
}

// editDistance is the optimal string alignment distance: insertions, deletions, substitutions and swaps of
// neighbours.
func editDistance(a, b []rune) int {
	before := make([]int, len(b)+1) // two rows ago
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
