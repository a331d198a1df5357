package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

// NewModuleCommand creates a module's command at a path, with the flags that the program provides.
func NewModuleCommand(c module.Command, path string) any {
	if c.Operation != nil {
		OperationSpecs[path] = adaptCommand(c.Operation)
		command := &OperationCommand{}
		command.bind(path)
		return command
	}
	if below := module.Commands(path); len(below) > 0 {
		return newCommands(below, path)
	}
	command := c.New()
	visitShared(reflect.ValueOf(command).Elem(), func(field reflect.Value) {
		switch field.Type() {
		case reflect.TypeFor[module.Asking]():
			field.Set(reflect.ValueOf(&askingFlags{}))
		case reflect.TypeFor[module.Judging]():
			field.Set(reflect.ValueOf(&judgingFlags{}))
		case reflect.TypeFor[module.Models]():
			field.Set(reflect.ValueOf(&moduleModels{}))
		}
	})
	return command
}

// newCommands creates a command with subcommands.
func newCommands(below []module.Command, path string) any {
	made, fields := make([]any, len(below)), make([]reflect.StructField, len(below))
	for i, c := range below {
		made[i] = NewModuleCommand(c, path+" "+c.Name)
		fields[i] = commandField(c, reflect.TypeOf(made[i]).Elem())
		fields[i].Name = fmt.Sprint("Command", i)
	}
	all := reflect.New(reflect.StructOf(fields))
	for i, command := range made {
		all.Elem().Field(i).Set(reflect.ValueOf(command).Elem())
	}
	return all.Interface()
}

func commandField(c module.Command, of reflect.Type) reflect.StructField {
	return reflect.StructField{Name: "Command", Type: of, Tag: reflect.StructTag(fmt.Sprintf(`cmd:"" name:%q help:%q`, c.Name, c.Help))}
}

// visitShared calls f with every field of a command that holds flags of the program.
func visitShared(command reflect.Value, f func(field reflect.Value)) {
	for i := range command.NumField() {
		switch field := command.Field(i); {
		case field.Kind() == reflect.Interface && field.CanSet():
			f(field)
		case field.Kind() == reflect.Struct && field.CanSet():
			visitShared(field, f)
		}
	}
}

// ApplyShared calls AfterApply of flags behind an interface, which kong does not do.
func ApplyShared(parsed *kong.Context) {
	if selected := parsed.Selected(); selected != nil && selected.Target.Kind() == reflect.Struct {
		visitShared(selected.Target, func(field reflect.Value) {
			if flags, ok := reflect.TypeAssert[interface{ AfterApply(*kong.Context) error }](field); ok {
				_ = flags.AfterApply(parsed) // never fails
			}
		})
	}
}

// AddModuleDetails collects the detailed help of module commands, by path.
func AddModuleDetails(parent string, details map[string]string) {
	for _, c := range module.Commands(parent) {
		path := strings.TrimSpace(parent + " " + c.Name)
		details["gavel "+path] = c.Detail
		AddModuleDetails(path, details)
	}
}

// adaptCommand converts a module's operation command to the program's own type.
func adaptCommand(c *module.OperationCommand) *OperationSpec {
	spec := &OperationSpec{Operation: c.Operation, Positional: c.Positional, BadCodes: c.Bad, Rows: c.Rows, EmptyText: EmptyText(c.None), OptionalColumns: c.Spare}
	if c.Text != nil {
		spec.Text = func(_ context.Context, con *Console, a Answer) error {
			c.Text(con.ForModules(), a.Result)
			return nil
		}
	}
	return spec
}

// askingFlags implement module.Asking.
type askingFlags struct{ TargetFlags }

// Open implements module.Asking.
func (f *askingFlags) Open(ctx context.Context, con *module.Console) (operation.Caller, func(), error) {
	return con.Place(ctx, f)
}

// Again implements module.Asking.
func (f *askingFlags) Again() string { return f.FormatFlags() }

// LocalConfig implements module.Asking.
func (f *askingFlags) LocalConfig() string {
	if f.Server != "" {
		return ""
	}
	return f.Config
}

// moduleModels implement module.Models.
type moduleModels struct{ ModelFlags }

// Open implements module.Models.
func (m *moduleModels) Open(log *slog.Logger) (asker judge.Asker, names []string, end func(), err error) {
	model, err := m.ModelFlags.Open(log)
	if err != nil || model == nil {
		return nil, nil, func() {}, err
	}
	if _, err := model.Layer(nil); err != nil {
		return nil, nil, nil, errors.Join(err, model.Close())
	}
	return model.asker, model.ListNames(), func() { _ = model.Close() }, nil
}

// openWithModules opens a store for operations of modules.
func openWithModules(ctx context.Context, con *Console, flag StoreFlag) (*System, error) {
	at, err := flag.Locate(con.Log, false)
	if err != nil {
		return nil, err
	}
	return OpenSystem(ctx, con.Log, at, SystemOptions{File: flag.Config})
}
