package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// printHelp is kong's printer; the overview lists commands and not their
// subcommands.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	options.NoExpandSubcommands = ctx.Selected() == nil
	return kong.DefaultHelpPrinter(options, ctx)
}

func (commands) Help() string {
	return `Start with

    gavel demo                         see an agent being judged, in seconds
    gavel mcp --definitions 'flows/*'  serve your workflows to an MCP client
    gavel lint flows/*.json            check them first

Every flag can also be set in the environment: --log-level is GAVEL_LOG_LEVEL.
Exit codes: 0 fine, 1 the thing checked is bad, 2 wrong usage or configuration,
3 could not find out.`
}

func usageError(err error, args []string) error {
	parse, ok := errors.AsType[*kong.ParseError](err)
	if !ok || parse.Context == nil {
		return term.UsageErrorf("", "%w", err)
	}
	node := parse.Context.Model.Node
	for _, step := range parse.Context.Path {
		if step.Command != nil {
			node = step.Command
		}
	}
	f := &term.ExitError{Code: term.ExitUsage, Hint: fmt.Sprintf("run %q", node.FullPath()+" --help")}
	message := err.Error()
	if rest, ok := strings.CutPrefix(message, "unknown flag "); ok {
		flag, _, _ := strings.Cut(strings.Fields(rest)[0], ",")
		f.Err = errors.New(aboutFlag(node, flag))
		return f
	}
	if rest, ok := strings.CutPrefix(message, "unexpected argument "); ok {
		word, _, _ := strings.Cut(rest, ", did you mean ")
		f.Err = errors.New(aboutWord(node, word))
		if node.Name == "mcp" && strings.Contains(strings.Join(args, " "), "--definitions") {
			f.Hint = "quote the pattern, so that your shell does not expand it: --definitions 'flows/*.json'"
		}
		return f
	}
	if rest, ok := strings.CutPrefix(message, "expected one of "); ok {
		message = fmt.Sprintf("%q needs a command: %s", node.FullPath(), strings.ReplaceAll(rest, `"`, ""))
	} else if rest, ok := strings.CutPrefix(message, `expected "`); ok {
		message = fmt.Sprintf("%q needs %s", node.FullPath(), strings.TrimSuffix(rest, `"`))
	}
	f.Err = errors.New(strings.Replace(message, `one of "",`, "one of ", 1)) // "" only means: not given
	return f
}

func aboutFlag(node *kong.Node, flag string) string {
	message := fmt.Sprintf("%q has no flag %s", node.FullPath(), flag)
	if near := document.Suggest(flag, wordsOf(flagsOf(node, ""))); near != "" {
		return message + "; did you mean " + near + "?"
	}
	if owner := commandWithFlag(node, flag); owner != "" {
		return message + "; it belongs after a command, as in " + owner + " " + flag
	}
	return message
}

func commandWithFlag(node *kong.Node, flag string) string {
	for _, child := range node.Children {
		if flagNamed(child, flag) != nil {
			return child.FullPath()
		}
		if owner := commandWithFlag(child, flag); owner != "" {
			return owner
		}
	}
	return ""
}

func aboutWord(node *kong.Node, word string) string {
	if len(node.Children) == 0 {
		return fmt.Sprintf("%q takes no argument %q here", node.FullPath(), word)
	}
	known := wordsOf(childrenOf(node, ""))
	message := fmt.Sprintf("%q has no command %q", node.FullPath(), word)
	if near := document.Suggest(word, known); near != "" {
		return message + "; did you mean " + near + "?"
	}
	return message + "; it has " + strings.Join(known, ", ")
}

func wordsOf(all []candidate) []string {
	words := make([]string, len(all))
	for i, c := range all {
		words[i] = c.word
	}
	return words
}
