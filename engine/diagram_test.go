package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

func (b *bench) draw(p engine.Principal, req engine.DiagramRequest) engine.DiagramResult {
	b.t.Helper()
	d, err := b.Diagram(b.t.Context(), p, req)
	if err != nil {
		b.t.Fatal(err)
	}
	return d
}

// hasElement reports whether a drawing has a group with a class and a text, on one line.
func hasElement(svg, class, text string) bool {
	for line := range strings.SplitSeq(svg, "\n") {
		if strings.HasPrefix(line, "<g class=") && strings.Contains(line[:strings.Index(line, ">")], class) && strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// TestDrawingOfAnInstance: the path is that of the moves that still count, refusals are those of requests, and the
// next actions those of the caller.
func TestDrawingOfAnInstance(t *testing.T) {
	b := newBench(t)
	b.define(operator, demanding)
	id := b.start(agent, "demanding", `{}`).ID
	for range 3 {
		b.refused(agent, id, "go", `{}`, "required_field")
	}
	b.refused(agent, id, "fly", `{}`, "illegal_action") // an action that the drawing does not have
	if _, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"}); err != nil {
		t.Fatal(err)
	}
	before := b.draw(agent, engine.DiagramRequest{ID: id, Format: "svg"})
	if !hasElement(before.Diagram, "gavel-current", `data-state="a"`) || !hasElement(before.Diagram, "gavel-next", ">go</text>") || before.Partial {
		t.Errorf("before the move: %v %s", before.Partial, before.Diagram)
	}
	if !strings.Contains(before.Diagram, "<title>3 refusals</title>") || strings.Count(before.Diagram, "refusals</title>") != 1 || strings.Contains(before.Diagram, "fly") {
		t.Errorf("refusals: %s", before.Diagram)
	}
	b.moved(agent, id, "go", `{"comments":"fine"}`, "b")
	after := b.draw(agent, engine.DiagramRequest{ID: id, Format: "svg"}).Diagram
	if !hasElement(after, "gavel-current", `data-state="b"`) || !hasElement(after, "gavel-visited", `data-state="a"`) || !hasElement(after, "gavel-path", ">go</text>") {
		t.Errorf("after the move: %s", after)
	}
	if text := b.draw(agent, engine.DiagramRequest{ID: id, Format: "text"}).Diagram; !strings.HasPrefix(text, "  ○ a\n  │ go\n  ● b") {
		t.Errorf("text: %s", text)
	}
	b.undo(operator, id, "a")
	if undone := b.draw(agent, engine.DiagramRequest{ID: id, Format: "svg"}).Diagram; strings.Contains(undone, `<g class="gavel-edge gavel-path`) || hasElement(undone, "gavel-visited", "data-state") {
		t.Errorf("the path holds a move that was undone: %s", undone)
	}
	// Others see what they see of the instance: nothing.
	if _, err := b.Diagram(t.Context(), other, engine.DiagramRequest{ID: id, Format: "svg"}); engine.CodeOf(err) != engine.CodeUnknownInstance {
		t.Errorf("another agent: %v", err)
	}
}

// TestDrawingReadsTheNewestEvents: of a long history, the newest moves and refusals are drawn, and the answer says so.
func TestDrawingReadsTheNewestEvents(t *testing.T) {
	b := newBenchOn(t, memory.New())
	b.define(agent, walkFlow)
	id := b.start(agent, "walk", `{"n":0}`).ID
	b.refused(agent, id, "back", `{}`, "illegal_action")
	if d := b.draw(agent, engine.DiagramRequest{ID: id, Format: "svg"}); d.Partial {
		t.Error("a short history is partial")
	}
	for i := range 1001 {
		b.moved(agent, id, "go", fmt.Sprintf(`{"n":%d}`, i), "b")
		b.moved(agent, id, "back", `{}`, "a")
	}
	d := b.draw(agent, engine.DiagramRequest{ID: id, Format: "svg"})
	if !d.Partial || !hasElement(d.Diagram, "gavel-path", ">go</text>") {
		t.Errorf("partial %v: %s", d.Partial, d.Diagram)
	}
	if d := b.draw(agent, engine.DiagramRequest{ID: id}); d.Partial || d.Format != "mermaid" {
		t.Errorf("mermaid: %+v", d)
	}
}

func TestDrawingOfTraffic(t *testing.T) {
	b := newBench(t)
	b.define(operator, demanding)
	id := b.start(agent, "demanding", `{}`).ID
	for range 3 {
		b.refused(agent, id, "go", `{}`, "required_field")
	}
	since := b.now.Add(time.Millisecond)
	b.moved(agent, id, "go", `{"comments":"fine"}`, "b")
	all := engine.DiagramRequest{Name: "demanding", Format: "svg", Since: b.now.Add(-time.Hour)}
	if d := b.draw(operator, all); !hasElement(d.Diagram, "gavel-t4", "4 asked, 75% refused") || d.Partial {
		t.Errorf("all: %v %s", d.Partial, d.Diagram)
	}
	if d := b.draw(operator, engine.DiagramRequest{Name: "demanding", Format: "svg", Since: since}); !hasElement(d.Diagram, "gavel-edge", ">1 asked<") {
		t.Errorf("since: %s", d.Diagram)
	}
	if d := b.draw(other, all); strings.Contains(d.Diagram, "asked") {
		t.Errorf("another agent sees the traffic of the first: %s", d.Diagram)
	}
	b.define(operator, strings.Replace(demanding, `"name":"demanding",`, `"name":"demanding","description":"two",`, 1))
	if d := b.draw(operator, engine.DiagramRequest{Name: "demanding", Version: 1, Format: "dot"}); !strings.Contains(d.Diagram, "demanding") {
		t.Errorf("version 1: %+v", d)
	}
	for name, req := range map[string]engine.DiagramRequest{
		"an unknown version":         {Name: "demanding", Version: 9},
		"a version of an instance":   {ID: id, Version: 1},
		"the traffic of an instance": {ID: id, Since: since},
		"an unknown format":          {ID: id, Format: "png"},
	} {
		if _, err := b.Diagram(t.Context(), operator, req); err == nil {
			t.Errorf("%s is drawn", name)
		}
	}
}
