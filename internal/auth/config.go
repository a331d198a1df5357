package auth

import (
	"path/filepath"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/egress"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Config is the section "auth" of the configuration file.
type Config struct {
	// Issuers are the trusted issuers of signed tokens, in file order.
	Issuers []Issuer
}

// ParseConfig reads the section; for nil it returns the zero Config. Certificates are read from files; relative paths
// start at dir. All mistakes are returned together, with their lines, as document.Errors.
func ParseConfig(section *document.Node, dir string) (Config, error) {
	if section == nil {
		return Config{}, nil
	}
	var c Config
	top := document.NewObject(section)
	names := map[string]bool{}
	for _, item := range top.Items("issuers") {
		o := top.Sub(item)
		i := readIssuer(o, dir)
		o.Unknown()
		if top.Err() != nil {
			continue // the mistakes in its keys are enough
		}
		if what := i.problem(); what != "" {
			top.Fail(item, "%s", "the issuer cannot be used: "+what)
		} else if names[i.Name] {
			top.Fail(o.Value("name"), "duplicate issuer name; principals of the two would be mixed up")
		}
		names[i.Name] = true
		c.Issuers = append(c.Issuers, i)
	}
	top.Unknown()
	if err := top.Err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func readIssuer(o *document.ObjectReader, dir string) Issuer {
	roles := append(slices.Clone(workflow.Roles), string(engine.RoleProxy))
	i := Issuer{
		Name: o.String("name"), URL: o.String("url"), JWKS: o.String("jwks"),
		Audiences: o.OneOrMore("audiences"), Algorithms: o.Strings("algorithms"),
		SubjectClaim: o.String("subjectClaim"), RoleClaim: o.String("roleClaim"),
		DefaultRole: engine.Role(o.Enum("defaultRole", roles...)), WorkflowsClaim: o.String("workflowsClaim"),
		PrivateNetwork: o.Bool("privateNetwork"),
	}
	o.Require("name", "url", "audiences")
	given := o.Object("roles")
	for _, m := range o.Entries("roles") {
		if i.Roles == nil {
			i.Roles = map[string]engine.Role{}
		}
		i.Roles[m.Key] = engine.Role(given.Enum(m.Key, roles...))
	}
	if file := o.String("caFile"); file != "" {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		var err error
		if i.Roots, err = egress.LoadRoots(file); err != nil {
			o.Fail(o.Value("caFile"), "%s", err.Error())
		}
	}
	return i
}
