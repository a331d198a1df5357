package gate

import (
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/shell"
)

// harmlessOptions are options, by program, that change neither the effect of a command nor its exit status. Those
// under "" apply to every program.
var harmlessOptions = map[string][]string{
	"":        {"--verbose", "--quiet", "--silent", "--color", "--no-color", "--colour"},
	"make":    {"-j", "-s", "-k", "-B", "-w", "--jobs", "--keep-going", "--always-make", "--output-sync", "--no-print-directory"},
	"go":      {"-v", "-race", "-count", "-timeout", "-cover", "-p", "-parallel", "-shuffle", "-failfast", "-json"},
	"pytest":  {"-q", "-v", "-vv", "-x", "-s", "-n", "-ra", "--tb", "--durations", "--exitfirst"},
	"npm":     {"-s"},
	"cargo":   {"-q", "-v", "--release", "--all", "--workspace", "--all-features", "--locked"},
	"git":     {"-u", "--set-upstream", "-f", "--force", "--force-with-lease", "--force-if-includes", "--tags", "--follow-tags", "--atomic", "-q", "-v", "--progress", "-a", "-m", "-s"},
	"kubectl": {"-f", "-n", "--namespace", "--context", "-k", "-R", "--server-side", "--record"},
}

// idleOptions are options, by program, that make a command do nothing or something else. Those under "" apply to
// every program.
var idleOptions = map[string][]string{
	"":      {"--help", "-h", "--version", "--dry-run", "--noop", "--no-op", "--simulate", "--what-if", "--list", "--check"},
	"git":   {"-n"},
	"rsync": {"-n"},
	"make":  {"-n", "-q", "-t", "--just-print", "--recon", "--question", "--touch"},
}

// IsConclusive reports whether the end of the use shows how the gate's command ended. The command must be the whole line and
// match the gate's entry. If an action is judged before it, the command must not have an option known to make it do
// nothing (make -n test). If no action is, it may have only options known to be harmless.
func (m Match) IsConclusive(u Use) bool {
	if u.Tool != BuiltinShell {
		return true
	}
	if m.Unknown != "" || len(m.Commands) != 1 || m.Commands[0] != u.Script.Whole {
		return false
	}
	command := u.Script.Commands[u.Script.Whole]
	if m.Gate.Builtin != BuiltinShell {
		return true
	}
	return slices.ContainsFunc(m.Gate.When, func(w When) bool {
		return m.Gate.fitCommand(u, command, w).yes && m.Gate.isUnchanged(command, w)
	}) || len(m.Gate.When) == 0
}

// isUnchanged reports whether a command has no words beyond an entry's that may change what it does.
func (g Gate) isUnchanged(c shell.Command, w When) bool {
	program := programName(c)
	has := func(options map[string][]string, option string) bool {
		return slices.Contains(options[""], option) || slices.Contains(options[program], option)
	}
	isIdle := func(option string) bool { // --dry for --dry-run, -sn for -s -n
		isLong := strings.HasPrefix(option, "--")
		return slices.ContainsFunc(slices.Concat(idleOptions[""], idleOptions[program]), func(o string) bool { return o == option || isLong && len(option) > 2 && strings.HasPrefix(o, option) }) ||
			!isLong && strings.HasPrefix(option, "-") && slices.ContainsFunc(idleOptions[program], func(o string) bool { return len(o) == 2 && strings.Contains(option, o[1:]) })
	}
	for _, word := range listArguments(c) {
		option, _, assigned := strings.Cut(word.Text, "=")
		switch {
		case slices.ContainsFunc(w.Args, func(p string) bool { return engine.MatchName(p, word.Text) }):
		case !word.Known && g.Action == "":
			return false
		case isIdle(option):
			return false
		case g.Action != "":
		case assigned && !strings.HasPrefix(option, "-"): // for example, make test SHELL:=true
			return false
		case strings.HasPrefix(word.Text, "-") && !has(harmlessOptions, option) && !has(harmlessOptions, strings.TrimRight(option, "0123456789")): // for example, -j4
			return false
		}
	}
	return true
}
