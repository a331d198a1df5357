package hook

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// opencode has no hooks that are commands: a plugin asks gavel, and throws whatever goes wrong.
//
//go:embed opencode_plugin.js
var pluginSource string

const (
	pluginMark    = `// Written by "gavel hook install opencode", which also replaces it.`
	pluginCommand = "const command = "
)

var errForeignPlugin = errors.New("not a plugin that gavel has written; move it away")

func installPlugin(before []byte, in Installation) ([]byte, error) {
	if len(before) > 0 && !bytes.HasPrefix(before, []byte(pluginMark)) {
		return nil, errForeignPlugin
	}
	words := append([]string{in.Program, "hook", "opencode"}, in.Args...)
	line, err := encodePlain(append(words, "--limit", fmt.Sprintf("%ds", countSeconds(in.Limit))))
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("%s\n%s%s\nconst limit = %d\n", pluginMark, pluginCommand, line, in.Limit.Milliseconds())
	return []byte(head + pluginSource), nil
}

func uninstallPlugin(before []byte) ([]byte, error) {
	if len(before) > 0 && !bytes.HasPrefix(before, []byte(pluginMark)) {
		return nil, errForeignPlugin
	}
	return nil, nil
}

// readPlugin lists the hooks of the plugin, which are those that its source has.
func readPlugin(text []byte) (all []InstalledHook, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	if !bytes.HasPrefix(text, []byte(pluginMark)) {
		return nil, errForeignPlugin
	}
	var own []string
	var limit int64
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, pluginCommand); ok && own == nil {
			err = json.Unmarshal([]byte(list), &own)
		}
		if ms, ok := strings.CutPrefix(line, "const limit = "); ok && limit == 0 {
			err = errors.Join(err, json.Unmarshal([]byte(ms), &limit))
		}
	}
	if err != nil || len(own) < 3 {
		return nil, errors.New("the plugin has no command; install it again")
	}
	for _, event := range pluginEvents {
		all = append(all, InstalledHook{Event: event, Own: own, Timeout: time.Duration(limit) * time.Millisecond, FailClosed: true})
	}
	return all, nil
}

var pluginEvents = []string{"tool.execute.before", "tool.execute.after", "session.created", "session.idle"}
