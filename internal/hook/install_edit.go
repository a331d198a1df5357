package hook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tailscale/hujson"
)

// Install writes gavel's hooks into the text of a client's settings, in place of those that are
// gavel's already, and leaves everything else as it is, its order, spaces and comments included. A
// text that has just these hooks stays as it is. An empty text is a file that is not there.
func Install(client string, before []byte, in Installation) ([]byte, error) {
	if client == "opencode" {
		return installPlugin(before, in)
	}
	s, err := parseSettings(client, before, in.Windows)
	if err != nil {
		return nil, err
	}
	old := s.ownElements()
	s.removeOwn()
	if err := s.add(in); err != nil {
		return nil, err
	}
	if slices.Equal(old, s.ownElements()) {
		return before, nil
	}
	return s.text(), nil
}

// Uninstall removes gavel's hooks from the text of a client's settings, and nothing else. The result
// is nil where only gavel's was in it, so that the file can go.
func Uninstall(client string, before []byte, windows bool) ([]byte, error) {
	if client == "opencode" {
		return uninstallPlugin(before)
	}
	s, err := parseSettings(client, before, windows)
	if err != nil {
		return nil, err
	}
	if !s.removeOwn() {
		return before, nil
	}
	if s.isBlank() {
		return nil, nil
	}
	return s.text(), nil
}

// settings is a client's settings file as it is written.
type settings struct {
	installer
	client  string
	windows bool
	source  []byte
	doc     hujson.Value
	root    *hujson.Object
	mark    []byte // a byte order mark
	newline string
	indent  string // of one level
}

var byteOrderMark = []byte("\ufeff")

func parseSettings(client string, source []byte, windows bool) (*settings, error) {
	s := &settings{installer: installers[client], client: client, windows: windows, source: source, newline: "\n", indent: "  "}
	text, marked := bytes.CutPrefix(source, byteOrderMark)
	if marked {
		s.mark = byteOrderMark
	}
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	if bytes.Contains(text, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	var err error
	if s.doc, err = hujson.Parse(slices.Clone(text)); err != nil {
		return nil, fmt.Errorf("not JSON: %s", strings.TrimPrefix(err.Error(), "hujson: "))
	}
	if !s.comments && !s.doc.IsStandard() {
		return nil, fmt.Errorf("not JSON: it has comments or trailing commas, with which %s may not read it; remove them", client)
	}
	var ok bool
	if s.root, ok = s.doc.Value.(*hujson.Object); !ok {
		return nil, fmt.Errorf("line %d: an object is expected", s.line(&s.doc))
	}
	if err := s.checkHooks(); err != nil {
		return nil, err
	}
	if len(s.root.Members) > 0 {
		space := s.root.Members[0].Name.BeforeExtra
		if at := bytes.LastIndexByte(space, '\n'); at >= 0 && len(space) > at+1 && len(bytes.TrimSpace(space[at:])) == 0 {
			s.indent = string(space[at+1:])
		}
	}
	return s, nil
}

// checkHooks refuses what two readers could read differently, or hooks cannot be added to.
func (s *settings) checkHooks() error {
	if err := s.checkNames(s.root); err != nil {
		return err
	}
	hooks := findMember(s.root, "hooks")
	if hooks == nil {
		return nil
	}
	if s.shape == shapeList {
		if _, ok := hooks.Value.(*hujson.Array); !ok {
			return fmt.Errorf("line %d: hooks must be an array", s.line(hooks))
		}
		return nil
	}
	events, ok := hooks.Value.(*hujson.Object)
	if !ok {
		return fmt.Errorf("line %d: hooks must be an object", s.line(hooks))
	}
	for i := range events.Members {
		m := &events.Members[i]
		if _, ok := m.Value.Value.(*hujson.Array); !ok && slices.ContainsFunc(s.events, func(e installedEvent) bool { return e.name == memberName(m) }) {
			return fmt.Errorf("line %d: hooks.%s must be an array", s.line(&m.Value), memberName(m))
		}
	}
	return s.checkNames(events)
}

func (s *settings) checkNames(o *hujson.Object) error {
	seen := map[string]bool{}
	for i := range o.Members {
		name := memberName(&o.Members[i])
		if seen[name] {
			return fmt.Errorf("line %d: duplicate key %q; remove one of them", s.line(&o.Members[i].Name), name)
		}
		seen[name] = true
	}
	return nil
}

func (s *settings) line(v *hujson.Value) int {
	return 1 + bytes.Count(s.source[:min(len(s.source), len(s.mark)+v.StartOffset)], []byte("\n"))
}

func (s *settings) text() []byte {
	return append(slices.Clone(s.mark), s.doc.Pack()...)
}

// isBlank reports whether nothing is left but what gavel writes into a new file.
func (s *settings) isBlank() bool {
	return s.doc.IsStandard() && (len(s.root.Members) == 0 || len(s.root.Members) == 1 && memberName(&s.root.Members[0]) == "version" && s.version != nil)
}

func memberName(m *hujson.ObjectMember) string {
	name, _ := m.Name.Value.(hujson.Literal)
	return name.String()
}

func findMember(o *hujson.Object, name string) *hujson.Value {
	for i := range o.Members {
		if memberName(&o.Members[i]) == name {
			return &o.Members[i].Value
		}
	}
	return nil
}

// add writes the hooks behind what is there.
func (s *settings) add(in Installation) error {
	if s.version != nil && findMember(s.root, "version") == nil {
		if err := s.appendMember(s.root, "version", s.version, 1); err != nil {
			return err
		}
	}
	command := in.Command(s.client)
	list, byEvent := []any{}, orderedObject{}
	for _, e := range s.events {
		var element any = s.handler(in, e, command)
		if s.shape == shapeNested {
			element = orderedObject{{"hooks", []any{element}}}
		}
		list = append(list, element)
		byEvent = append(byEvent, orderedMember{e.name, []any{element}})
	}
	hooks := findMember(s.root, "hooks")
	if hooks == nil {
		if s.shape == shapeList {
			return s.appendMember(s.root, "hooks", list, 1)
		}
		return s.appendMember(s.root, "hooks", byEvent, 1)
	}
	if s.shape == shapeList {
		return s.appendElements(hooks.Value.(*hujson.Array), list, 2, s.isMultiline(s.root))
	}
	events := hooks.Value.(*hujson.Object)
	for _, m := range byEvent {
		var err error
		if present := findMember(events, m.name); present == nil {
			err = s.appendMember(events, m.name, m.value, 2)
		} else {
			err = s.appendElements(present.Value.(*hujson.Array), m.value.([]any), 3, s.isMultiline(events))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *settings) isMultiline(o *hujson.Object) bool {
	return len(o.Members) == 0 || slices.ContainsFunc(o.Members, func(m hujson.ObjectMember) bool { return bytes.ContainsRune(m.Name.BeforeExtra, '\n') })
}

func (s *settings) appendMember(o *hujson.Object, name string, value any, depth int) error {
	multiline := s.isMultiline(o)
	v, err := s.render(value, depth, multiline)
	if err != nil {
		return err
	}
	v.BeforeExtra = hujson.Extra(" ")
	m := hujson.ObjectMember{Name: hujson.Value{Value: hujson.String(name)}, Value: v}
	var last *hujson.Value
	if n := len(o.Members); n > 0 {
		last = &o.Members[n-1].Value
	}
	m.Name.BeforeExtra, m.Value.AfterExtra = s.makeRoom(last, &o.AfterExtra, depth, multiline)
	o.Members = append(o.Members, m)
	return nil
}

func (s *settings) appendElements(a *hujson.Array, values []any, depth int, multiline bool) error {
	if len(a.Elements) > 0 {
		multiline = slices.ContainsFunc(a.Elements, func(v hujson.Value) bool { return bytes.ContainsRune(v.BeforeExtra, '\n') })
	}
	for _, value := range values {
		v, err := s.render(value, depth, multiline)
		if err != nil {
			return err
		}
		var last *hujson.Value
		if n := len(a.Elements); n > 0 {
			last = &a.Elements[n-1]
		}
		v.BeforeExtra, v.AfterExtra = s.makeRoom(last, &a.AfterExtra, depth, multiline)
		a.Elements = append(a.Elements, v)
	}
	return nil
}

// makeRoom is what stands before and behind a new value at the end of an array or object. end is
// what stands before its closing bracket; comments in there stay where they are.
func (s *settings) makeRoom(last *hujson.Value, end *hujson.Extra, depth int, multiline bool) (before, after hujson.Extra) {
	comments := bytes.TrimRight(*end, " \t\r\n")
	rest := (*end)[len(comments):]
	before = slices.Clone(comments)
	switch {
	case multiline || len(comments) > 0:
		before = append(before, s.newline+strings.Repeat(s.indent, depth)...)
	case last != nil:
		before = append(before, ' ')
	}
	if multiline && last == nil && !bytes.ContainsRune(rest, '\n') {
		rest = hujson.Extra(s.newline + strings.Repeat(s.indent, depth-1))
	}
	*end = slices.Clone(rest)
	if last != nil && last.AfterExtra != nil { // a trailing comma, which the library notes there
		after = hujson.Extra{}
	}
	return before, after
}

func (s *settings) render(value any, depth int, multiline bool) (hujson.Value, error) {
	raw, err := encodePlain(value)
	if err != nil {
		return hujson.Value{}, err
	}
	if multiline {
		var b bytes.Buffer
		if err := json.Indent(&b, raw, strings.Repeat(s.indent, depth), s.indent); err != nil {
			return hujson.Value{}, err
		}
		raw = bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte(s.newline))
	}
	return hujson.Parse(raw)
}

// removeOwn removes gavel's hooks, and what holds nothing else. It reports whether there were any.
func (s *settings) removeOwn() bool {
	for i := range s.root.Members {
		if m := &s.root.Members[i]; memberName(m) == "hooks" {
			removed := s.prune(&m.Value)
			if removed && isEmpty(m.Value) {
				removeMember(s.root, i)
			}
			return removed
		}
	}
	return false
}

func (s *settings) prune(v *hujson.Value) (removed bool) {
	switch c := v.Value.(type) {
	case *hujson.Object:
		for i := len(c.Members) - 1; i >= 0; i-- {
			if s.prune(&c.Members[i].Value) {
				removed = true
				if isEmpty(c.Members[i].Value) {
					removeMember(c, i)
				}
			}
		}
	case *hujson.Array:
		for i := len(c.Elements) - 1; i >= 0; i-- {
			element := &c.Elements[i]
			own := s.ownElement(element)
			if !own && !s.prune(element) {
				continue
			}
			removed = true
			if group, ok := element.Value.(*hujson.Object); own || ok && findMember(group, "hooks") == nil {
				removeElement(c, i)
			}
		}
	}
	return removed
}

// ownElement reports whether a hook runs gavel.
func (s *settings) ownElement(v *hujson.Value) bool {
	o, ok := v.Value.(*hujson.Object)
	return ok && ownWords(s.client, commandOf(o), s.windows) != nil
}

// commandOf is what a hook runs, "" for what is no hook.
func commandOf(o *hujson.Object) string {
	if action, ok := valueOf(o, "action").(*hujson.Object); ok {
		o = action
	}
	return cmp.Or(textOf(o, "command"), textOf(o, "bash"), textOf(o, "powershell"))
}

func valueOf(o *hujson.Object, name string) hujson.ValueTrimmed {
	if v := findMember(o, name); v != nil {
		return v.Value
	}
	return nil
}

func textOf(o *hujson.Object, name string) string {
	if l, ok := valueOf(o, name).(hujson.Literal); ok && l.Kind() == '"' {
		return l.String()
	}
	return ""
}

func numberOf(o *hujson.Object, name string) float64 {
	if l, ok := valueOf(o, name).(hujson.Literal); ok && l.Kind() == '0' {
		return l.Float()
	}
	return 0
}

// ownElements lists gavel's hooks with their events, in an order that does not depend on the file's.
func (s *settings) ownElements() (all []string) {
	var visit func(path string, v *hujson.Value) bool
	visit = func(path string, v *hujson.Value) (own bool) {
		switch c := v.Value.(type) {
		case *hujson.Object:
			if s.ownElement(v) {
				return true
			}
			for i := range c.Members {
				own = visit(path+"."+memberName(&c.Members[i]), &c.Members[i].Value) || own
			}
		case *hujson.Array:
			for i := range c.Elements {
				if visit(path, &c.Elements[i]) {
					if strings.Count(path, ".") > 1 { // the hooks of a group: the whole group counts
						own = true
						continue
					}
					whole := c.Elements[i].Clone()
					whole.Minimize()
					all = append(all, path+" "+string(whole.Pack()))
				}
			}
		}
		return own
	}
	if hooks := findMember(s.root, "hooks"); hooks != nil {
		visit("", hooks)
	}
	slices.Sort(all)
	return all
}

// isEmpty reports whether an object or an array holds nothing, no comment either.
func isEmpty(v hujson.Value) bool {
	switch c := v.Value.(type) {
	case *hujson.Object:
		return len(c.Members) == 0 && isSpace(c.AfterExtra)
	case *hujson.Array:
		return len(c.Elements) == 0 && isSpace(c.AfterExtra)
	}
	return false
}

func isSpace(e hujson.Extra) bool { return len(bytes.TrimSpace(e)) == 0 }

func removeMember(o *hujson.Object, i int) {
	var last, next *hujson.Value
	if i > 0 {
		last = &o.Members[i-1].Value
	}
	if i+1 < len(o.Members) {
		next = &o.Members[i+1].Name
	}
	closeGap(o.Members[i].Name.BeforeExtra, o.Members[i].Value.AfterExtra, last, next, &o.AfterExtra)
	o.Members = slices.Delete(o.Members, i, i+1)
}

func removeElement(a *hujson.Array, i int) {
	var last, next *hujson.Value
	if i > 0 {
		last = &a.Elements[i-1]
	}
	if i+1 < len(a.Elements) {
		next = &a.Elements[i+1]
	}
	closeGap(a.Elements[i].BeforeExtra, a.Elements[i].AfterExtra, last, next, &a.AfterExtra)
	a.Elements = slices.Delete(a.Elements, i, i+1)
}

// closeGap undoes makeRoom: the comments that stand before a removed value stay.
func closeGap(before, after hujson.Extra, last, next *hujson.Value, end *hujson.Extra) {
	comments := bytes.TrimRight(before, " \t\r\n")
	join := func(behind hujson.Extra) hujson.Extra {
		gap := before[len(comments):]
		if len(comments) == 0 || bytes.HasPrefix(bytes.TrimLeft(behind, " \t\r"), []byte("\n")) {
			gap = nil
		}
		return slices.Concat(comments, gap, behind)
	}
	if next != nil {
		next.BeforeExtra = join(next.BeforeExtra)
		return
	}
	*end = join(*end)
	if last == nil {
		return
	}
	if after != nil { // the trailing comma stays
		last.AfterExtra = slices.Concat(hujson.Extra{}, last.AfterExtra)
		if last.AfterExtra == nil {
			last.AfterExtra = hujson.Extra{}
		}
		return
	}
	*end = slices.Concat(last.AfterExtra, *end)
	last.AfterExtra = nil
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
	switch hooks := valueOf(s.root, "hooks").(type) {
	case *hujson.Object:
		for i := range hooks.Members {
			if list, ok := hooks.Members[i].Value.Value.(*hujson.Array); ok {
				all = append(all, s.readHooks(memberName(&hooks.Members[i]), "", list)...)
			}
		}
	case *hujson.Array:
		all = s.readHooks("", "", hooks)
	}
	return all, nil
}

func (s *settings) readHooks(event, matcher string, list *hujson.Array) (all []InstalledHook) {
	unit := time.Second
	if s.client == "gemini" {
		unit = time.Millisecond
	}
	for i := range list.Elements {
		o, ok := list.Elements[i].Value.(*hujson.Object)
		if !ok {
			continue
		}
		if group, ok := valueOf(o, "hooks").(*hujson.Array); ok && s.shape == shapeNested {
			all = append(all, s.readHooks(event, textOf(o, "matcher"), group)...)
			continue
		}
		enabled, _ := valueOf(o, "enabled").(hujson.Literal)
		closed, _ := valueOf(o, "failClosed").(hujson.Literal)
		all = append(all, InstalledHook{
			Event: cmp.Or(event, textOf(o, "trigger")), Matcher: cmp.Or(matcher, textOf(o, "matcher")), Command: commandOf(o),
			Timeout:    time.Duration(cmp.Or(numberOf(o, "timeoutSec"), numberOf(o, "timeout")) * float64(unit)),
			Off:        string(enabled) == "false",
			FailClosed: string(closed) == "true" || textOf(o, "onFailure") == "block",
			Own:        ownWords(s.client, commandOf(o), s.windows),
		})
	}
	return all
}
