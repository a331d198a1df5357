package expose

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Mode says when a call is answered.
type Mode string

// The modes.
const (
	Standard Mode = "standard" // once the instance has started
	Express  Mode = "express"  // once it has ended, or Config.Wait is over
)

// DefaultWait is how long an express call waits, and maxWait how long one may.
const (
	DefaultWait = 30 * time.Second
	maxWait     = 5 * time.Minute
)

// Config selects workflows of the operator's and chains: those whose name has the prefix or is listed;
// of these, those that have the tag. Where nothing is named those are all workflows, and with a tag all chains. The
// zero Config selects none, and so does half of a filter.
type Config struct {
	Prefix            string
	Workflows, Chains []Listed
	// TagKey and TagValue are a filter where TagKey is not "".
	TagKey, TagValue string
	Mode             Mode
	Wait             time.Duration

	section *document.Node // where it was parsed, for messages
	// half is the one key of the filter that is there without the other; nil for none.
	half                *document.Node
	halfKey, missingKey string
}

// Listed is a workflow or a chain that is listed.
type Listed struct {
	Name string
	Mode Mode // "" for that of the Config

	node *document.Node
}

// ParseConfig reads the section "expose" of a configuration file. The error is document.Errors,
// one issue for each mistake, with its line. nil, no section, is the zero Config.
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

// readText reads a string that selects everything where it is absent, and so must not be empty.
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

// What is exposed, in messages.
const nounWorkflow, nounChain = "workflow", "chain"

// readListed reads the list of names, and of objects with a name and a mode.
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

// selectNamed returns the mode of a workflow or a chain; false if it is not selected. all says that every name is where
// nothing is named.
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
