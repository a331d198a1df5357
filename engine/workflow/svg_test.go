package workflow_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

func drawSVG(t testing.TB, d *workflow.Definition, m workflow.Marks) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.WriteSVG(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// definitionsOfTree returns every definition in the repository that parses, by its path.
func definitionsOfTree(t *testing.T) map[string]*workflow.Definition {
	t.Helper()
	const root = "../.."
	out := map[string]*workflow.Definition{}
	for _, folder := range []string{"testdata", "cmd/gavel/internal/author/templates", "internal/modules", "packaging"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Ext(path) != ".json" && filepath.Ext(path) != ".yaml" {
				return err
			}
			doc, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(doc, []byte("initialState")) {
				return err
			}
			d, err := workflow.ParseWithFiles(path, doc, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(filepath.Dir(path), name)) })
			if err != nil {
				return nil //nolint:nilerr // a fixture that is wrong on purpose
			}
			name, _ := filepath.Rel(root, path)
			out[filepath.ToSlash(name)] = d
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if len(out) < 40 {
		t.Fatalf("only %d definitions found", len(out))
	}
	return out
}

// TestSVG compares the drawing of every definition, without its style sheet, with a golden file.
func TestSVG(t *testing.T) {
	check := func(name string, d *workflow.Definition, m workflow.Marks) {
		t.Helper()
		got := drawSVG(t, d, m)
		if again := drawSVG(t, d, m); got != again {
			t.Errorf("%s: two drawings differ", name)
		}
		if err := checkSVG(got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		golden(t, "svg/"+name+".svg", strings.Replace(got, workflow.SVGStyle, "", 1))
	}
	for path, d := range definitionsOfTree(t) {
		check(regexp.MustCompile(`[^A-Za-z0-9.-]+`).ReplaceAllString(path, "_"), d, workflow.Marks{})
	}
	review := parse(t, string(examples(t)["document-review.json"]))
	check("marks-instance", review, workflow.Marks{
		Current: "reviewing", Visited: []string{"draft", "reviewing"}, Path: []workflow.Move{{From: "draft", Action: "submit", To: "reviewing"}},
		Next: []string{"approve", "reject"}, Refusals: []workflow.Refusals{{State: "draft", Action: "submit", Count: 12}, {State: "reviewing", Action: "approve", Count: 3}},
	})
	check("marks-traffic", review, workflow.Marks{Traffic: []workflow.Traffic{
		{State: "draft", Action: "submit", Asked: 12345, Refused: 40}, {State: "reviewing", Action: "approve", Asked: 900, Refused: 333}, {State: "reviewing", Action: "reject", Asked: 2},
	}})
	check("hostile", parse(t, hostile), workflow.Marks{Current: "end", Visited: []string{"[*]", "unknown"}, Next: []string{"a --> b"}})
	check("list", manyStates(t, 2000), workflow.Marks{Current: "state 1999", Visited: []string{"state 0"}})
}

// manyStates returns a ring of n states.
func manyStates(t testing.TB, n int) *workflow.Definition {
	t.Helper()
	d := &workflow.Definition{Name: "many", InitialState: "state 0", States: map[string]*workflow.State{}}
	for i := range n {
		name := fmt.Sprintf("state %d", i)
		next := workflow.Route{Target: fmt.Sprintf("state %d", (i+1)%n)}
		d.StateNames = append(d.StateNames, name)
		d.States[name] = &workflow.State{Name: name, Actions: []string{"go"}, Transitions: map[string]*workflow.Transition{"go": {Action: "go", Routes: []workflow.Route{next}}}}
	}
	return d
}

// checkSVG reports what is wrong with a drawing: it must be well-formed, have only the elements and attributes that
// are known to be inert, and have all its boxes, texts and points inside its view box.
func checkSVG(doc string) error {
	allowed := map[string]string{
		"svg": "xmlns class role width height viewBox", "title": "", "desc": "", "style": "", "g": "class data-state data-from data-to transform",
		"rect": "class x y width height rx", "circle": "class cx cy r", "path": "class d", "text": "class x y",
	}
	var width, height float64
	type at struct{ x, y float64 }
	moved := []at{{}}
	texts := 0
	for d := xml.NewDecoder(strings.NewReader(doc)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if texts == 0 {
				return errors.New("there is no text")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("not XML: %w", err)
		}
		switch e := token.(type) {
		case xml.EndElement:
			moved = moved[:len(moved)-1]
		case xml.StartElement:
			attrs := map[string]string{}
			for _, a := range e.Attr {
				if !strings.Contains(" "+allowed[e.Name.Local]+" ", " "+a.Name.Local+" ") {
					return fmt.Errorf("<%s> has the attribute %s", e.Name.Local, a.Name.Local)
				}
				attrs[a.Name.Local] = a.Value
			}
			if _, ok := allowed[e.Name.Local]; !ok {
				return fmt.Errorf("there is an element <%s>", e.Name.Local)
			}
			off := moved[len(moved)-1]
			number := func(name string) float64 {
				n, _ := strconv.ParseFloat(attrs[name], 64)
				return n
			}
			var points []at
			switch e.Name.Local {
			case "svg":
				width, height = number("width"), number("height")
			case "g":
				var by at
				if n, _ := fmt.Sscanf(attrs["transform"], "translate(%f %f)", &by.x, &by.y); n == 2 {
					off = at{off.x + by.x, off.y + by.y}
				}
			case "rect":
				points = []at{{number("x"), number("y")}, {number("x") + number("width"), number("y") + number("height")}}
			case "circle":
				points = []at{{number("cx") - number("r"), number("cy") - number("r")}, {number("cx") + number("r"), number("cy") + number("r")}}
			case "text":
				texts++
				points = []at{{number("x"), number("y") - 12}, {number("x"), number("y")}}
			case "path":
				ends, err := pathPoints(attrs["d"])
				if err != nil {
					return err
				}
				for _, p := range ends {
					points = append(points, at{p[0], p[1]})
				}
			}
			for _, p := range points {
				if x, y := off.x+p.x, off.y+p.y; x < 0 || y < 0 || x > width || y > height {
					return fmt.Errorf("<%s> %v is outside %g x %g: %g, %g", e.Name.Local, attrs, width, height, x, y)
				}
			}
			moved = append(moved, off)
		}
	}
}

var pathPattern = regexp.MustCompile(`([MVCLlvhz])([^A-Za-z]*)`)

// pathPoints returns the absolute points of a path, controls of curves included.
func pathPoints(d string) (out [][2]float64, _ error) {
	var x, y float64
	for _, m := range pathPattern.FindAllStringSubmatch(d, -1) {
		var n []float64
		for _, f := range strings.Fields(m[2]) {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return nil, fmt.Errorf("path %q: %w", d, err)
			}
			n = append(n, v)
		}
		add := func(px, py float64) { x, y = px, py; out = append(out, [2]float64{x, y}) }
		switch {
		case m[1] == "z" && len(n) == 0:
		case m[1] == "M" && len(n) == 2:
			add(n[0], n[1])
		case m[1] == "V" && len(n) == 1:
			add(x, n[0])
		case m[1] == "C" && len(n) == 6:
			for i := 0; i < 6; i += 2 {
				add(n[i], n[i+1])
			}
		case m[1] == "l" && len(n) == 2:
			add(x+n[0], y+n[1])
		case m[1] == "v" && len(n) == 1:
			add(x, y+n[0])
		case m[1] == "h" && len(n) == 1:
			add(x+n[0], y)
		default:
			return nil, fmt.Errorf("path %q: %s with %d numbers", d, m[1], len(n))
		}
	}
	if len(out) < 2 {
		return nil, fmt.Errorf("path %q has no line", d)
	}
	return out, nil
}

// TestDrawingsInDocs compares the drawings in the docs with those of the templates that the page describes.
func TestDrawingsInDocs(t *testing.T) {
	all := definitionsOfTree(t)
	for _, name := range []string{"bugfix", "release", "careful-ops"} {
		d := all["cmd/gavel/internal/author/templates/"+name+"/"+name+".yaml"]
		if d == nil {
			t.Errorf("there is no template %s", name)
			continue
		}
		golden(t, "../../../../docs/drawings/"+name+".svg", drawSVG(t, d, workflow.Marks{}))
	}
}
