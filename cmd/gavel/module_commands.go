package main

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

// newCommand creates a module's command at a path, with the flags that the program provides.
func newCommand(c module.Command, path string) any {
	if c.Operation != nil {
		operationCommands[path] = adaptCommand(c.Operation)
		command := &operationCmd{}
		command.bind(path)
		return command
	}
	if below := module.Commands(path); len(below) > 0 {
		return newCommands(below, path)
	}
	command := c.New()
	eachShared(reflect.ValueOf(command).Elem(), func(field reflect.Value) {
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
		made[i] = newCommand(c, path+" "+c.Name)
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

// eachShared calls f with every field of a command that holds flags of the program.
func eachShared(command reflect.Value, f func(field reflect.Value)) {
	for i := range command.NumField() {
		switch field := command.Field(i); {
		case field.Kind() == reflect.Interface && field.CanSet():
			f(field)
		case field.Kind() == reflect.Struct && field.CanSet():
			eachShared(field, f)
		}
	}
}

// applyShared calls AfterApply of flags behind an interface, which kong does not do.
func applyShared(parsed *kong.Context) {
	if selected := parsed.Selected(); selected != nil && selected.Target.Kind() == reflect.Struct {
		eachShared(selected.Target, func(field reflect.Value) {
			if flags, ok := reflect.TypeAssert[interface{ AfterApply(*kong.Context) error }](field); ok {
				_ = flags.AfterApply(parsed) // never fails
			}
		})
	}
}

// detailsOfModules collects the detailed help of module commands, by path.
func detailsOfModules(parent string, details map[string]string) {
	for _, c := range module.Commands(parent) {
		path := strings.TrimSpace(parent + " " + c.Name)
		details["gavel "+path] = c.Detail
		detailsOfModules(path, details)
	}
}

// adaptCommand converts a module's operation command to the program's own type.
func adaptCommand(c *module.OperationCommand) *operationCommand {
	spec := &operationCommand{op: c.Operation, positional: c.Positional, bad: c.Bad, rows: c.Rows, none: say(c.None), spare: c.Spare}
	if c.Text != nil {
		spec.text = func(_ context.Context, con *console, a answer) error {
			c.Text(con.forModules(), a.res)
			return nil
		}
	}
	return spec
}

// askingFlags implement module.Asking.
type askingFlags struct{ placeFlags }

// Open implements module.Asking.
func (f *askingFlags) Open(ctx context.Context, con *module.Console) (operation.Caller, func(), error) {
	return con.Place(ctx, f)
}

// Again implements module.Asking.
func (f *askingFlags) Again() string { return f.again() }

// LocalConfig implements module.Asking.
func (f *askingFlags) LocalConfig() string {
	if f.Server != "" {
		return ""
	}
	return f.Config
}

// moduleModels implement module.Models.
type moduleModels struct{ modelFlags }

// Open implements module.Models.
func (f *moduleModels) Open(log *slog.Logger) (asker judge.Asker, names []string, end func(), err error) {
	m, err := f.modelFlags.open(log)
	if err != nil || m == nil {
		return nil, nil, func() {}, err
	}
	if _, err := m.layer(nil); err != nil {
		return nil, nil, nil, errors.Join(err, m.Close())
	}
	return m.asker, m.names(), func() { _ = m.Close() }, nil
}

// openWithModules opens a store for operations of modules.
func openWithModules(ctx context.Context, con *console, flag storeFlag) (*system, error) {
	at, err := flag.place(con.log, false)
	if err != nil {
		return nil, err
	}
	return openSystem(ctx, con.log, at, equipment{file: flag.Config})
}
