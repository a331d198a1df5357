package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
)

// checkEvidence calls checkSources before the upstreams are open. It reads the upstreams and pins only if some source of
// evidence is a tool.
func checkEvidence(file *config.File, gates gate.Config) error {
	sources, err := evidence.ParseConfig(file.Section(evidence.Section))
	if err != nil || !slices.ContainsFunc(slices.Collect(maps.Values(sources.Sources)), func(s evidence.Source) bool { return s.Upstream != nil }) {
		return nil //nolint:nilerr // reported when the sources are opened
	}
	declared, pins, err := readUpstreams(file)
	if err != nil {
		return err
	}
	return checkSources(file, declared, pins, gates)
}

// checkSources checks the tools that serve as sources of evidence against the declarations and the pins. It rejects:
//
//   - a tool that no call can reach;
//   - arguments that the tool does not accept, and missing required ones;
//   - a tool with a gate, because its calls move a workflow and a fetch must not.
//
// The error is a document.Errors with one issue for each.
func checkSources(file *config.File, declared upstream.Config, pins *upstream.Pins, gates gate.Config) error {
	sources, err := evidence.ParseConfig(file.Section(evidence.Section))
	if err != nil {
		return err
	}
	var faults document.Errors
	for _, name := range slices.Sorted(maps.Keys(sources.Sources)) {
		if s := sources.Sources[name]; s.Upstream != nil {
			checkTool(s, declared, pins, gates, func(pointer, format string, args ...any) {
				faults = append(faults, sources.Issue(name, pointer, format, args...))
			})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

func checkTool(s evidence.Source, declared upstream.Config, pins *upstream.Pins, gates gate.Config, fail func(pointer, format string, args ...any)) {
	t := s.Upstream
	server, ok := declared.Servers[t.Server]
	if !ok {
		fail("/upstream/server", "the section upstreams declares no server %q%s", t.Server, didYouMean(t.Server, slices.Collect(maps.Keys(declared.Servers))))
		return
	}
	if server.Pinning != upstream.PinningFirstUse {
		pinned, ok := pins.Of(t.Server)
		if !ok {
			fail("/upstream/server", "the server %q has no pinned items; run gavel upstream pin %s", t.Server, t.Server)
			return
		}
		tools := map[string]upstream.Item{}
		for _, item := range pinned {
			if item.Kind == upstream.KindTool {
				tools[item.Name] = item
			}
		}
		item, ok := tools[t.Name]
		if !ok {
			fail("/upstream/tool", "the server %q has no pinned tool %q%s", t.Server, t.Name, didYouMean(t.Name, slices.Collect(maps.Keys(tools))))
			return
		}
		if gates.GateOf(item.Public) != nil {
			fail("/upstream/tool", "the tool %q has a gate, so that each call moves a workflow; evidence comes from tools without one", t.Name)
			return
		}
		checkToolArguments(s, document.ReadTrusted(item.Raw).Get("inputSchema"), fail)
	}
	if !server.AllowsAnybody(upstream.KindTool, t.Name) {
		fail("/upstream/tool", "no rule of %q allows the tool %q, so no one can call it; add it to allow in the section upstreams", t.Server, t.Name)
	}
}

// checkToolArguments reports unknown arguments and missing required ones. If the schema allows additional properties, an
// unknown name is reported only if it resembles a known one.
func checkToolArguments(s evidence.Source, schema document.JSON, fail func(pointer, format string, args ...any)) {
	var known []string
	for name := range schema.Get("properties").Members() {
		known = append(known, name.Text())
	}
	isClosed := schema.Get("additionalProperties").Kind() == document.False
	for _, name := range slices.Sorted(maps.Keys(s.Arguments)) {
		if near := didYouMean(name, known); !slices.Contains(known, name) && (isClosed || near != "") {
			fail(string(document.PointerOf("arguments", name)), "the tool %q has no argument %q%s", s.Upstream.Name, name, near)
		}
	}
	var absent []string
	for _, name := range schema.Get("required").Elements() {
		if _, ok := s.Arguments[name.Text()]; !ok {
			absent = append(absent, name.Text())
		}
	}
	if len(absent) > 0 {
		fail("", "the tool %q needs the arguments %s; declare them in arguments", s.Upstream.Name, strings.Join(absent, ", "))
	}
}

func didYouMean(word string, known []string) string {
	if near := document.Suggest(word, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}
