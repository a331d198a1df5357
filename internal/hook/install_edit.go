package hook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tailscale/hujson"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Install writes gavel's hooks into the text of a client's settings, in place of those that are gavel's already. Other
// hooks, settings and comments stay. A text that has just these hooks stays as it is. An empty text is a file that is
// not there.
func Install(client string, before []byte, in Installation) ([]byte, error) {
	if client == "opencode" {
		return installPlugin(before, in)
	}
	s, err := parseSettings(client, before, in.Windows)
	if err != nil {
		return nil, err
	}
	old := s.ownElements()
	removed, _ := s.findOwn(s.root.Get("hooks"), "/hooks")
	if err := s.patch(removed...); err != nil {
		return nil, err
	}
	if err := s.patch(s.add(in)...); err != nil {
		return nil, err
	}
	if slices.Equal(old, s.ownElements()) {
		return before, nil
	}
	return s.format(), nil
}

// Uninstall removes gavel's hooks from the text of a client's settings. The result is nil where nothing else was in it,
// so that the file can go.
func Uninstall(client string, before []byte, windows bool) ([]byte, error) {
	if client == "opencode" {
		return uninstallPlugin(before)
	}
	s, err := parseSettings(client, before, windows)
	if err != nil {
		return nil, err
	}
	removed, _ := s.findOwn(s.root.Get("hooks"), "/hooks")
	if len(removed) == 0 {
		return before, nil
	}
	if err := s.patch(removed...); err != nil {
		return nil, err
	}
	if keys := s.root.Keys(); len(keys) == 0 || slices.Equal(keys, []string{"version"}) {
		return nil, nil
	}
	return s.format(), nil
}

// settings is a client's settings file.
type settings struct {
	installer
	client    string
	windows   bool
	text      []byte         // without its byte order mark
	mark      []byte         // that mark
	root      *document.Node // of text
	formatted string         // the indentation that the whole file has, "" where it is laid out by hand
}

var byteOrderMark = []byte("\ufeff")

func parseSettings(client string, source []byte, windows bool) (*settings, error) {
	s := &settings{installer: installers[client], client: client, windows: windows}
	text, marked := bytes.CutPrefix(source, byteOrderMark)
	if marked {
		s.mark = byteOrderMark
	}
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	if err := s.read(text); err != nil {
		return nil, err
	}
	s.formatted = s.findIndent()
	return s, nil
}

// read reads a text, and refuses one that two readers could read differently, or that hooks cannot be added to.
func (s *settings) read(text []byte) error {
	plain, err := hujson.Standardize(slices.Clone(text))
	if err != nil {
		return fmt.Errorf("not JSON: %s", strings.TrimPrefix(err.Error(), "hujson: "))
	}
	if !s.comments && !bytes.Equal(plain, text) {
		return fmt.Errorf("not JSON: it has comments or trailing commas, with which %s may not read it; remove them", s.client)
	}
	root, err := document.Parse("settings.json", plain, document.Limits{Bytes: MaxInput, Depth: 256, Literals: true})
	if err != nil {
		if issue, ok := errors.AsType[*document.Issue](err); ok {
			return fmt.Errorf("line %d: %s; remove one of them", issue.Line, issue.Message)
		}
		return err
	}
	s.text, s.root = text, root
	want, kind := "an object", document.Object
	if s.shape == shapeList {
		want, kind = "an array", document.Array
	}
	hooks := root.Get("hooks")
	switch {
	case root.Kind != document.Object:
		return fmt.Errorf("line %d: an object is expected", root.Line)
	case hooks != nil && hooks.Kind != kind:
		return fmt.Errorf("line %d: hooks must be %s", hooks.Line, want)
	}
	for _, e := range s.events {
		if list := hooks.Get(e.name); list != nil && list.Kind != document.Array {
			return fmt.Errorf("line %d: hooks.%s must be an array", list.Line, e.name)
		}
	}
	return nil
}

// operation is one of a JSON Patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (s *settings) patch(operations ...operation) error {
	raw, err := encodePlain(operations)
	if err != nil {
		return err
	}
	v, err := hujson.Parse(s.text)
	if err == nil && len(operations) > 0 {
		err = v.Patch(raw)
	}
	if err != nil {
		return err
	}
	return s.read(v.Pack())
}

// findIndent is the indentation of a text that a program has laid out, "" for any other.
func (s *settings) findIndent() string {
	for _, indent := range []string{"  ", "    ", "\t", " "} {
		if bytes.Equal(bytes.TrimSpace(indentJSON(s.text, indent)), bytes.TrimSpace(s.text)) {
			return indent
		}
	}
	return ""
}

// indentJSON lays JSON out, with the ends of lines that it has; nil for what has comments.
func indentJSON(text []byte, indent string) []byte {
	var b bytes.Buffer
	if json.Indent(&b, bytes.TrimSpace(text), "", indent) != nil {
		return nil
	}
	b.WriteByte('\n')
	if bytes.Contains(text, []byte("\r\n")) {
		return bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte("\r\n"))
	}
	return b.Bytes()
}

// format is the text, laid out where it was.
func (s *settings) format() []byte {
	if s.formatted == "" {
		return slices.Concat(s.mark, s.text)
	}
	return slices.Concat(s.mark, indentJSON(s.text, s.formatted))
}

// add is what puts the hooks behind what is there.
func (s *settings) add(in Installation) (all []operation) {
	if s.version != nil && s.root.Get("version") == nil {
		all = append(all, operation{"add", "/version", s.version})
	}
	hooks := s.root.Get("hooks")
	if hooks == nil {
		empty := any(map[string]any{})
		if s.shape == shapeList {
			empty = []any{}
		}
		all = append(all, operation{"add", "/hooks", empty})
	}
	command := in.Command(s.client)
	for _, e := range s.events {
		var element any = s.handler(in, e, command)
		at := "/hooks"
		if s.shape != shapeList {
			at += "/" + e.name
			if hooks.Get(e.name) == nil {
				all = append(all, operation{"add", at, []any{}})
			}
		}
		if s.shape == shapeNested {
			element = orderedObject{{"hooks", []any{element}}}
		}
		all = append(all, operation{"add", at + "/-", element})
	}
	return all
}

// findOwn is what removes gavel's hooks below n, and what holds nothing else. gone reports that n itself has to go.
func (s *settings) findOwn(n *document.Node, at string) (removed []operation, gone bool) {
	if n == nil {
		return nil, false
	}
	if n.Kind == document.Object && ownWords(s.client, commandOf(n), s.windows) != nil {
		return []operation{{Op: "remove", Path: at}}, true
	}
	left := len(n.Items) + len(n.Members)
	visit := func(child *document.Node, at string) {
		below, gone := s.findOwn(child, at)
		removed = append(removed, below...)
		if gone {
			left--
		}
	}
	for i := len(n.Items) - 1; i >= 0; i-- { // from the end, so that the places before stay
		visit(n.Items[i], fmt.Sprintf("%s/%d", at, i))
	}
	for _, m := range slices.Backward(n.Members) {
		before := left
		visit(m.Value, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(m.Key))
		if m.Key == "hooks" && left < before { // a group without hooks
			left = 0
		}
	}
	if len(removed) > 0 && left == 0 {
		return []operation{{Op: "remove", Path: at}}, true
	}
	return removed, false
}

// commandOf is what a hook runs, "" for what is no hook.
func commandOf(n *document.Node) string {
	if action := n.Get("action"); action != nil {
		n = action
	}
	return cmp.Or(textOf(n, "command"), textOf(n, "bash"), textOf(n, "powershell"))
}

func textOf(n *document.Node, name string) string {
	if v := n.Get(name); v != nil && v.Kind == document.String {
		return v.Text
	}
	return ""
}

// ownElements lists what holds gavel's hooks, in an order that does not depend on the file's.
func (s *settings) ownElements() (all []string) {
	hooks := s.root.Get("hooks")
	if hooks == nil {
		return nil
	}
	lists := map[string]*document.Node{"": hooks}
	if hooks.Kind == document.Object {
		lists = map[string]*document.Node{}
		for _, m := range hooks.Members {
			lists[m.Key] = m.Value
		}
	}
	for event, list := range lists {
		for _, n := range list.Items {
			if removed, _ := s.findOwn(n, ""); len(removed) > 0 {
				all = append(all, event+" "+string(n.Canonical()))
			}
		}
	}
	slices.Sort(all)
	return all
}

// ReadHooks lists the hooks that a client's settings have, gavel's and others.
func ReadHooks(client string, text []byte, windows bool) (all []InstalledHook, err error) {
	if client == "opencode" {
		return readPlugin(text)
	}
	s, err := parseSettings(client, text, windows)
	if err != nil {
		return nil, err
	}
	hooks := s.root.Get("hooks")
	if hooks == nil {
		return nil, nil
	}
	for _, m := range hooks.Members {
		all = append(all, s.readHooks(m.Key, "", m.Value)...)
	}
	return append(all, s.readHooks("", "", hooks)...), nil
}

func (s *settings) readHooks(event, matcher string, list *document.Node) (all []InstalledHook) {
	unit := time.Second
	if s.client == "gemini" {
		unit = time.Millisecond
	}
	number := func(n *document.Node, name string) (f float64) {
		if v := n.Get(name); v != nil {
			_ = json.Unmarshal(v.JSON(), &f) // any other value is none
		}
		return f
	}
	is := func(n *document.Node, name, text string) bool { v := n.Get(name); return v != nil && v.Text == text }
	for _, n := range list.Items {
		if group := n.Get("hooks"); group != nil && s.shape == shapeNested {
			all = append(all, s.readHooks(event, textOf(n, "matcher"), group)...)
			continue
		}
		all = append(all, InstalledHook{
			Event: cmp.Or(event, textOf(n, "trigger")), Matcher: cmp.Or(matcher, textOf(n, "matcher")), Command: commandOf(n),
			Timeout:    time.Duration(cmp.Or(number(n, "timeoutSec"), number(n, "timeout")) * float64(unit)),
			Off:        is(n, "enabled", "false"),
			FailClosed: is(n, "failClosed", "true") || is(n, "onFailure", "block"),
			Own:        ownWords(s.client, commandOf(n), s.windows),
		})
	}
	return all
}
