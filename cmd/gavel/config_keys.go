package main

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/internal/config"
)

// servers are the commands whose own flags have sections of the configuration file.
var servers = []string{config.SectionServe, config.SectionMCP}

// sharedKeys are the flags with one key for every command.
var sharedKeys = map[string]string{
	"store": config.KeyStore, "definitions": config.KeyDefinitions,
	"log-level": config.KeyLogLevel, "log-format": config.KeyLogFormat,
	"llm-model": "model.name",
}

// sharedSections are the beginnings of flags that have a section for every command.
var sharedSections = map[string]string{"llm-": config.SectionModel, "anchor-": config.SectionAnchors, "quota-": config.SectionQuotas}

// keyOf is the section and key of a command's flag; false when it has none. The command is
// written with the words before it, "token create".
func keyOf(command string, flag *kong.Flag) (section, key string, ok bool) {
	words := strings.Fields(command)
	if len(words) > 0 && words[0] == "demo" { // it has a store of its own
		return "", "", false
	}
	if name, shared := sharedKeys[flag.Name]; shared {
		section, key, ok = strings.Cut(name, ".")
		if !ok {
			section, key = "", name
		}
		return section, key, true
	}
	for prefix, section := range sharedSections {
		if rest, found := strings.CutPrefix(flag.Name, prefix); found {
			return section, camel(rest), true
		}
	}
	if len(words) == 0 || flag.Name == "help" || flag.Name == "config" || flag.Name == "json" {
		return "", "", false
	}
	if words[0] == "token" && flag.Name == "tokens" {
		return config.SectionServe, "tokens", true
	}
	if last := words[len(words)-1]; slices.Contains(servers, last) {
		return last, camel(flag.Name), true
	}
	return "", "", false
}

// camel writes max-body as maxBody.
func camel(name string) string {
	words := strings.Split(name, "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// binding is a setting with a flag that it is the same as.
type binding struct {
	config.Setting
	flag *kong.Flag
}

// bindings are all settings that the file may have, in the order of the commands' flags.
func bindings(app *kong.Application) []binding {
	var all []binding
	seen := map[string]bool{}
	add := func(command string, flags []*kong.Flag) {
		for _, f := range flags {
			if b, ok := bind(command, f); ok && !seen[b.Name()] {
				seen[b.Name()] = true
				all = append(all, b)
			}
		}
	}
	add("", app.Flags)
	for _, child := range app.Children {
		if slices.Contains(servers, child.Name) {
			add(child.Name, child.Flags)
		}
	}
	return all
}

func bind(command string, f *kong.Flag) (binding, bool) {
	section, key, ok := keyOf(command, f)
	if !ok {
		return binding{}, false
	}
	b := binding{Setting: config.Setting{Section: section, Key: key, Form: formOf(f.Target.Type())}, flag: f}
	if b.Form == config.Text && f.Enum != "" {
		b.Choices = f.EnumSlice()
	}
	return b, true
}

func formOf(t reflect.Type) config.Form {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Duration]() {
		return config.Span
	}
	switch t.Kind() {
	case reflect.Bool:
		return config.Switch
	case reflect.Int, reflect.Int64:
		return config.Whole
	case reflect.Float64:
		return config.Number
	case reflect.Slice:
		return config.List
	default:
		return config.Text
	}
}

func settingsOf(all []binding) []config.Setting {
	list := make([]config.Setting, len(all))
	for i, b := range all {
		list[i] = b.Setting
	}
	return list
}

// isPath reports whether a flag's value is where something is: in the file, such a place is
// seen from the file's folder.
func isPath(f *kong.Flag) bool {
	return slices.Contains([]string{"FILE", "PATH", "GLOB"}, f.PlaceHolder)
}

// located is a place as the file writes it, seen from where the program runs.
func located(dir, place string) string {
	if place == "" || place == memoryStore || filepath.IsAbs(place) || isKeyText(place) {
		return place
	}
	return filepath.Join(dir, place)
}
