package cli

import (
	"cmp"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/term"
)

// AgentPrincipal returns the principal of a local client.
func AgentPrincipal(role, id string) (engine.Principal, error) {
	p := engine.Principal{ID: cmp.Or(id, "local:"+role), Role: engine.Role(role)}
	return p, CheckAgent(p.ID)
}

func checkPrincipal(id string) error {
	if id == "" || len(id) > 200 || term.Clean(id) != id {
		return term.UsageErrorf("", "--principal must be a name of at most 200 bytes without control characters")
	}
	return nil
}

// CheckAgent is checkPrincipal for a local client. It also rejects ids that a token or an issuer could have: runs of
// chains for such a principal would need that token or issuer to continue.
func CheckAgent(id string) error {
	if err := checkPrincipal(id); err != nil {
		return err
	}
	if of, _, has := strings.Cut(id, ":"); has && of != "local" {
		return term.UsageErrorf("give --principal "+term.ShellWord(strings.ReplaceAll(id, ":", "-")),
			"--principal %q looks like the principal of a token or an issuer (%s:...), so runs of chains would need that token or issuer; only local: may precede a colon", id, of)
	}
	return nil
}

// FindReviewer returns the principal who decides: the named one, or the user of this machine. The user's alias is
// the command line's principal, because the user may have made moves under that name.
func FindReviewer(principal *string) (engine.Principal, error) {
	if principal != nil {
		return engine.Principal{ID: *principal, Role: engine.RoleOperator}, checkPrincipal(*principal)
	}
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return engine.Principal{ID: "local:user:" + name, Role: engine.RoleOperator, Alias: gavel.Operator.ID}, nil
}
