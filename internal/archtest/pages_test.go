package archtest

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each page of docs is in the navigation of the site once.
func TestSitePageListIsWhole(t *testing.T) {
	t.Parallel()
	docs := filepath.Join("..", "..", "docs")
	settings, err := os.ReadFile(filepath.Join("..", "..", "mkdocs.yml"))
	if err != nil {
		t.Fatal(err)
	}
	_, nav, found := strings.Cut(string(settings), "\nnav:\n")
	if !found {
		t.Fatal("mkdocs.yml does not end with its navigation")
	}
	listed := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ +- (\S+\.md)$`).FindAllStringSubmatch(nav, -1) {
		files, err := filepath.Glob(filepath.Join(docs, filepath.FromSlash(m[1])))
		if err != nil || len(files) == 0 {
			t.Errorf("the navigation has %s, but there is no such page: %v", m[1], err)
		}
		for _, file := range files {
			listed[file]++
		}
	}
	for file := range userPages(t, "decisions/*.md") {
		if listed[file] != 1 {
			t.Errorf("%s is %d times in the navigation of mkdocs.yml", file, listed[file])
		}
	}
}

// userPages returns the pages of docs but for decisions, and those of other patterns too.
func userPages(t *testing.T, also ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range append([]string{"*.md", "reference/*.md", "reference/*/*.md", "runbooks/*.md"}, also...) {
		files, err := filepath.Glob(filepath.Join("..", "..", "docs", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out[file] = string(text)
		}
	}
	if len(out) < 60 {
		t.Fatalf("only %d pages", len(out))
	}
	return out
}

// maxSentence bounds the words of a sentence.
const maxSentence = 29

// longSentences are pages with longer sentences, and why.
var longSentences = map[string]string{
	"judge-doctor.md": "it has the lines that gavel judge doctor prints",
}

// Sentences are short. A cell of a table has sentences of its own, as an entry of a list has.
func TestSentencesOfPagesAreShort(t *testing.T) {
	t.Parallel()
	pages := userPages(t)
	sentencesRead := 0
	for _, file := range slices.Sorted(maps.Keys(pages)) {
		for _, s := range sentences(pages[file]) {
			sentencesRead++
			if n := countWords(s); n > maxSentence && longSentences[filepath.Base(file)] == "" {
				t.Errorf("%s: a sentence of %d words, at most %d: %s", file, n, maxSentence, s)
			}
		}
	}
	if sentencesRead < 5000 {
		t.Errorf("only %d sentences were found", sentencesRead)
	}
}

func TestSentencesAreFound(t *testing.T) {
	t.Parallel()
	text := "<!-- a comment -->\n# A title\n\nOne [two](x.md) `three four`. Five\nsix (as in 1.5): seven.\n\n- eight\n  nine\n- ten. Eleven\n\n" +
		"| twelve | thir\\|teen. Fourteen |\n|---|---|\n| `a|b` | c |\n\n    code here\n\n```sh\nmore code\n```\n\nFifteen! \"Sixteen\" e.g. this"
	want := []string{"A title", "One two X.", "Five six (as in 1.5): seven.", "eight nine", "ten.", "Eleven", "twelve", "thir\\|teen.", "Fourteen", "X", "c", "Fifteen!", "\"Sixteen\" e.g. this"}
	if got := sentences(text); !slices.Equal(got, want) {
		t.Errorf("sentences\n%q, want\n%q", got, want)
	}
	if n := countWords("One - two: X, and (three)."); n != 5 {
		t.Errorf("%d words", n)
	}
}

var (
	comment      = regexp.MustCompile(`(?s)<!--.*?-->`)
	codeSpan     = regexp.MustCompile("(?s)``.+?``|`[^`]+`")
	linkText     = regexp.MustCompile(`(?s)\[([^\]]*)\]\([^)]*\)`)
	anyCodeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	entry        = regexp.MustCompile(`^\s*([-*] |\d+\. |#+ |> )`)
	cellEnd      = regexp.MustCompile(`(?:^|[^\\])\|`)
	sentenceEnd  = regexp.MustCompile(`[.!?]["”)*]* +["“(*]*(?:\p{Lu}|gavel\b|--)`)
	word         = regexp.MustCompile(`[\p{L}\p{N}]`)
)

// sentences returns the sentences of a page. Code is left out, and X takes the place of code in a sentence.
func sentences(page string) (out []string) {
	page = comment.ReplaceAllString(anyCodeBlock.ReplaceAllString(page, ""), "")
	page = linkText.ReplaceAllString(codeSpan.ReplaceAllString(page, "X"), "$1")
	for _, block := range textBlocks(page) {
		for block = strings.Join(strings.Fields(block), " "); ; {
			at := sentenceEnd.FindStringIndex(block)
			if at == nil {
				break
			}
			end := at[0] + strings.Index(block[at[0]:], " ")
			out = append(out, block[:end])
			block = block[end+1:]
		}
		if word.MatchString(block) {
			out = append(out, block)
		}
	}
	return out
}

// textBlocks returns the paragraphs, titles, entries of lists and cells of a page.
func textBlocks(page string) (out []string) {
	for paragraph := range strings.SplitSeq(page, "\n\n") {
		block := ""
		for line := range strings.Lines(strings.Trim(paragraph, "\n") + "\n") {
			begins := entry.FindString(line)
			switch {
			case strings.HasPrefix(line, "|"):
				line = strings.TrimSuffix(strings.TrimSpace(line), "|")
				for i := cellEnd.FindStringIndex(line); i != nil; i = cellEnd.FindStringIndex(line) {
					out = append(out, line[:i[1]-1])
					line = line[i[1]:]
				}
				out = append(out, line)
			case block == "" && begins == "" && strings.HasPrefix(line, "    "): // code
			case begins != "":
				out = append(out, block)
				block = line[len(begins):]
			default:
				block += " " + line
			}
		}
		out = append(out, block)
	}
	return out
}

func countWords(sentence string) (n int) {
	for _, field := range strings.Fields(sentence) {
		if word.MatchString(field) {
			n++
		}
	}
	return n
}
