package agent

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailscale/hujson"

	"github.com/gavel-mcp/gavel/validators/document"
)

// InstalledHook is a hook in a client's settings that runs gavel.
type InstalledHook struct {
	Event   string
	Command string   // "" for a plugin
	Words   []string // the words of the command, the program first
	at      []string // its path in the settings
	element string   // the element of the event's list that contains it
	off     bool
}

// Option returns the value of a flag of the command, or "".
func (h InstalledHook) Option(name string) string {
	if at := slices.Index(h.Words, "--"+name); at >= 0 && at+1 < len(h.Words) {
		return h.Words[at+1]
	}
	return ""
}

// Limit returns the value of --limit in the command, or 0.
func (h InstalledHook) Limit() time.Duration {
	d, _ := time.ParseDuration(h.Option("limit"))
	return d
}

// Installation returns an Installation that writes the same command.
func (h InstalledHook) Installation() Installation {
	args := slices.Clone(h.Words[3:])
	if at := slices.Index(args, "--limit"); at >= 0 {
		args = slices.Delete(args, at, min(at+2, len(args)))
	}
	return Installation{Program: h.Words[0], Args: args, Limit: cmp.Or(h.Limit(), time.Minute), FailClosed: true, Windows: OnWindows}
}

// Install returns a client's settings with gavel's hooks. They replace hooks that gavel installed earlier. Other
// hooks, settings and comments are kept. If the text already has these hooks, it is returned unchanged. An empty
// text stands for a missing file.
func Install(client string, before []byte, in Installation) ([]byte, error) {
	if client == "opencode" {
		return installPlugin(before, in)
	}
	s, err := parseSettings(client, before)
	if err != nil {
		return nil, err
	}
	var hooks, want, have []string
	for _, event := range s.events {
		text, err := in.hookAt(client, event)
		if err != nil {
			return nil, err
		}
		hooks = append(hooks, text)
		want = append(want, event+" "+string(document.ReadTrusted([]byte(text)).Canonical()))
	}
	for _, h := range s.findOwn() {
		have = append(have, h.Event+" "+h.element)
	}
	slices.Sort(want)
	slices.Sort(have)
	if slices.Equal(want, have) {
		return before, nil
	}
	if err := s.removeOwn(); err != nil {
		return nil, err
	}
	add := func(at, value string) {
		if err == nil {
			err = s.patch("add", at, value)
		}
	}
	if s.version != "" && s.text.Find("/version") == nil {
		add("/version", s.version)
	}
	if !s.oneList && s.text.Find("/hooks") == nil {
		add("/hooks", "{}")
	}
	for i, event := range s.events {
		at := "/hooks"
		if !s.oneList {
			at += "/" + event
		}
		switch list := s.text.Find(at); {
		case list == nil:
			add(at, "["+hooks[i]+"]")
		case list.Value.Kind() != '[':
			return nil, fmt.Errorf("%s must be an array", at)
		default:
			add(at+"/-", hooks[i])
		}
	}
	return s.pack(), err
}

// Uninstall returns a client's settings without gavel's hooks. The result is nil if nothing else was in
// them, so that the file can be removed.
func Uninstall(client string, before []byte) ([]byte, error) {
	if client == "opencode" {
		_, err := readPlugin(before)
		return nil, err
	}
	s, err := parseSettings(client, before)
	if err != nil || len(s.findOwn()) == 0 {
		return before, err
	}
	if err := s.removeOwn(); err != nil {
		return nil, err
	}
	if s.root.Len() == 0 || s.root.Len() == 1 && s.root.Get("version").Kind() != 0 {
		return nil, nil
	}
	return s.pack(), nil
}

// ReadHooks returns gavel's enabled hooks in a client's settings.
func ReadHooks(client string, text []byte) ([]InstalledHook, error) {
	if client == "opencode" {
		return readPlugin(text)
	}
	s, err := parseSettings(client, text)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(s.findOwn(), func(h InstalledHook) bool { return h.off }), nil
}

// settings is a client's settings file.
type settings struct {
	installer
	client   string
	text     hujson.Value
	root     document.JSON // the parsed text
	indented bool          // by two spaces, as most clients do
}

var byteOrderMark = []byte("\ufeff")

func parseSettings(client string, source []byte) (*settings, error) {
	source = bytes.TrimPrefix(source, byteOrderMark)
	if len(bytes.TrimSpace(source)) == 0 {
		source = []byte("{}")
	}
	s := &settings{installer: installers[client], client: client, indented: bytes.Equal(indentJSON(source), bytes.TrimSpace(source))}
	if err := s.read(source); err != nil {
		return nil, fmt.Errorf("not JSON that %s reads: %w", client, err)
	}
	return s, nil
}

// read parses a text, and rejects one that the client would read differently or not at all.
func (s *settings) read(text []byte) (err error) {
	plain := slices.Clone(text)
	if s.comments {
		plain, err = hujson.Standardize(plain)
	}
	if err == nil {
		s.root, err = document.ReadJSON(plain, document.Limits{Bytes: MaxInput, Depth: 256, Literals: true})
	}
	if err == nil {
		s.text, err = hujson.Parse(text)
	}
	return err
}

// patch changes one value in the text.
func (s *settings) patch(op, at, value string) error {
	path, err := document.Marshal(at)
	if err == nil {
		err = s.text.Patch(fmt.Appendf(nil, `[{"op": %q, "path": %s, "value": %s}]`, op, path, value))
	}
	if err != nil {
		return fmt.Errorf("%s cannot be changed: %w", at, err)
	}
	return s.read(s.text.Pack())
}

func (s *settings) pack() []byte {
	text := s.text.Pack()
	if s.indented {
		text = append(indentJSON(text), '\n')
	}
	return text
}

// indentJSON returns nil for a text with comments.
func indentJSON(text []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, bytes.TrimSpace(text), "", "  ") != nil {
		return nil
	}
	return b.Bytes()
}

// findOwn returns gavel's hooks.
func (s *settings) findOwn() (all []InstalledHook) {
	add := func(event string, element, v document.JSON, at ...string) {
		command := cmp.Or(v.Get("command").Text(), v.Get("bash").Text(), v.Get("powershell").Text(), v.At("action", "command").Text())
		if words := ownWords(s.client, command); words != nil {
			all = append(all, InstalledHook{event, command, words, at, string(element.Canonical()), v.Get("enabled").Kind() == document.False})
		}
	}
	hooks := s.root.Get("hooks")
	for i, element := range hooks.Elements() {
		add(element.Get("trigger").Text(), element, element, "hooks", strconv.Itoa(i))
	}
	for event, list := range hooks.Members() {
		for i, element := range list.Elements() {
			at := []string{"hooks", event.Text(), strconv.Itoa(i)}
			add(event.Text(), element, element, at...)
			for j, v := range element.Get("hooks").Elements() {
				add(event.Text(), element, v, append(slices.Clone(at), "hooks", strconv.Itoa(j))...)
			}
		}
	}
	return all
}

// removeOwn removes gavel's hooks, and groups that become empty.
func (s *settings) removeOwn() error {
	for own := s.findOwn(); len(own) > 0; own = s.findOwn() {
		at := own[0].at
		for n := len(at) - 1; n > 0 && (n == 3 || s.root.At(at[:n]...).Len() == 1); n-- { // a group without its member hooks is useless
			at = at[:n]
		}
		if err := s.patch("remove", string(document.PointerOf(at...)), "null"); err != nil {
			return err
		}
	}
	return nil
}

// opencode has no command hooks, so a plugin asks gavel. The plugin throws on any failure.
//
//go:embed opencode_plugin.js
var pluginSource string

const (
	pluginMark    = `// Written by "gavel hook install opencode", which also replaces it.`
	pluginCommand = "const command = "
)

func installPlugin(before []byte, in Installation) ([]byte, error) {
	if _, err := readPlugin(before); err != nil {
		return nil, err
	}
	line, err := document.Marshal(in.words("opencode"))
	return fmt.Appendf(nil, "%s\n%s%s\nconst limit = %d\n%s", pluginMark, pluginCommand, line, in.Limit.Milliseconds(), pluginSource), err
}

// readPlugin returns the hooks of the plugin, which are fixed in its source.
func readPlugin(text []byte) (all []InstalledHook, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	if !bytes.HasPrefix(text, []byte(pluginMark)) {
		return nil, errors.New("not a plugin that gavel has written; move it away")
	}
	_, line, _ := strings.Cut(string(text), pluginCommand)
	line, _, _ = strings.Cut(line, "\n")
	var words []string
	if json.Unmarshal([]byte(line), &words) != nil || len(words) < 3 {
		return nil, nil // it will be rewritten
	}
	for _, event := range InstalledEvents("opencode") {
		all = append(all, InstalledHook{Event: event, Words: words})
	}
	return all, nil
}
