package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

// OperationCommand is a command that performs one operation. OperationSpecs names the operation, whose fields are
// the command's arguments and flags.
type OperationCommand struct {
	PerformFlags
	TargetFlags
}

// Run performs the operation and prints its result.
func (c *OperationCommand) Run(ctx context.Context, con *Console) error {
	local := OpenForWriting
	switch {
	case c.Spec.Operation.Service != "":
		local = OpenWithModules
	case c.Spec.Operation.Routes[0].Reads():
		local = OpenForReading
	}
	return c.Perform(ctx, con, c.TargetFlags, func(any) (operation.Caller, func(), error) { return c.Open(ctx, con, local) })
}

// JudgedCommand is an OperationCommand whose operation asks the judge.
type JudgedCommand struct {
	PerformFlags
	JudgingFlags
}

// Run performs the operation and prints its result.
func (c *JudgedCommand) Run(ctx context.Context, con *Console) error {
	create := len(c.Definitions) > 0 && c.Spec.Operation == operation.Start.Operation
	return c.Perform(ctx, con, c.TargetFlags, func(any) (operation.Caller, func(), error) { return c.open(ctx, con, create) })
}

// OperationFlags are the arguments and flags that a command gets from its operation.
type OperationFlags struct {
	Spec   *OperationSpec    `kong:"-"` // if nil, that of OperationSpecs
	fields []operation.Field // as the command line names them
	// Values has a field for each of fields.
	Values any `embed:""`
}

// PerformFlags are the flags of a command that performs its operation.
type PerformFlags struct {
	OperationFlags
	JSON bool `name:"json" help:"Print JSON."`
}

// OperationSpec describes how the command line presents an operation.
type OperationSpec struct {
	Operation *operation.Operation
	// Positional lists the fields that are arguments, in order. The command sets the fields in Fixed itself, and
	// omits the fields in Omitted.
	Positional, Omitted []string
	Fixed, Defaults     map[string]string // Defaults holds default values
	Flags               map[string]string // names of flags that differ from nameFlag
	BadCodes            []engine.Code     // errors with exit code 1: the command itself is correct

	Rows            func(res any) [][]string // of a list, including the heading
	EmptyText       func(req any) string     // the text for an empty list
	OptionalColumns []string                 // columns that a narrow terminal omits
	Text            func(ctx context.Context, con *Console, a Answer) error
	JSON            func(res any) any // the value printed by --json; nil for the result
	// Refused reports that nothing happened: exit code 1. nil uses the operation's function.
	Refused func(res any) bool
}

// OperationSpecs maps the words of the program's own commands that perform one operation to their specs.
var OperationSpecs = map[string]*OperationSpec{}

// EmptyText returns a function for OperationSpec.EmptyText that returns the same text for every request.
func EmptyText(none string) func(any) string { return func(any) string { return none } }

// AdaptResult adapts a function of a concrete result type.
func AdaptResult[Res, T any](f func(Res) T) func(any) T {
	return func(res any) T { return f(res.(Res)) } //nolint:forcetypeassert // the operation's result
}

// BindOperations binds the commands below a node to their operations, by their words.
func BindOperations(node reflect.Value, path string) {
	for i := range node.NumField() {
		field := node.Type().Field(i)
		if field.Type == reflect.TypeFor[ModuleCommands]() {
			node.Field(i).Set(reflect.ValueOf(moduleCommands(path)))
			continue
		}
		if _, isCommand := field.Tag.Lookup("cmd"); !isCommand {
			continue
		}
		words := strings.TrimSpace(path + " " + CommandFieldName(field))
		BindOperation(node.Field(i), words)
	}
}

// ModuleCommands is embedded in a command to which modules add commands.
type ModuleCommands = kong.Plugins

// moduleCommands returns the commands of modules below a command.
func moduleCommands(parent string) (all ModuleCommands) {
	for _, c := range module.Commands(parent) {
		command := reflect.ValueOf(NewModuleCommand(c, parent+" "+c.Name)).Elem()
		holder := reflect.New(reflect.StructOf([]reflect.StructField{commandField(c, command.Type())}))
		holder.Elem().Field(0).Set(command)
		all = append(all, holder.Interface())
	}
	return all
}

// BindOperation gives a command, and those below it, their operations.
func BindOperation(command reflect.Value, words string) {
	if flags, ok := reflect.TypeAssert[interface{ bind(words string) }](command.Addr()); ok {
		flags.bind(words)
		return
	}
	BindOperations(command, words)
}

// CommandFieldName returns the name of the command in a struct field.
func CommandFieldName(field reflect.StructField) string {
	return cmp.Or(field.Tag.Get("name"), strings.ToLower(field.Name))
}

// bind creates the arguments and flags of the command's operation.
func (f *OperationFlags) bind(words string) {
	f.Spec = cmp.Or(f.Spec, OperationSpecs[words])
	all := slices.DeleteFunc(slices.Clone(f.Spec.Operation.Fields), func(field operation.Field) bool {
		_, fixed := f.Spec.Fixed[field.Name]
		return fixed || slices.Contains(f.Spec.Omitted, field.Name)
	})
	slices.SortStableFunc(all, func(a, b operation.Field) int { return cmp.Compare(f.Spec.position(a), f.Spec.position(b)) })
	members := make([]reflect.StructField, len(all))
	for i := range all {
		members[i] = f.Spec.nameField(&all[i])
	}
	f.fields, f.Values = all, reflect.New(reflect.StructOf(members)).Interface()
}

// position returns the index of a positional argument; flags come after all of them.
func (s *OperationSpec) position(f operation.Field) int {
	if i := slices.Index(s.Positional, f.Name); i >= 0 {
		return i
	}
	return len(s.Positional)
}

// fieldWords is the help of fields that the command line takes in a different form.
var fieldWords = map[string]string{
	"id":       "The id of the instance, or its first characters.",
	"reviewId": "The id of the review, or its first characters.",
	"cursor":   "Continue a list from here.",
	"since":    "Only from this time on: an age (24h, 7d), a date (2026-03-01) or a time (RFC 3339).",
	"until":    "Only before this time, in the same form as --since.",
}

// placeholders are those of flags whose name does not describe the value.
var placeholders = map[string]string{
	"after": "CURSOR", "at": "TIME", "idempotency-key": "KEY", "instance": "ID", "reason": "TEXT", "since": "WHEN", "text": "WORDS", "until": "WHEN",
}

// nameField sets the field's name and help on the command line, and returns the struct field for kong.
func (s *OperationSpec) nameField(f *operation.Field) reflect.StructField {
	member := reflect.StructField{Name: strings.ToUpper(f.Name[:1]) + f.Name[1:]}
	isArgument, name := slices.Contains(s.Positional, f.Name), f.Name
	help, placeholder := cmp.Or(fieldWords[f.Name], f.Help), ""
	if f.Name == "id" && !isArgument {
		help = f.Help
	}
	f.Name = cmp.Or(s.Flags[f.Name], nameFlag(f.Name))
	switch f.Kind {
	case operation.Integer:
		member.Type, placeholder = reflect.TypeFor[*int64](), "N"
	case operation.Number:
		member.Type, placeholder = reflect.TypeFor[*float64](), "N"
	case operation.Boolean:
		member.Type = reflect.TypeFor[bool]()
	case operation.Strings:
		member.Type = reflect.TypeFor[[]string]()
	case operation.Object:
		member.Type, placeholder, help = reflect.TypeFor[string](), "JSON", strings.TrimSuffix(help, ".")+"; or @FILE."
	case operation.Any:
		member.Type, placeholder = reflect.TypeFor[string](), "JSON"
	default:
		member.Type = reflect.TypeFor[string]()
	}
	f.Help = help
	tag := fmt.Sprintf("name:%q help:%q placeholder:%q", f.Name, help, cmp.Or(placeholder, placeholders[f.Name], strings.ToUpper(f.Name)))
	if isArgument {
		tag = fmt.Sprintf(`arg:"" name:%q help:%q`, f.Name, help)
	} else if len(f.Enum) > 0 {
		tag += fmt.Sprintf(` enum:%q default:%q`, ","+strings.Join(f.Enum, ","), s.Defaults[name])
	}
	member.Tag = reflect.StructTag(tag)
	return member
}

// nameFlag returns the flag of a field: afterSeq is --after-seq, and cursor is --after.
func nameFlag(field string) string {
	if field == "cursor" {
		return "after"
	}
	var b strings.Builder
	for _, r := range field {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// BuildRequest returns the request of the command line: a pointer to the operation's request.
func (f *OperationFlags) BuildRequest(now time.Time) (any, error) {
	req := f.Spec.Operation.NewRequest()
	for i := range f.Spec.Operation.Fields {
		field := &f.Spec.Operation.Fields[i]
		if value, ok := f.Spec.Fixed[field.Name]; ok {
			if err := field.SetText(req, []string{value}, operation.Flag); err != nil {
				return nil, err //nolint:wrapcheck // an *engine.Error
			}
		}
	}
	values := reflect.ValueOf(f.Values).Elem()
	for i := range f.fields {
		texts, err := readFlag(&f.fields[i], values.Field(i), now)
		if err == nil && texts != nil {
			err = f.fields[i].SetText(req, texts, operation.Flag)
		}
		if err != nil {
			return nil, EngineFailure(err)
		}
	}
	return req, nil
}

// readFlag returns the value of a flag as text; nil if it was not given.
func readFlag(f *operation.Field, v reflect.Value, now time.Time) ([]string, error) {
	if v.IsZero() {
		return nil, nil
	}
	switch text := v.Interface().(type) {
	case []string:
		return text, nil
	case *int64:
		return []string{strconv.FormatInt(*text, 10)}, nil
	case *float64:
		return []string{strconv.FormatFloat(*text, 'g', -1, 64)}, nil
	case bool:
		return []string{"true"}, nil
	case string:
		switch {
		case f.Kind == operation.Object:
			document, err := ReadJSONArgument("--"+f.Name, text)
			return []string{string(document)}, err
		case f.Kind == operation.Any && !json.Valid([]byte(text)):
			return nil, term.UsageErrorf(fmt.Sprintf("quote text: --%s '\"paid\"'", f.Name), "--%s is not JSON", f.Name)
		case f.Name == "since" || f.Name == "until":
			at, err := ParseMoment("--"+f.Name, text, now)
			return []string{at.Format(time.RFC3339Nano)}, err
		}
		return []string{text}, nil
	}
	return nil, nil
}

// Perform performs the operation with the caller that open returns for its request, and prints the result. If the
// result is a refusal, the exit code is term.ExitBad.
func (f *PerformFlags) Perform(ctx context.Context, con *Console, at TargetFlags, open func(req any) (operation.Caller, func(), error)) error {
	req, err := f.BuildRequest(time.Now())
	if err != nil {
		return err
	}
	caller, done, err := open(req)
	if err != nil {
		return err
	}
	defer done()
	res, err := fetchAll(ctx, caller, f.Spec.Operation, req)
	if err != nil {
		return OperationFailure(err, f.Spec.BadCodes...)
	}
	err = f.print(ctx, con, Answer{at, caller, req, res})
	refused := f.Spec.Refused
	if refused == nil {
		refused = f.Spec.Operation.Refused
	}
	return cmp.Or(err, ExitBadUnless(refused == nil || !refused(res)))
}

// Answer is an operation's result, with its caller and request.
type Answer struct {
	Target TargetFlags
	Caller operation.Caller
	req    any
	Result any
}

// print prints a result: as JSON, as a table if it is a list, with the text function of the command, or as its
// message.
func (f *PerformFlags) print(ctx context.Context, con *Console, a Answer) error {
	v := reflect.ValueOf(a.Result)
	switch {
	case f.JSON && f.Spec.JSON != nil:
		return con.Out.JSON(f.Spec.JSON(a.Result))
	case f.JSON:
		return con.Out.JSON(a.Result)
	case f.Spec.Text != nil:
		return f.Spec.Text(ctx, con, a)
	case f.Spec.Rows == nil:
		for _, name := range []string{"Message", "Progress"} {
			if field := v.FieldByName(name); field.IsValid() && field.String() != "" {
				con.Out.Printf("%s\n", field.String())
			}
		}
		return nil
	}
	more := ""
	for _, next := range [][2]string{{"NextCursor", "--after"}, {"NextAfter", "--after-seq"}} {
		if field := v.FieldByName(next[0]); field.IsValid() && !field.IsZero() {
			more = fmt.Sprint(next[1], " ", field)
		}
	}
	if left, ok := a.Result.(engine.StatisticsResult); ok && left.NotShown > 0 {
		con.Err.Printf("%d decisions about other transitions are not shown\n", left.NotShown)
	}
	return con.PrintList(false, nil, f.Spec.Rows(a.Result), f.Spec.EmptyText(a.req), more, f.Spec.OptionalColumns...)
}

// fetchAll performs an operation. It requests more events until it has as many as the request asks for, because a
// busy server may end a page early.
func fetchAll(ctx context.Context, at operation.Caller, op *operation.Operation, req any) (any, error) {
	res, err := at.Ask(ctx, op, req)
	events, ok := req.(*engine.HistoryRequest)
	if err != nil || !ok {
		return res, err //nolint:wrapcheck // an *engine.Error
	}
	whole := reflect.New(op.Result).Elem()
	whole.Set(reflect.ValueOf(res))
	list, count, next := whole.Field(1), whole.FieldByName("Count"), whole.FieldByName("NextAfter") // both result types have their list in field 1
	for want := cmp.Or(events.Limit, 100); !next.IsZero() && list.Len() < want; {
		events.AfterSeq, events.Limit = next.Int(), want-list.Len()
		if res, err = at.Ask(ctx, op, req); err != nil {
			return nil, err //nolint:wrapcheck // an *engine.Error
		}
		page := reflect.ValueOf(res)
		list.Set(reflect.AppendSlice(list, page.Field(1)))
		count.SetInt(int64(list.Len()))
		next.Set(page.FieldByName("NextAfter"))
	}
	return whole.Interface(), nil
}
