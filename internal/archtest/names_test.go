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

// notMilliseconds matches the endings of names for times in other units.
var notMilliseconds = regexp.MustCompile(`(Ns|Nanos|Nanoseconds|Us|Micros|Microseconds|Sec|Secs|Seconds|Min|Mins|Minutes|Hours|Days|Duration)$`)

// recordedNames are JSON names, by type, that must not change because stored data uses them. Answers show such types
// under other names.
var recordedNames = map[string][]string{
	"cmd/gavel/internal/review.listedReview": {"instance"}, // its id is the review's, as other commands expect
	"engine/record.Event":                    {"instance"},
	"engine/record.Review":                   {"resolution"},
	"engine/store.Review":                    {"instance", "resolution"},
	"engine/workflow.ReviewSettings":         {"expiresAfterNs"},       // of a parsed definition, which is never stored
	"validators/script.Setup":                {"soft", "hard", "read"}, // between two processes of one program
	"internal/rest.Problem":                  {"instance"},             // RFC 9457: the requested path
	"internal/operation.CheckpointAnswer":    {"workflowId"},           // the tools of the Generic DFA server
	"internal/operation.CheckpointsAnswer":   {"workflowId"},
	"internal/operation.HistoryAnswer":       {"workflowId"},
}

// TestJSONNames checks all JSON that the program writes, except stored data. Times must be in milliseconds, id must
// be the only name of an instance's id, and a person's decision must be called decision.
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

// eachTag calls do with the JSON names in the types of the module, except tests.
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
