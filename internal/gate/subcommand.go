package gate

import (
	"slices"

	"github.com/gavel-mcp/gavel/internal/shell"
)

// plainSubcommands are subcommands that run no other program or subcommand, whatever words follow: git stash push
// pushes nothing, and neither does git commit -m "$message". Subcommands that run their arguments are excluded (git
// submodule foreach, go run, npm exec).
var plainSubcommands = map[string][]string{
	"git": {
		"add", "blame", "branch", "checkout", "cherry-pick", "commit", "diff", "fetch", "grep", "log", "ls-files", "merge", "mv", "pull",
		"push", "reset", "restore", "rev-parse", "revert", "rm", "show", "stash", "status", "switch", "tag",
	},
	"gh":      {"auth", "browse", "gist", "issue", "label", "pr", "release", "repo", "run", "search", "workflow"},
	"go":      {"build", "clean", "doc", "env", "fmt", "get", "install", "list", "mod", "test", "version", "vet"},
	"kubectl": {"annotate", "apply", "create", "delete", "describe", "edit", "explain", "get", "label", "logs", "patch", "replace", "rollout", "scale"},
	"npm":     {"ci", "install", "ls", "outdated", "pack", "publish", "view"},
}

// findSubcommand returns the words of a command from its subcommand on, or nil unless that is known and plain.
func findSubcommand(c shell.Command) []shell.Word {
	words := listArguments(c)
	if len(words) == 0 || !words[0].Known || !slices.Contains(plainSubcommands[programName(c)], words[0].Text) {
		return nil
	}
	return words
}
