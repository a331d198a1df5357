package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

// Effective lists the settings of a parsed command, in the order of their sections.
func (s *FileSettings) Effective(ctx *kong.Context) []EffectiveSetting {
	var list []EffectiveSetting
	command := commandOf(ctx)
	for _, flag := range ctx.Flags() {
		setting, ok := SettingOf(command, flag)
		if !ok {
			continue
		}
		e := EffectiveSetting{Key: setting.Name(), Value: maskSetting(flag.Name, ctx.FlagValue(flag)), Flag: "--" + flag.Name, Variable: flag.Envs[0]}
		e.Origin, e.Where = s.Origin(ctx, flag)
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b EffectiveSetting) int { return cmp.Compare(sectionRank(a.Key), sectionRank(b.Key)) })
	return list
}

// Origin returns the origin of a flag's value, and the variable or file line that it is from.
func (s *FileSettings) Origin(ctx *kong.Context, flag *kong.Flag) (origin, where string) {
	for _, step := range ctx.Path {
		if step.Flag == flag && !step.Resolved {
			return FromFlag, "--" + flag.Name
		}
	}
	if name := variableOf(flag); name != "" {
		return FromEnvironment, name
	}
	if v, ok := s.valueOf(ctx, flag); ok {
		return FromFile, fmt.Sprintf("%s:%d", s.file.Path(), v.Line)
	}
	return FromDefault, ""
}

// Declared returns the names declared in the other sections of the file. Their contents can hold secrets.
func (s *FileSettings) Declared() ([]EffectiveSetting, error) {
	var list []EffectiveSetting
	add := func(section, key string, value any) {
		if line := s.file.Line(section, key); line > 0 {
			list = append(list, EffectiveSetting{Key: section + "." + key, Value: value, Origin: FromFile, Where: fmt.Sprintf("%s:%d", s.file.Path(), line)})
		}
	}
	declared, err := auth.ParseConfig(s.file.Section(config.SectionAuth), s.file.Dir())
	if err != nil {
		return nil, module.ConfigError(err)
	}
	issuers := []string{}
	for _, i := range declared.Issuers {
		issuers = append(issuers, i.Name)
	}
	add(config.SectionAuth, "issuers", issuers)
	for _, section := range module.Sections() {
		node := s.file.Section(section.Name)
		if section.Show == nil {
			for _, name := range node.Keys() {
				add(section.Name, name, []string{})
			}
			continue
		}
		shown, err := section.Show(node)
		if err != nil {
			return nil, module.ConfigError(err)
		}
		for _, one := range shown {
			add(section.Name, one.Key, maskValue(one.Value))
		}
	}
	return list, nil
}

// CheckFiles returns an error for files that the configuration names and that cannot be read.
func (s *FileSettings) CheckFiles(ctx *kong.Context) error {
	var wrong []error
	add := func(flag *kong.Flag, err error) {
		if err != nil {
			wrong = append(wrong, term.UsageErrorf("", "--%s: %w", flag.Name, err))
		}
	}
	for _, flag := range ctx.Flags() {
		if origin, _ := s.Origin(ctx, flag); origin != FromFile || !slices.Contains(readFiles, flag.Name) {
			continue
		}
		switch place := ctx.FlagValue(flag).(type) {
		case []string:
			for _, pattern := range place {
				_, err := DefinitionFiles([]string{pattern})
				add(flag, err)
			}
		case string:
			if place != "" && !IsKeyText(place) {
				add(flag, config.CheckReadable(place))
			}
		}
	}
	return errors.Join(wrong...)
}
