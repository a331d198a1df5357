package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/author"
	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/validators/document"
)

// sectionWords are the introductions of the sections on the reference page.
var sectionWords = []struct{ section, words string }{
	{"", "At the top of the file, for every command."},
	{config.SectionServe, "What only `gavel serve` has."},
	{config.SectionMCP, "What only `gavel mcp` has."},
	{config.SectionQuotas, "What one principal may take from `gavel serve`."},
	{config.SectionModel, "The model that judges. Its key is never in the file: it is in `LLM_API_KEY`, or in the file that `keyFile` names."},
	{config.SectionAnchors, "Signing what was recorded."},
}

// writeConfig writes the reference page of the configuration file.
func writeConfig(t *testing.T, b *bytes.Buffer) {
	t.Helper()
	var cmds commands
	parser, err := newParser(&cmds, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(b, `# Configuration file

One YAML or JSON file, named by `+"`--config` or `GAVEL_CONFIG`"+`. Every key is a flag and an environment
variable too: the flag wins, then the variable, then the file, then the default.
[Configuration](../serve.md#configuration) shows a whole file.

Paths (files, folders, patterns) are relative to the file's folder. Keys marked "at once" apply when
a running server has read the changed file; the others at the next start.
`)
	all, flags := cli.ListSettings(parser.Model)
	for _, s := range sectionWords {
		title := s.section
		if title == "" {
			title = "Top"
		}
		fmt.Fprintf(b, "\n## %s\n\n%s\n\n| key | value | flag | environment | taken over | meaning |\n|---|---|---|---|---|---|\n", title, s.words)
		for i, setting := range all {
			if setting.Section != s.section {
				continue
			}
			value := string(setting.Form)
			if setting.Choices != nil {
				value = strings.Join(setting.Choices, ", ")
			}
			when := "at the next start"
			if serve.ListReloadables()[setting.Name()] != nil {
				when = "at once"
			}
			fmt.Fprintf(b, "| `%s` | %s | `--%s` | `%s` | %s | %s |\n", setting.Key, value, flags[i].Name, flags[i].Envs[0], when, flags[i].Help)
		}
	}
	fmt.Fprint(b, `
## auth

`+"`issuers`"+` lists the issuers whose signed tokens `+"`gavel serve`"+` accepts next to its own. A change applies at once.

| key | value | meaning |
|---|---|---|
| `+"`name`"+` | text | Stands before the subject in the principal (`+"`corp:alice`"+`). Letters, digits, hyphens; not local or token. |
| `+"`url`"+` | text | The issuer, exactly as in the claim iss. https; http on loopback with privateNetwork. |
| `+"`audiences`"+` | list | The claim aud has to name one of these. |
| `+"`defaultRole`"+` | agent, reviewer, operator, auditor, proxy | The role where roleClaim gives none. Without one, such a token is refused. |
| `+"`roleClaim`"+` | text | The claim with the caller's groups or roles. |
| `+"`roles`"+` | object | Its values and the roles they come to; of several the strongest counts. |
| `+"`workflowsClaim`"+` | text | The claim with the workflows that the caller is limited to; a token without it is refused. |
| `+"`subjectClaim`"+` | text | The claim with who it is. Default: sub. |
| `+"`algorithms`"+` | list | The signatures that are taken. Default: all of RS, PS, ES and EdDSA; never none or HS. |
| `+"`jwks`"+` | text | Where the keys are. Default: asked from the issuer (OpenID Connect Discovery). |
| `+"`caFile`"+` | text | Certificates (PEM) to trust for the issuer instead of the system's. |
| `+"`privateNetwork`"+` | true or false | Let the issuer be on a private network or this machine. |
`)
	sections := module.Sections()
	if i := slices.IndexFunc(sections, func(s module.Section) bool { return s.Name == "evidence" }); i >= 0 { // another page has its keys
		fmt.Fprintf(b, "\n## evidence\n\n%s\n", sections[i].About)
		sections = slices.Delete(sections, i, i+1)
	}
	fmt.Fprint(b, `
## gates

A list. A gate fixes in which states of a workflow a tool of another MCP server may be called: [the gateway](../gateway.md#gates). Others do the same for a coding agent's own tools: [what a gate sees](../hooks.md#what-a-gate-sees). A change applies at once.

| key | value | meaning |
|---|---|---|
`)
	write := newKeyWriter(t, b)
	write("gates")
	for _, section := range sections {
		about := section.About
		if !strings.Contains(about, "A change applies") {
			about += " A change applies at once, also of a file that it names."
		}
		fmt.Fprintf(b, "\n## %s\n\n%s\n\n| key | value | meaning |\n|---|---|---|\n", section.Name, about)
		write(section.Name)
	}
}

// newKeyWriter returns a function that writes the keys of a section according to the schema.
func newKeyWriter(t *testing.T, b *bytes.Buffer) (write func(section string)) {
	t.Helper()
	type schema struct {
		Description          string
		Type                 any // a text or several
		Enum                 []string
		Properties           json.RawMessage
		Items                *schema
		AdditionalProperties json.RawMessage
	}
	sections, err := author.SectionSchemas()
	if err != nil {
		t.Fatal(err)
	}
	read := func(raw json.RawMessage) (s schema) {
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	kinds := map[string]string{"array": "list", "boolean": "true or false", "string": "text", "integer": "whole number"}
	var writeKeys func(prefix string, properties json.RawMessage)
	writeKeys = func(prefix string, properties json.RawMessage) {
		for name, value := range document.ReadTrusted(properties).Members() {
			s := read(value.Raw())
			one, _ := s.Type.(string)
			kind := cmp.Or(strings.Join(s.Enum, ", "), kinds[one], one, "list or text")
			fmt.Fprintf(b, "| `%s%s` | %s | %s |\n", prefix, name.Text(), kind, s.Description)
			if s.Items != nil && s.Items.Properties != nil {
				writeKeys(prefix+name.Text()+"[].", s.Items.Properties)
			}
			if s.Properties != nil {
				writeKeys(prefix+name.Text()+".", s.Properties)
			}
		}
	}
	return func(section string) {
		s := read(sections[section])
		switch {
		case s.Items != nil:
			s = *s.Items
		case s.Properties == nil:
			s = read(s.AdditionalProperties)
		}
		writeKeys("", s.Properties)
	}
}

// TestEveryKeyIsOnThePage checks that sections and settings are all on the page.
func TestEveryKeyIsOnThePage(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	writeConfig(t, &b)
	var cmds commands
	parser, err := newParser(&cmds, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	all, _ := cli.ListSettings(parser.Model)
	for _, setting := range all {
		if !strings.Contains(b.String(), "| `"+setting.Key+"` |") {
			t.Errorf("%s is not on the page", setting.Name())
		}
		names = append(names, setting.Name())
	}
	for _, command := range parser.Model.Children {
		if !slices.Contains(cli.ServerSections, command.Name) {
			continue
		}
		for _, f := range command.Flags {
			if _, ok := cli.SettingOf(command.Name, f); !ok && f.Name != "config" {
				t.Errorf("%s --%s has no key in the file", command.Name, f.Name)
			}
		}
	}
	for name := range serve.ListReloadables() {
		if !slices.Contains(names, name) {
			t.Errorf("%s is reloadable and no setting", name)
		}
	}
}
