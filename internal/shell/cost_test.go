package shell_test

import (
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/internal/costtest"
	"github.com/gavel-mcp/gavel/internal/shell"
)

// A line that cannot be read at all is one unknown part, with its position.
func TestLinesThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		at   int
	}{
		"10 MB":                   {strings.Repeat("git push\n", 10<<20/9), 64 << 10},
		"above 64 KiB":            {"echo " + strings.Repeat("a", 64<<10), 64 << 10},
		"a NUL":                   {"echo a\x00; git push", 6},
		"NULs":                    {strings.Repeat("\x00", 100), 0},
		"not UTF-8":               {"echo \xff; git push", 5},
		"not UTF-8, in quotes":    {"echo '\xff'; git push", 6},
		"not UTF-8, in a comment": {"ls # \xff", 5},
		"cut off UTF-8":           {"echo \xe2\x82", 5},
		"a carriage return":       {"git push\r\n", 8},
		"no end of the document":  {"ls; cat <<E\ngit push\n", 8},
		"a quote without its end": {"git push 'a", 9},
		"double quotes":           {"ls; echo \"a", 9},
		"a substitution":          {"echo $(git push", 5},
		"a backquote":             {"echo `git push", 5},
		"an if without its end":   {"git push; if a", 10},
		"a bracket too many":      {"git push )", 9},
		"in a text":               {"ls; sh -c 'git push (' x", 4},
	} {
		s := shell.Read(c.line)
		if len(s.Unknown) != 1 || len(s.Commands) != 0 || s.Whole != -1 {
			t.Errorf("%s: %d commands, whole %d, unknown %+v", name, len(s.Commands), s.Whole, s.Unknown)
			continue
		}
		if u := s.Unknown[0]; !u.Program || u.At != c.at || u.Reason == "" || len(u.Reason) > 400 {
			t.Errorf("%s: %+v, want it at %d", name, u, c.at)
		}
	}
	var s shell.Script
	for range 100 { // on a busy machine, a line may exceed its time limit
		if s = shell.Read("echo " + strings.Repeat("a", 64<<10-5)); len(s.Unknown) == 0 {
			break
		}
	}
	if len(s.Unknown) != 0 || len(s.Commands) != 1 {
		t.Errorf("64 KiB: %d commands, %+v", len(s.Commands), s.Unknown)
	}
}

// TestCost reads lines of 64 KiB that repeat constructs whose cost may grow faster than their length. The lines in
// refused exceed a limit; the others are read to the end.
func TestCost(t *testing.T) {
	refused := []string{}
	for name, c := range map[string][3]string{
		"subshells":     {"", "(", ""},
		"blocks":        {"", "{ ", ""},
		"conditions":    {"", "if a; then ", ""},
		"not":           {"", "! ", "a"},
		"substitutions": {"echo ", "$(echo ", ""},
		"backquotes":    {"echo ", "`", ""},
		"closed":        {strings.Repeat("$(echo ", 50), "a", strings.Repeat(")", 50)},
		"quotes":        {"", "\"$(\"", ""},
		"arithmetic":    {"((", "-", "1))"},
		"arithmetic +":  {"((1", "+1", "))"},
		"arithmetic (":  {"echo ", "$((", ""},
		"parameters":    {"echo ", "${a:-", ""},
		"list":          {"a", " && a", ""},
		"or":            {"cd a", " || cd a", ""},
		"pipe":          {"a", " | a", ""},
		"pipe of words": {"a", " | echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", ""},
		"elif":          {"if a; then b", "\nelif a; then b", "\nfi"},
		"braces":        {"echo ", "{a,b}", ""},
		"sequence":      {"echo ", "{1..99999}", ""},
		"nested braces": {"echo ", "{a,", ""},
		"brace words":   {"echo", " {a,b}{a,b}{a,b}", ""},
		"words":         {"echo", " a", ""},
		"functions":     {"a() { b; }; ", "a() { a; a; }; ", "a"},
		"loops":         {"", "for i in 1 2 3 4; do ", ""},
		"folders":       {"", "cd a; ", ""},
		"inner":         {"", "sh -c 'eval \"git push\"'; ", ""},
		"eval":          {"eval ", "'a' ", ""},
		"comments":      {"", "# \\\n", ""},
		"documents":     {"", "cat <<E\n$(a)\nE\n", ""},
		"wrappers":      {"", "nohup ", "git push"},
		"xargs":         {"", "xargs ", "git"},
		"find":          {"find a", " -exec find {} ;", ""},
		"assignments":   {"", "a='[$'; ", "$((a))"},
		"indexes":       {"unset '", "a[", "$('"},
		"git":           {"", "git -c a.b=c d; ", ""},
		"files":         {"", "echo a > f; ", "./f"},
	} {
		t.Run(name, func(t *testing.T) {
			line := string(costtest.Repeat([]byte(c[0]), []byte(c[1]), []byte(c[2]), 64<<10))
			line = line[:min(len(line), 64<<10)]
			var s shell.Script
			costtest.CheckBound(t, len(line)/16, func() { s = shell.Read(line) })
			checkScript(t, line)
			words := 0
			for _, c := range s.Commands {
				words += len(c.Words) + 1
			}
			if words > 40_000 || len(s.Passed) > 2<<20 {
				t.Errorf("%d words, %d bytes of text", words, len(s.Passed))
			}
			if len(s.Unknown) > 0 && s.Unknown[0].Program && len(s.Commands) == 0 {
				refused = append(refused, name)
			}
		})
	}
	for _, name := range []string{"subshells", "substitutions", "backquotes", "arithmetic (", "parameters", "list", "pipe", "words", "wrappers"} {
		if !slices.Contains(refused, name) {
			t.Errorf("%s: the line is not unknown", name)
		}
	}
}

// The package opens no file and does not read the environment.
func TestImports(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		read++
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			switch name := strings.Trim(i.Path.Value, `"`); name {
			case "os", "io/fs", "io/ioutil", "os/exec", "path/filepath", "syscall", "net", "net/http", "mvdan.cc/sh/v3/interp":
				t.Errorf("%s imports %s", f.Name(), name)
			}
		}
	}
	if read < 5 {
		t.Errorf("%d files", read)
	}
}

// FuzzRead reads arbitrary text: it never panics, and its result is well formed.
func FuzzRead(f *testing.F) {
	for _, r := range readTable(f) {
		f.Add(r.line)
	}
	f.Fuzz(func(t *testing.T, line string) { checkScript(t, line) })
}

type failer interface {
	Fatalf(format string, args ...any)
}

func checkScript(t failer, line string) shell.Script {
	s := shell.Read(line)
	if s.Whole < -1 || s.Whole >= len(s.Commands) {
		t.Fatalf("%q: whole %d of %d", line, s.Whole, len(s.Commands))
	}
	for _, u := range s.Unknown {
		if u.Reason == "" || strings.Contains(u.Reason, "A fault of the reader") || u.Program != (u.Text == "") || u.At < 0 || u.At > len(line) {
			t.Fatalf("%q: %+v", line, u)
		}
	}
	for _, c := range s.Commands {
		if len(c.Words) == 0 || c.At < 0 || c.At > len(line) {
			t.Fatalf("%q: %+v", line, c)
		}
		c.WritesTo()
		c.ReadsFrom()
	}
	return s
}

// Lines of literal words are read exactly: each command has its words, and they occur in the line.
func TestLiteralLines(t *testing.T) {
	word := rapid.SampledFrom([]string{"git", "push", "-f", "a.go", "make", "x=1", "'a b'", `"c"`, "--all", "status"})
	operator := rapid.SampledFrom([]string{" && ", " || ", "; ", " | ", "\n", " & "})
	rapid.Check(t, func(t *rapid.T) {
		var want []string
		line := ""
		for i := range rapid.IntRange(1, 5).Draw(t, "commands") {
			words := append([]string{rapid.SampledFrom([]string{"git", "make", "echo", "python3"}).Draw(t, "program")}, rapid.SliceOfN(word, 1, 4).Draw(t, "words")...)
			if i > 0 {
				line += operator.Draw(t, "operator")
			}
			line += strings.Join(words, " ")
			want = append(want, words[0])
		}
		s := checkScript(t, line)
		var got []string
		for _, c := range s.Commands {
			got = append(got, c.Words[0].Text)
			for _, w := range c.Words {
				if !w.Known || !strings.Contains(line, w.Text) {
					t.Fatalf("%s: the word %q", line, w.Text)
				}
			}
			if !strings.HasPrefix(line[c.At:], c.Words[0].Text) {
				t.Fatalf("%s: %q is not at %d", line, c.Words[0].Text, c.At)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %q, want %q", line, got, want)
		}
	})
}
