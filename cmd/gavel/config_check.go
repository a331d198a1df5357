package main

import (
	"errors"
	"io"
	"io/fs"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
)

// checkedFile is what --json prints.
type checkedFile struct {
	File   string   `json:"file"`
	OK     bool     `json:"ok"`
	Issues []string `json:"issues"`
}

// Run checks a file.
func (c *configCheckCmd) Run(con *console) error {
	err := checkConfig(c.path())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return term.UsageErrorf("", "%w", err)
	}
	if c.JSON {
		report := checkedFile{File: c.File, OK: err == nil, Issues: issuesOf(err)}
		if err := con.out.JSON(report); err != nil {
			return err
		}
		if err != nil {
			return term.ErrBad
		}
		return nil
	}
	if f, ok := errors.AsType[*term.Failure](err); ok {
		f.Code = term.ExitBad
	}
	return err
}

// issuesOf are the lines that a person would read.
func issuesOf(err error) []string {
	f, ok := errors.AsType[*term.Failure](err)
	switch {
	case err == nil:
		return []string{}
	case ok && len(f.Lines) > 0:
		return f.Lines
	default:
		return []string{err.Error()}
	}
}

// checkConfig finds all that can be told of a file. The environment and flags do not count,
// so that what only they could make whole is let pass.
func checkConfig(path string) error {
	file, err := config.Load(path)
	if err != nil {
		return badConfig(err)
	}
	if _, err := auth.ParseConfig(file.Section(config.SectionAuth), file.Dir()); err != nil {
		return badConfig(err)
	}
	declared, err := evidence.ParseConfig(file.Section(config.SectionEvidence))
	if err != nil {
		return badConfig(err)
	}
	manager, err := evidence.New(declared, evidence.Options{Watcher: thisProgram()})
	if err != nil {
		return badConfig(err)
	}
	manager.Close()
	var serving, speaking commands
	if err := parseWithFile(&serving, "serve", path); err != nil {
		return err
	}
	if err := parseWithFile(&speaking, "mcp", path); err != nil {
		return err
	}
	f := serving.Serve
	return errors.Join(f.issuerFlags.check(), f.rateFlags.check(), f.quotaFlags.check())
}

// parseWithFile gives a command the settings of a file and of nothing else.
func parseWithFile(cmds *commands, command, path string) error {
	parser, settings, err := newProgram(cmds, io.Discard, io.Discard, func(int) {})
	if err != nil {
		return err
	}
	for _, child := range append([]*kong.Node{parser.Model.Node}, parser.Model.Children...) {
		for _, f := range child.Flags {
			f.Envs, f.Value.Tag.Envs = nil, nil
		}
	}
	args := []string{command, "--config", path}
	_, err = parser.Parse(args)
	if settings.err != nil {
		return settings.err
	}
	if err != nil {
		return usageError(err, args)
	}
	return nil
}
