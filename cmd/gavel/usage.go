package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// printFullHelp prints help with kong's printer. The overview lists commands without their subcommands.
func printFullHelp(options kong.HelpOptions, ctx *kong.Context) error {
	options.NoExpandSubcommands = ctx.Selected() == nil
	return kong.DefaultHelpPrinter(options, ctx)
}

// commandGroups are the groups of the overview, in its order.
var commandGroups = []kong.Group{
	{Key: "start", Title: "Start:"},
	{Key: "serve", Title: "Serve:"},
	{Key: "watch", Title: "Watch and decide:"},
	{Key: "agents", Title: "Coding agents and other servers:"},
	{Key: "judge", Title: "Judge:"},
	{Key: "store", Title: "Store:"},
}

// sortCommands orders the commands by group.
func sortCommands(parser *kong.Kong) error {
	position := func(n *kong.Node) int {
		return slices.IndexFunc(commandGroups, func(g kong.Group) bool { return n.Group != nil && g.Key == n.Group.Key })
	}
	slices.SortStableFunc(parser.Model.Children, func(a, b *kong.Node) int { return position(a) - position(b) })
	return nil
}

const (
	helpWidth        = 100
	maxFullHelpFlags = 14 // commands with more flags get short help
)

// printHelp prints a command's help so that it fits a screen. Commands with many flags list their own flags on one
// line each and only the names of the others. gavel help COMMAND prints everything.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	if node == nil || len(slices.Concat(node.AllFlags(true)...)) <= maxFullHelpFlags {
		return printFullHelp(options, ctx)
	}
	about, examples, _ := strings.Cut(node.Detail, "Examples:")
	about, _, _ = strings.Cut(about, "\n\n")
	var page strings.Builder
	fmt.Fprintf(&page, "Usage: gavel %s\n\n%s\n\n%s\n\nExamples:%s\n\nFlags:\n", node.Summary(), node.Help, about, examples)
	var rows []string
	groups := map[string]string{}
	for _, f := range slices.Concat(node.AllFlags(true)...) {
		section, _, _ := cli.FindKey(cli.CommandName(node), f)
		if section == config.SectionServe && (strings.HasPrefix(f.Name, "max-") || strings.HasPrefix(f.Name, "rate") || strings.HasSuffix(f.Name, "-timeout")) {
			section = "limits"
		}
		if slices.Contains([]string{"limits", config.SectionQuotas, config.SectionModel, config.SectionAnchors}, section) {
			groups[section] += " --" + f.Name
			continue
		}
		first, _, _ := strings.Cut(strings.TrimSuffix(f.Help, "."), ". ")
		rows = append(rows, term.Fit(fmt.Sprintf("  %-28s %s", f.String(), first), helpWidth))
	}
	page.WriteString(strings.Join(rows, "\n") + "\n")
	for _, section := range slices.Sorted(maps.Keys(groups)) {
		page.WriteString("\n" + term.Wrap(strings.ToUpper(section[:1])+section[1:]+":"+groups[section], helpWidth) + "\n")
	}
	_, err := fmt.Fprintf(ctx.Stdout, "%s\n%q explains every flag.\n", page.String(), "gavel help "+strings.TrimPrefix(node.FullPath(), "gavel "))
	return err
}

func (commands) Help() string {
	var first strings.Builder
	for _, c := range module.Commands("") {
		if c.First != "" {
			fmt.Fprintf(&first, "    %-34s %s\n", "gavel "+c.Name, c.First)
		}
	}
	return "Start with\n\n" + first.String() + `    gavel init                         write a workflow, its tests and a client's configuration
    gavel mcp --definitions 'flows/*'  serve your workflows to an MCP client
    gavel lint flows/*.json            check them first

gavel help COMMAND prints the full help of a command. Settings can also come from the environment (--log-level is GAVEL_LOG_LEVEL) and from a file (--config).
Exit codes: 0 success, 1 the check failed, 2 wrong usage or configuration,
3 the result is unknown.`
}

// negative matches negative numbers, which kong would parse as short flags.
var negative = regexp.MustCompile(`^-[.\d]`)

// helpTexts holds the detailed help of commands: a line "=== gavel COMMAND" followed by its text.
//
//go:embed help.txt
var helpTexts string

// addHelp adds the detailed help to the commands.
func addHelp(parser *kong.Kong) error {
	details := map[string]string{}
	cli.AddModuleDetails("", details)
	var visit func(node *kong.Node)
	visit = func(node *kong.Node) {
		if _, text, found := strings.Cut(helpTexts, "=== "+node.FullPath()+"\n"); found {
			text, _, _ = strings.Cut(text, "\n=== ")
			node.Detail = strings.TrimRight(text, "\n")
		} else if text := details[node.FullPath()]; text != "" {
			node.Detail = text
		}
		for _, child := range node.Children {
			visit(child)
		}
	}
	visit(parser.Model.Node)
	return nil
}

// joinNegatives rewrites "--rate -1" as "--rate=-1".
func joinNegatives(args []string) (joined []string) {
	for i, arg := range args {
		if i > 0 && negative.MatchString(arg) && strings.HasPrefix(args[i-1], "--") && len(args[i-1]) > 2 && !strings.Contains(args[i-1], "=") {
			joined[len(joined)-1] += "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}

// checkFlags rejects values that are wrong for every command: negative numbers, unsupported stores, and passwords
// in arguments, where other users can read them.
func checkFlags(parsed *kong.Context, settings *cli.FileSettings) error {
	var wrong []error
	for _, flag := range parsed.Flags() {
		value := parsed.FlagValue(flag)
		place, _ := value.(string)
		switch number := reflect.Indirect(reflect.ValueOf(value)); {
		case flag.Name == "store":
			wrong = append(wrong, cli.CheckStore(place))
			d := driver.Find(place)
			if origin, _ := settings.Origin(parsed, flag); origin == cli.FromFlag && d != nil && d.HasPassword(place) {
				wrong = append(wrong, term.UsageErrorf("put the URL into GAVEL_STORE or the configuration file, or the password into PGPASSWORD or a password file",
					"--store has a password, and other users of this machine can read arguments"))
			}
		case flag.Name == "llm-refusals": // -1 means never
		case number.CanInt() && number.Int() < 0, number.CanFloat() && !(number.Float() >= 0 && number.Float() <= math.MaxFloat64):
			wrong = append(wrong, term.UsageErrorf("", "--%s must be 0 or more, not %v", flag.Name, number))
		}
	}
	return errors.Join(wrong...)
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
	if flag, rest, ok := strings.Cut(message, ": expected "); ok && (strings.HasSuffix(rest, `"EOL" (<EOL>)`) || strings.Contains(rest, " flag); perhaps try")) {
		f.Err = fmt.Errorf("%s needs a value", flag)
		return f
	}
	if rest, ok := strings.CutPrefix(message, "expected one of "); ok {
		message = fmt.Sprintf("%q needs a command: %s", node.FullPath(), strings.ReplaceAll(rest, `"`, ""))
	} else if rest, ok := strings.CutPrefix(message, `expected "`); ok {
		message = fmt.Sprintf("%q needs %s", node.FullPath(), strings.TrimSuffix(rest, `"`))
	} else if rest, ok := strings.CutPrefix(message, "missing flags: "); ok {
		message = fmt.Sprintf("%q needs %s", node.FullPath(), rest)
	}
	f.Err = errors.New(strings.Replace(message, `one of "",`, "one of ", 1)) // "" only means "not given"
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

// commandWithFlag returns a command below node that has a flag: gavel mcp if possible, because newcomers look for it.
func commandWithFlag(node *kong.Node, flag string) string {
	for _, child := range node.Children {
		if child.Name == "mcp" && findFlag(child, flag) != nil {
			return child.FullPath()
		}
	}
	for _, child := range node.Children {
		if findFlag(child, flag) != nil {
			return child.FullPath()
		}
		if owner := commandWithFlag(child, flag); owner != "" {
			return owner
		}
	}
	return ""
}

func aboutWord(node *kong.Node, word string) string {
	word = cli.RedactStore(word) // it may be a URL without --store
	if len(node.Children) == 0 {
		message := fmt.Sprintf("%q takes no argument %q here", node.FullPath(), word)
		if findFlag(node, "--data") != nil && strings.ContainsAny(word, "={") {
			message += `; fields go into --data, as in --data '{"field": "value"}'`
		}
		return message
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

// completeCommand is the command that completion scripts call. Its arguments are the words after "gavel" up to the
// cursor; the last one is unfinished.
const completeCommand = "__complete"

// completeFiles is the line that asks the shell to complete file names too.
const completeFiles = ":files"

//go:embed completion/gavel.bash completion/gavel.zsh completion/gavel.fish
var completionScripts embed.FS

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Your shell: bash, zsh or fish."`
}

func (c *completionCmd) Run(con *cli.Console) error {
	script, err := completionScripts.ReadFile("completion/gavel." + c.Shell)
	if err != nil {
		return fmt.Errorf("read the embedded script: %w", err)
	}
	con.Out.Text(string(script))
	return nil
}

// printCandidates prints candidates for a completion script. It reports no errors: the shell cannot use them.
func printCandidates(con *cli.Console, words []string) int {
	var cmds commands
	parser, err := newParser(&cmds, io.Discard, io.Discard, func(int) {})
	if err != nil {
		return term.ExitUnknown
	}
	candidates, files := completeWords(parser.Model, words)
	for _, c := range candidates {
		con.Out.Printf("%s\t%s\n", c.word, c.help)
	}
	if files {
		con.Out.Printf("%s\n", completeFiles)
	}
	return term.ExitOK
}

// candidate is a replacement for the last word.
type candidate struct{ word, help string }

// completeWords lists the possible completions of the last word. files reports whether it can be a file name.
func completeWords(model *kong.Application, words []string) (out []candidate, files bool) {
	if len(words) == 0 {
		words = []string{""}
	}
	before, current := words[:len(words)-1], words[len(words)-1]
	node, flag, args := walkCommand(model.Node, before)
	switch name, value, joined := strings.Cut(current, "="); {
	case flag != nil: // "--format" "mer", and what bash makes of "--format=mer": "--format" "=" "mer"
		return valuesOf(flag.Value, "", strings.TrimPrefix(current, "="))
	case joined && strings.HasPrefix(name, "--"):
		if f := findFlag(node, name); f != nil {
			return valuesOf(f.Value, name+"=", value)
		}
		return nil, false
	case strings.HasPrefix(current, "-"):
		return flagsOf(node, current), false
	case len(node.Children) > 0:
		return childrenOf(node, current), false
	case args < len(node.Positional):
		return valuesOf(node.Positional[args], "", current)
	case len(node.Positional) > 0 && node.Positional[len(node.Positional)-1].IsCumulative():
		return valuesOf(node.Positional[len(node.Positional)-1], "", current)
	}
	return nil, false
}

// walkCommand parses complete words. It returns the command, the flag that waits for a value (nil if none), and
// the number of arguments so far.
func walkCommand(node *kong.Node, words []string) (_ *kong.Node, waiting *kong.Flag, args int) {
	for _, word := range words {
		switch {
		case waiting != nil && word == "=":
		case waiting != nil:
			waiting = nil
		case strings.HasPrefix(word, "--"):
			if f := findFlag(node, word); f != nil && !f.IsBool() {
				waiting = f
			}
		default:
			if child := findChild(node, word); child != nil {
				node = child
			} else if !strings.HasPrefix(word, "-") {
				args++
			}
		}
	}
	return node, waiting, args
}

func findChild(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

func findFlag(node *kong.Node, name string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if "--"+f.Name == name {
				return f
			}
		}
	}
	return nil
}

func childrenOf(node *kong.Node, prefix string) (out []candidate) {
	for _, child := range node.Children {
		if !child.Hidden && strings.HasPrefix(child.Name, prefix) {
			out = append(out, candidate{child.Name, child.Help})
		}
	}
	return out
}

func flagsOf(node *kong.Node, prefix string) (out []candidate) {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			if word := "--" + f.Name; strings.HasPrefix(word, prefix) {
				out = append(out, candidate{word, f.Help})
			}
		}
	}
	return out
}

// valuesOf lists the values of v. Without an enumeration, files reports whether its placeholder stands for a file.
func valuesOf(v *kong.Value, joint, prefix string) (out []candidate, files bool) {
	if v.Enum == "" {
		return nil, takesFile(v)
	}
	for _, value := range v.EnumSlice() {
		if value != "" && strings.HasPrefix(value, prefix) {
			out = append(out, candidate{joint + value, ""})
		}
	}
	return out, false
}

func takesFile(v *kong.Value) bool {
	placeholder := v.Tag.PlaceHolder
	if v.Flag == nil {
		placeholder = strings.ToUpper(v.Name)
	}
	return slices.ContainsFunc([]string{"PATH", "FILE", "GLOB"}, func(word string) bool { return strings.Contains(placeholder, word) })
}
