package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// notMilliseconds are the endings of names that measure time in something else.
var notMilliseconds = regexp.MustCompile(`(Ns|Nanos|Nanoseconds|Us|Micros|Microseconds|Sec|Secs|Seconds|Min|Mins|Minutes|Hours|Days|Duration)$`)

// recordedNames are JSON names by type that stay as they are, because what was written has
// them. Answers show such types as others.
var recordedNames = map[string][]string{
	"cmd/gavel.listedReview":               {"instance"}, // whose id is the review's, as other commands take it
	"engine.Evidence":                      {"tookNs"},   // which hides the recorded one
	"engine.Opinion":                       {"tookNs"},
	"engine/record.Decision":               {"tookNs"},
	"engine/record.Event":                  {"instance"},
	"engine/record.Review":                 {"resolution"},
	"engine/store.Review":                  {"instance", "resolution"},
	"engine/workflow.ReviewSettings":       {"expiresAfterNs"}, // of a parsed definition, which is never written
	"judge.Evidence":                       {"tookNs", "maxAgeNs"},
	"judge.Opinion":                        {"tookNs", "retryAfterNs"},
	"judge.Verdict":                        {"retryAfterNs"},
	"validators/script.Setup":              {"soft", "hard", "read"}, // between two processes of one program
	"internal/httpapi.Problem":             {"instance"},             // RFC 9457: the path that was asked for
	"internal/operation.CheckpointAnswer":  {"workflowId"},           // the tools of the Generic DFA server
	"internal/operation.CheckpointsAnswer": {"workflowId"},
	"internal/operation.HistoryAnswer":     {"workflowId"},
}

// TestJSONNames holds that times are in milliseconds, that id is the one name of an
// instance's id, and that what a person decides is a decision, on every face: in all that the
// program writes as JSON, but for what is recorded.
func TestJSONNames(t *testing.T) {
	seen := 0
	used := map[string]bool{}
	eachTag(t, func(typeName, field, name, goType string) {
		seen++
		wrong := ""
		switch {
		case notMilliseconds.MatchString(name):
			wrong = "a time that is not in milliseconds: use document.Milliseconds, and a name in Ms"
		case goType == "time.Duration" && name != "-":
			wrong = "a time.Duration is written in nanoseconds: use document.Milliseconds"
		case name == "workflowId", name == "instanceId", name == "instance" && goType == "string":
			wrong = "a second name of an instance's id: it is id"
		case name == "resolution":
			wrong = "what a person decides is a decision"
		default:
			return
		}
		if slices.Contains(recordedNames[typeName], name) {
			used[typeName+"."+name] = true
			return
		}
		t.Errorf("%s.%s has the JSON name %q: %s", typeName, field, name, wrong)
	})
	if seen < 500 {
		t.Errorf("%d JSON names were looked at", seen)
	}
	for known, names := range recordedNames {
		for _, name := range names {
			if !used[known+"."+name] {
				t.Errorf("nothing is %s.%s any more", known, name)
			}
		}
	}
}

// eachTag calls do with the JSON names in the types of the module, tests apart.
func eachTag(t *testing.T, do func(typeName, field, name, goType string)) {
	t.Helper()
	tree := os.DirFS(root)
	err := fs.WalkDir(tree, ".", func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && at != "." && (d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || path.Ext(at) != ".go" || strings.HasSuffix(at, "_test.go"):
			return nil
		}
		src, err := fs.ReadFile(tree, at)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), at, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		within := ""
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				within = n.Name.Name
			case *ast.TypeSpec:
				within = n.Name.Name
			case *ast.Field:
				if n.Tag == nil {
					return true
				}
				text, _ := strconv.Unquote(n.Tag.Value)
				name, _, _ := strings.Cut(reflect.StructTag(text).Get("json"), ",")
				if name == "" {
					return true
				}
				goType := string(src[n.Type.Pos()-1 : n.Type.End()-1])
				field := name
				if len(n.Names) > 0 {
					field = n.Names[0].Name
				}
				do(path.Dir(at)+"."+within, field, name, strings.TrimPrefix(goType, "*"))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
