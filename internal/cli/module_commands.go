package cli

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/gavel-mcp/gavel/internal/module"
)

// NewModuleCommand creates a module's command at a path, with the flags that the program provides.
func NewModuleCommand(c module.Command, path string) any {
	if below := module.Commands(path); len(below) > 0 {
		return newCommands(below, path)
	}
	command := c.New()
	if c, ok := command.(*OperationCommand); ok {
		c.bind(path)
	}
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

// AddModuleDetails collects the detailed help of module commands, by path.
func AddModuleDetails(parent string, details map[string]string) {
	for _, c := range module.Commands(parent) {
		path := strings.TrimSpace(parent + " " + c.Name)
		details["gavel "+path] = c.Detail
		AddModuleDetails(path, details)
	}
}

// NewOperationCommand returns the constructor of a module's command that performs an operation.
func NewOperationCommand(spec *OperationSpec) func() any {
	return func() any {
		command := &OperationCommand{}
		command.Spec = spec
		return command
	}
}

// OpenWithModules opens a store for operations of modules.
func OpenWithModules(ctx context.Context, con *Console, flag StoreFlag) (*System, error) {
	at, err := flag.Locate(con.Log, false)
	if err != nil {
		return nil, err
	}
	return OpenSystem(ctx, con.Log, at, SystemOptions{File: flag.Config})
}
