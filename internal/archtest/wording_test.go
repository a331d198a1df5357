package archtest

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// phrases are turns of phrase that make a reader stop. Add a row for each new one. Each is fine now and
// then, so TestWording bounds their sum.
var phrases = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{`"what is / it / was" as a noun`, regexp.MustCompile(`\b[Ww]hat (?:is|was|a|the|it|they|one|others|nobody|somebody|came|an)\b`)},
	{"nobody, somebody, whoever", regexp.MustCompile(`\b(?:[Nn]obody|[Ss]omebody|[Ww]hoever)\b`)},
	{"told, tells", regexp.MustCompile(`\b(?:told|tells)\b`)},
	{"things that say", regexp.MustCompile(`\b(?:says|said)\b`)},
	{"of those, of what, of one, of it", regexp.MustCompile(`\bof (?:those|what|who|them|one|it)\b`)},
	{"stands", regexp.MustCompile(`\bstands?\b`)},
	{"goes on", regexp.MustCompile(`\bgo(?:es)? on\b`)},
	{"came of, comes to", regexp.MustCompile(`\b(?:came of|become of|comes to|come to|came to)\b`)},
	{"behind, beside", regexp.MustCompile(`\b(?:[Bb]ehind|[Bb]eside)\b`)},
	{"at once, meanwhile", regexp.MustCompile(`\b(?:at once|meanwhile)\b`)},
	{", where (for if, when)", regexp.MustCompile(`, where\b|\bwhere (?:there|it|one|that|they|nobody|a|an|the)\b`)},
	{"mend, hold of, for whom", regexp.MustCompile(`\b(?:[Mm]end(?:s|ed|ing)?|holds? of|for whom|to be had|had to be)\b`)},
}

// maxPhrases bounds them per 10,000 words.
var maxPhrases = map[string]float64{"comments": 40, "strings": 20, "pages": 40}

// passage is a line of text that people read.
type passage struct{ kind, file, text string }

// TestWording keeps comments, strings and pages in plain English.
func TestWording(t *testing.T) {
	words, hits := map[string]int{}, map[string]int{}
	byName := map[string]map[string]int{}
	for _, p := range readPassages(t, "../..") {
		words[p.kind] += len(strings.Fields(p.text))
		for _, phrase := range phrases {
			n := len(phrase.pattern.FindAllString(p.text, -1))
			hits[p.kind] += n
			if byName[p.kind] == nil {
				byName[p.kind] = map[string]int{}
			}
			byName[p.kind][phrase.name] += n
		}
	}
	for kind, most := range maxPhrases {
		if words[kind] < 10_000 {
			t.Errorf("only %d words of %s were found", words[kind], kind)
			continue
		}
		if rate := 10_000 * float64(hits[kind]) / float64(words[kind]); rate > most {
			t.Errorf("%s: %.1f of these phrases per 10,000 words, at most %.0f: %v", kind, rate, most, byName[kind])
		}
	}
}

// TestPhrasesAreFound shows that each row finds its own example.
func TestPhrasesAreFound(t *testing.T) {
	for i, text := range []string{
		"of what was asked, what is there", "nobody can", "it is told", "the file says", "one of those", "it stands there", "it goes on",
		"what comes to pass", "behind it", "at once", "it ends, where there is one", "mend it",
	} {
		if !phrases[i].pattern.MatchString(text) {
			t.Errorf("%s does not find %q", phrases[i].name, text)
		}
	}
}

// readPassages reads the comments and strings of Go files, tests apart, and the lines of pages outside of code.
func readPassages(t *testing.T, root string) (all []passage) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == "decisions" || strings.HasPrefix(name, ".") && path != root):
			return filepath.SkipDir
		case d.IsDir(), strings.HasSuffix(name, "_test.go"), name == "CHANGELOG.md":
			return nil
		case strings.HasSuffix(name, ".go"):
			all = append(all, readGo(t, path)...)
		case strings.HasSuffix(name, ".md"):
			all = append(all, readPage(t, path)...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// readGo returns the comments of a file, and its strings of three words and more.
func readGo(t *testing.T, path string) (all []passage) {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile(path, -1, len(source)), source, nil, scanner.ScanComments)
	for {
		switch _, kind, text := s.Scan(); {
		case kind == token.EOF:
			return all
		case kind == token.COMMENT && !strings.HasPrefix(text, "//go:"):
			all = append(all, passage{"comments", path, text})
		case kind == token.STRING && strings.HasPrefix(text, `"`) && strings.Count(text, " ") >= 2:
			all = append(all, passage{"strings", path, text})
		}
	}
}

var (
	code = regexp.MustCompile("`[^`]*`")
	link = regexp.MustCompile(`\(http[^)]*\)`)
)

// readPage returns the lines of a page, without code and addresses.
func readPage(t *testing.T, path string) (all []passage) {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fenced := false
	for line := range strings.Lines(string(source)) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		} else if !fenced {
			all = append(all, passage{"pages", path, link.ReplaceAllString(code.ReplaceAllString(line, ""), "")})
		}
	}
	return all
}
