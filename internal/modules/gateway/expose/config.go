package expose

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Mode determines when a call returns.
type Mode string

// The modes.
const (
	Standard Mode = "standard" // as soon as the instance has started
	Express  Mode = "express"  // when it has ended, or after Config.Wait
)

// DefaultWait is how long an express call waits by default, and maxWait the maximum.
const (
	DefaultWait = 30 * time.Second
	maxWait     = 5 * time.Minute
)

// Config selects the operator's workflows and chains. It selects those that are listed or whose name has the
// prefix, and of these only those with the tag. Without a prefix and lists it selects all workflows, and with a
// tag also all chains. The zero Config selects none, and so does an incomplete filter.
type Config struct {
	Prefix            string
	Workflows, Chains []Listed
	// TagKey and TagValue are a filter if TagKey is not "".
	TagKey, TagValue string
	Mode             Mode
	Wait             time.Duration

	section *document.Node // the parsed section, for messages
	// half is the only key of an incomplete filter; nil if it is complete or absent.
	half                *document.Node
	halfKey, missingKey string
}

// Listed is a listed workflow or chain.
type Listed struct {
	Name string
	Mode Mode // "" for the mode of the Config

	node *document.Node
}

// ParseConfig parses the section "expose" of a configuration file. The error is document.Errors, with one
// issue and its line for each mistake. A nil section gives the zero Config.
func ParseConfig(section *document.Node) (Config, error) {
	if section == nil {
		return Config{}, nil
	}
	o := document.NewObject(section)
	cfg := Config{
		Prefix: readText(o, "prefix"), Workflows: readListed(o, "workflows", nounWorkflow), Chains: readListed(o, "chains", nounChain), TagKey: readText(o, "tagKey"), TagValue: o.String("tagValue"),
		Mode: cmp.Or(readMode(o), Standard), Wait: readWait(o), section: section,
	}
	o.Unknown()
	switch key, value := o.Value("tagKey"), o.Value("tagValue"); {
	case key != nil && value == nil:
		cfg.half, cfg.halfKey, cfg.missingKey = key, "tagKey", "tagValue"
	case value != nil && key == nil:
		cfg.half, cfg.halfKey, cfg.missingKey = value, "tagValue", "tagKey"
	}
	return cfg, o.Err()
}

// readText reads a string that selects everything if absent, and must therefore not be empty.
func readText(o *document.ObjectReader, key string) string {
	text := o.StringPtr(key)
	if text == nil {
		return ""
	}
	if *text == "" {
		o.Fail(o.Value(key), "%q is empty; remove it to select without it", key)
	}
	return *text
}

func readMode(o *document.ObjectReader) Mode {
	return Mode(o.Enum("mode", string(Standard), string(Express)))
}

func readWait(o *document.ObjectReader) time.Duration {
	text := o.StringPtr("wait")
	if text == nil {
		return DefaultWait
	}
	wait, err := time.ParseDuration(*text)
	if err != nil || wait < time.Second || wait > maxWait {
		o.Fail(o.Value("wait"), `"wait" is a duration from 1s to 5m, such as 30s`)
	}
	return wait
}

// The words for exposed things in messages.
const nounWorkflow, nounChain = "workflow", "chain"

// readListed reads a list of names, and of objects with a name and a mode.
func readListed(o *document.ObjectReader, key, noun string) (list []Listed) {
	items := o.Items(key)
	if n := o.Value(key); n != nil && n.Kind == document.Array && len(items) == 0 {
		o.Fail(n, `%q is empty; to expose none, remove the section "expose"`, key)
	}
	for _, n := range items {
		one := Listed{Name: n.Text, node: n}
		if n.Kind != document.String {
			of := o.Sub(n)
			of.Require("name")
			one.Name, one.Mode = of.String("name"), readMode(of)
			of.Unknown()
		}
		if findListed(list, one.Name) >= 0 {
			o.Fail(n, "the %s %q is listed twice; remove one of the two", noun, one.Name)
		}
		list = append(list, one)
	}
	return list
}

func findListed(list []Listed, name string) int {
	return slices.IndexFunc(list, func(one Listed) bool { return one.Name == name })
}

// selectNamed returns the mode of a workflow or chain; false if it is not selected. all means that every
// name is selected if nothing is listed.
func (c Config) selectNamed(name string, tags map[string]string, list []Listed, all bool) (Mode, bool) {
	listed := findListed(list, name)
	all = all && c.Prefix == "" && c.Workflows == nil && c.Chains == nil
	if c.Mode == "" || c.half != nil || listed < 0 && !all && (c.Prefix == "" || !strings.HasPrefix(name, c.Prefix)) {
		return "", false
	}
	if value, tagged := tags[c.TagKey]; c.TagKey != "" && (!tagged || value != c.TagValue) {
		return "", false
	}
	if listed >= 0 {
		return cmp.Or(list[listed].Mode, c.Mode), true
	}
	return c.Mode, true
}
