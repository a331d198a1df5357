package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// moduleTerms are words of modules. "Chain" alone is not among them: the hashes of a history form one, and so do
// the models that are asked one after the other.
var moduleTerms = regexp.MustCompile(`[Hh]ook|HOOK|[Oo]nEnter|\b[Ss]chedules?\b|\b(a|that|which|their|by|for|from|of|the) chains\b|\b(a|that|which|their|by|for|from) chain\b|\bchain's\b|[cC]hain ?([Rr]un|[Ss]tep)|"chain\.|gavel:chains|[Mm]cNemar|[Uu]nlabelled|[Ll]abelling|[Tt]un(e|es|ing)\b|[Cc]ertif(y|ies|ied)\b|[Gg]olden ?([Cc]ase|[Ss]et)`)

// termsAllowed are the places of such a word with another meaning, or of one that users or files have.
var termsAllowed = map[string]string{
	"engine/storetest/storetest.go": "hook",                                 // functions of a test kit
	"internal/auth/token.go":        `json:"hooks`,                          // in the file of tokens
	"internal/auth/middleware.go":   "--hooks FOLDER",                       // a flag
	"internal/mcp/face/face.go":     "protocol.Hooks",                       // mcp-go's
	"internal/mcp/wire/wire.go":     "hooks",                                // mcp-go's
	"internal/operation/reviews.go": "the step of a chain|the chain's step", // words of the tools
	"engine/errors.go":              "runs the chains",                      // a published text
	"engine/workflow/grammar.go":    "gavel eval tune",                      // a command
	"engine/audit/verify.go":        "the hash chains",
}

// isCore reports whether a file belongs to the core: not to a module, to what modules share, to the command
// or to the tests.
func isCore(path string) bool {
	outside := []string{"internal/modules/", "internal/evidence/", "internal/gate/", "internal/upstream/", "internal/shell/", "internal/cli/", "internal/archtest/"}
	return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !slices.ContainsFunc(outside, func(p string) bool { return strings.HasPrefix(path, p) })
}

// findTerms returns the lines of a file that name a term of a module.
func findTerms(path, text string) (found []string) {
	allowed := strings.Split(termsAllowed[path], "|")
	for line := range strings.Lines(text) {
		is := func(words string) bool {
			return words != "" && strings.Contains(strings.ToLower(line), strings.ToLower(words))
		}
		if moduleTerms.MatchString(line) && !slices.ContainsFunc(allowed, is) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// The core names no module, and none of their terms.
func TestCoreHasNoTermsOfModules(t *testing.T) {
	t.Parallel()
	files := 0
	for _, folder := range []string{"engine", "judge", "validators", "prompts", "internal"} {
		tree := os.DirFS(filepath.Join("..", ".."))
		err := fs.WalkDir(tree, folder, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !isCore(name) {
				return err
			}
			files++
			text, err := fs.ReadFile(tree, name)
			for _, line := range findTerms(name, string(text)) {
				t.Errorf("%s names a term of a module; say what it is to the core, or move it into the module:\n%s", name, line)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 100 {
		t.Errorf("only %d files of the core were read", files)
	}
	for _, line := range []string{
		"type OnEnter struct {", "MayPostHooks() bool", "// the steps of a chain", "a chain's step", "func readChainRun() {", `HasPrefix(name, "chain.")`, "// the schedules of it", `ID: "gavel:chains"`, "// McNemar's test", "an unlabelled case", "func Tune(cases []Case) {", "it certifies a risk", "reads the golden cases",
	} {
		if findTerms("engine/planted.go", line) == nil {
			t.Errorf("not found: %s", line)
		}
	}
	for _, line := range []string{"// the end of the chain of rules", "record.NewChain(head)", "NewChain", "an exchange is scheduled"} {
		if findTerms("engine/planted.go", line) != nil {
			t.Errorf("found: %s", line)
		}
	}
}
