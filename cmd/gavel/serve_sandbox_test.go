package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// killable is an operator's workflow whose scripts are killed by some data.
func killable(name string) string {
	const kills = "(d) => { if (d.hang) Array.prototype.indexOf.call({length: 2**53-1}, 1); return true }"
	return fmt.Sprintf(`{"name":%q,"initialState":"a","states":{"a":{"transitions":{"go":{"target":"a","validator":%q}}}}}`, name, kills+" // "+name)
}

// TestAnAgentsDataKillsAnOperatorsScripts: again and again. Then they are not run for that
// agent, which is told to wait and has nothing recorded, and all is well for others.
func TestAnAgentsDataKillsAnOperatorsScripts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := []string{"one", "two", "three", "four"}
	for _, name := range names {
		put(t, filepath.Join(dir, name+".json"), killable(name))
	}
	s := serveGavel(t, "--definitions", dir)
	s.untilReady()
	mallory, honest := s.token("mallory"), s.token("honest")
	advance := func(token, id, data string) (int, object) {
		return s.ask(token, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"go","data":`+data+`}`)
	}
	revision := func(token, id string) any {
		return s.must(token, http.MethodGet, "/v1/instances/"+id+"/history", "")["count"]
	}
	refused := map[int]int{}
	for _, name := range names {
		id := s.begin(mallory, name)
		for range 4 {
			status, answer := advance(mallory, id, `{"hang":true}`)
			refused[status]++
			if status == http.StatusServiceUnavailable && (answer["code"] != "busy" || !strings.Contains(fmt.Sprint(answer["hint"]), "Wait")) {
				t.Errorf("%v", answer)
			}
		}
		before := revision(mallory, id)
		if status, answer := advance(mallory, id, `{}`); status != http.StatusServiceUnavailable {
			t.Errorf("harmless data after that: %d %v", status, answer)
		}
		if after := revision(mallory, id); before == nil || fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("%v events, then %v", before, after)
		}
	}
	if refused[http.StatusOK] != 10 || refused[http.StatusServiceUnavailable] != 6 {
		t.Errorf("the agent got %v, want 10 rejections and 6 times busy", refused)
	}
	for _, name := range names {
		_, answer := advance(honest, s.begin(honest, name), `{}`)
		if d, ok := answer["decision"].(object); !ok || d["applied"] != true {
			t.Errorf("an honest move of %s: %v", name, answer)
		}
	}
	if status, answer := s.ask("", http.MethodGet, "/readyz", ""); status != http.StatusOK {
		t.Errorf("not ready: %v", answer)
	}
}
