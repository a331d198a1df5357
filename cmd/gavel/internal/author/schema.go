package author

import (
	"embed"
	"encoding/json"
	"errors"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

// SchemaCommand prints the schemas of file formats.
type SchemaCommand struct {
	Name string `arg:"" optional:"" name:"schema" help:"The schema to print; without it, the list of schemas."`
	JSON bool   `name:"json" help:"Print the list as JSON. Schemas always are JSON."`
}

// schemaInfo is one entry of the list.
type schemaInfo struct {
	Name  string                              `json:"name"`
	About string                              `json:"about"`
	Print func(con *cli.Console) (any, error) `json:"-"`
}

// schemaFiles holds the schemas of tests and of sections of the configuration file that are not settings.
//
//go:embed schemas
var schemaFiles embed.FS

// ListSchemas returns the schemas of all file formats.
func ListSchemas() []schemaInfo {
	file := func(name string) func(*cli.Console) (any, error) {
		return func(*cli.Console) (any, error) {
			raw, err := schemaFiles.ReadFile("schemas/" + name + ".json")
			return json.RawMessage(raw), err
		}
	}
	all := []schemaInfo{
		{"definition", "a workflow definition (JSON Schema 2020-12)", func(*cli.Console) (any, error) { return workflow.FormatSchema(), nil }},
		{"config", "the configuration file of --config", configSchema},
		{"tests", "tests of a workflow, for gavel test", file("tests")},
	}
	for _, f := range module.Formats() {
		all = append(all, schemaInfo{f.Name, f.About, func(*cli.Console) (any, error) { return f.Schema(), nil }})
	}
	return all
}

// Run prints one schema, or the list.
func (c *SchemaCommand) Run(con *cli.Console) error {
	schemas := ListSchemas()
	for _, s := range schemas {
		if s.Name == c.Name {
			schema, err := s.Print(con)
			if err != nil {
				return err
			}
			return con.Out.JSON(schema)
		}
	}
	if c.Name != "" {
		return term.UsageErrorf("run \"gavel schema\" for the list", "there is no schema %q", c.Name)
	}
	return con.Print(c.JSON, schemas, func() {
		for _, s := range schemas {
			con.Out.Printf("%s  %s\n", s.Name, s.About)
		}
	})
}

// configSchema returns the schema of the configuration file. Settings come from flags, the other sections from
// embedded files.
func configSchema(con *cli.Console) (any, error) {
	settings, flags, err := con.Settings.Known()
	if err != nil {
		return nil, err
	}
	sections, err := SectionSchemas()
	if err != nil {
		return nil, err
	}
	top := map[string]any{}
	for name, schema := range sections {
		top[name] = schema
	}
	top[config.KeySchema] = map[string]any{"type": "string", "description": "The schema that editors check this document against; nothing reads it."}
	for i, s := range settings {
		into := top
		if s.Section != "" {
			if top[s.Section] == nil {
				top[s.Section] = objectSchema(map[string]any{})
			}
			into = top[s.Section].(map[string]any)["properties"].(map[string]any) //nolint:forcetypeassert // set above
		}
		value := schemaOf(s)
		value["description"] = flags[i].Help
		into[s.Key] = value
	}
	schema := objectSchema(top)
	schema["$schema"], schema["title"] = "https://json-schema.org/draft/2020-12/schema", "gavel configuration"
	return schema, nil
}

// SectionSchemas returns the schemas of the sections that are not settings, including those of modules.
func SectionSchemas() (map[string]json.RawMessage, error) {
	raw, err := schemaFiles.ReadFile("schemas/config.json")
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	err = json.Unmarshal(raw, &all)
	for _, m := range module.All() {
		if m.Schemas != nil {
			err = errors.Join(err, json.Unmarshal(m.Schemas, &all))
		}
	}
	return all, err
}

func objectSchema(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

func schemaOf(s config.Setting) map[string]any {
	switch s.Form {
	case config.Switch:
		return map[string]any{"type": "boolean"}
	case config.Whole:
		return map[string]any{"type": "integer"}
	case config.Number:
		return map[string]any{"type": "number"}
	case config.Span:
		return map[string]any{"type": "string", "pattern": "^[-+]?([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$"}
	case config.List:
		text := map[string]any{"type": "string"}
		return map[string]any{"anyOf": []any{text, map[string]any{"type": "array", "items": text}}}
	default:
		if s.Choices != nil {
			return map[string]any{"enum": s.Choices}
		}
		return map[string]any{"type": "string"}
	}
}
