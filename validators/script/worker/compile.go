package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"

	"github.com/gavel-mcp/gavel/validators/schema"
	"github.com/gavel-mcp/gavel/validators/script"
)

// program is a compiled script. It is immutable and can be used by any number of runtimes.
type program struct {
	code *goja.Program
	// params is how many of (data, context, evidence, call) the function can access; the others are not built.
	params int
	logs   bool            // it may write to console
	schema *schema.Schema  // instead of code, if the source is a schema
	fault  *script.Outcome // instead of code, if the source does not compile
}

// maxPrograms is the size of the LRU cache of compiled scripts.
const maxPrograms = 256

// compileScript parses and compiles a source under the sandbox's rules. It may take unlimited time and memory,
// and may panic, because JavaScript compilers are not built for hostile sources. Only a worker may call it.
func compileScript(s script.Source) *program {
	if s.Kind == script.Schema {
		return compileSchema(s.Text)
	}
	expression, parsed, err := parseOne(s.Text)
	if err != nil {
		return &program{fault: syntaxFault(s, err)}
	}
	p := &program{params: len(inputs)}
	if s.Kind == script.Validator {
		var detail string
		if p.params, detail = inspectValidator(expression); detail != "" {
			return refuseSource(detail)
		}
	} else if detail := inspectCondition(expression); detail != "" {
		return refuseSource(detail)
	}
	code, err := goja.CompileAST(&ast.Program{
		Body: []ast.Statement{&ast.ExpressionStatement{Expression: expression}},
		File: parsed.File,
	}, true)
	if err != nil {
		return &program{fault: syntaxFault(s, err)}
	}
	p.code, p.logs = code, strings.Contains(s.Text, "console")
	return p
}

func refuseSource(detail string) *program {
	fault := newFault(script.BadSource, detail)
	return &program{fault: &fault}
}

func compileSchema(text string) *program {
	s, err := schema.Compile(json.RawMessage(text))
	if err != nil {
		return refuseSource(err.Error())
	}
	return &program{schema: s}
}

var errNotOne = errors.New("it is not one expression")

// parseOne parses the text as the only element of an array literal. It uses brackets because parentheses would
// accept text such as "a) => (b", and would hide a comma. The newline ends a trailing comment.
func parseOne(text string) (ast.Expression, *ast.Program, error) {
	if strings.HasPrefix(text, "#!") {
		return nil, nil, errNotOne
	}
	parsed, err := goja.Parse("", "[\n"+strings.TrimSuffix(strings.TrimRight(text, " \t\r\n"), ";")+"\n]", parser.WithDisableSourceMaps)
	if err != nil {
		return nil, nil, err
	}
	if len(parsed.Body) != 1 {
		return nil, nil, errNotOne
	}
	statement, ok := parsed.Body[0].(*ast.ExpressionStatement)
	if !ok {
		return nil, nil, errNotOne
	}
	array, ok := statement.Expression.(*ast.ArrayLiteral)
	if !ok || len(array.Value) != 1 || array.Value[0] == nil {
		return nil, nil, errNotOne
	}
	if _, spread := array.Value[0].(*ast.SpreadElement); spread {
		return nil, nil, errNotOne
	}
	return array.Value[0], parsed, nil
}

const (
	wantFunction  = "write one function, for example (data, context) => ({ valid: data.total > 0, reason: 'total must be positive' })"
	wantCondition = "write one expression that is true or false, for example context.total > 100"
	wantSync      = "validators must be synchronous; remove async, await and function*"
)

// inspectValidator returns how many arguments a validator can access, or why the source is not a validator.
func inspectValidator(e ast.Expression) (params int, detail string) {
	switch f := e.(type) {
	case *ast.FunctionLiteral:
		if f.Async || f.Generator {
			return 0, wantSync
		}
		return len(inputs), "" // its body may access all arguments through "arguments"
	case *ast.ArrowFunctionLiteral:
		if f.Async {
			return 0, wantSync
		}
		if f.ParameterList.Rest != nil {
			return len(inputs), ""
		}
		return min(len(f.ParameterList.List), len(inputs)), ""
	}
	return 0, "it is not a function; " + wantFunction
}

func inspectCondition(e ast.Expression) (detail string) {
	switch e.(type) {
	case *ast.FunctionLiteral, *ast.ArrowFunctionLiteral:
		return "a condition is not a function; " + wantCondition
	}
	return ""
}

var (
	positionPattern   = regexp.MustCompile(`^(?:SyntaxError: )?(?:\(anonymous\): )?Line (\d+):(\d+) (.*)`)
	moreErrorsPattern = regexp.MustCompile(` \(and \d+ more errors\)$`)
)

// syntaxFault converts a parser's error into an outcome with the position in the source.
func syntaxFault(s script.Source, err error) *script.Outcome {
	want := wantFunction
	if s.Kind == script.Condition {
		want = wantCondition
	}
	o := &script.Outcome{Result: script.Result{Code: script.BadSource}}
	message, _, _ := strings.Cut(err.Error(), "\n")
	if m := positionPattern.FindStringSubmatch(message); m != nil {
		_, _ = fmt.Sscan(m[1], &o.Line)
		_, _ = fmt.Sscan(m[2], &o.Column)
		o.Line = max(o.Line-1, 1)
		message = moreErrorsPattern.ReplaceAllString(m[3], "")
	}
	if compilerError := (*goja.CompilerSyntaxError)(nil); errors.As(err, &compilerError) && compilerError.File != nil && compilerError.Offset > 0 {
		at := compilerError.File.Position(compilerError.Offset)
		o.Line, o.Column = max(at.Line-1, 1), at.Column
	}
	// A position after the text is the bracket that parseOne added.
	if lines := 1 + strings.Count(strings.TrimRight(s.Text, " \t\r\n"), "\n"); o.Line > lines {
		o.Line, o.Column = lines, 0
		message = "unexpected end: a bracket, brace or quote is not closed"
	}
	o.Detail = fmt.Sprintf("%s; %s", script.Clean(message, script.MaxNote), want)
	return o
}
