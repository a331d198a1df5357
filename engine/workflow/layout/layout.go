// Package layout places boxes and arrows on a plane: a layered drawing from top to bottom.
//
// It promises:
//
//   - The result is a pure function of the graph, on every platform: no randomness, no maps in iteration.
//   - Boxes never overlap one another, and neither do labels. An arrow passes through no box; it may pass behind
//     the label of another arrow.
//   - Everything lies between the origin and the size that it returns.
//
// It must never know what the boxes mean, and imports nothing of gavel.
//
// The method is Sugiyama's: reverse arrows until no cycle is left, assign layers, split long arrows, reduce crossings
// by sweeps, then assign coordinates. Labels have layers of their own, so that they get space like boxes.
package layout

import (
	"math"
	"slices"
)

// Graph is what is placed.
type Graph struct {
	Nodes []Size
	// Edges are arrows between nodes, by index. A loop's label is placed to the right of its node.
	Edges []Edge
	// First is the node that is placed at the top, with room for a mark above it; -1 for none.
	First int
}

// Size is the size of a box.
type Size struct{ W, H float64 }

// Edge is an arrow and the size of its label.
type Edge struct {
	From, To int
	Label    Size
}

// Point is a place on the plane; Y grows downwards.
type Point struct{ X, Y float64 }

// Rect is a box; X and Y are its upper left corner.
type Rect struct{ X, Y, W, H float64 }

// Route is the way of an arrow.
type Route struct {
	// Points lead from the start of the arrow to its end. Two points with the same X are joined by a straight line,
	// others by a curve that is vertical at both ends and stays between them. A loop's points are the four control
	// points of one Bézier curve.
	Points []Point
	Loop   bool
	Label  Rect
}

// Drawing is the result.
type Drawing struct {
	W, H  float64
	Nodes []Rect
	Edges []Route
	// Mark is the way of the arrow from the lower end of the mark to the first node.
	Mark []Point
}

// Distances, in the unit of the sizes.
const (
	nodeGap  = 28 // between boxes of a layer
	lineGap  = 14 // between lines, and between lines and labels
	layerGap = 22 // between layers, at least
	loopGap  = 30 // between a box and the label of its loop
	portGap  = 20 // between arrows at one side of a box
	partGap  = 48 // between parts that are not connected
	maxSlope = 44 // what steep lines add to the distance of layers, at most
)

// MarkSize is the width and height of the mark above the first node.
const MarkSize = 14

const none = -1

// sweeps is how often the order of all layers is improved, at most.
const sweeps = 24

// Place places a graph.
func Place(g Graph) Drawing { return place(g, sweeps) }

func place(g Graph, sweeps int) Drawing {
	out := Drawing{Nodes: make([]Rect, len(g.Nodes)), Edges: make([]Route, len(g.Edges))}
	parts := g.split()
	width, all := 0.0, 0.0
	placed := make([]*part, len(parts))
	for i, nodes := range parts {
		placed[i] = placePart(g, nodes, sweeps)
		width = max(width, placed[i].width)
		all += placed[i].width + partGap
	}
	width = max(width, min(all, 1100))
	x, y, shelf := 0.0, 0.0, 0.0
	for _, p := range placed {
		if x > 0 && x+p.width > width {
			x, y, shelf = 0, y+shelf+partGap, 0
		}
		p.copyTo(&out, x, y)
		out.W, out.H = max(out.W, x+p.width), max(out.H, y+p.height)
		x, shelf = x+p.width+partGap, max(shelf, p.height)
	}
	return out
}

// split returns the connected parts, the first node's first, others in the order of their nodes.
func (g Graph) split() [][]int {
	root := make([]int, len(g.Nodes))
	for i := range root {
		root[i] = i
	}
	find := func(n int) int {
		for root[n] != n {
			root[n] = root[root[n]]
			n = root[n]
		}
		return n
	}
	for _, e := range g.Edges {
		a, b := find(e.From), find(e.To)
		root[max(a, b)] = min(a, b)
	}
	index := make([]int, len(g.Nodes))
	var parts [][]int
	add := func(n int) {
		r := find(n)
		if index[r] == 0 {
			parts = append(parts, nil)
			index[r] = len(parts)
		}
		parts[index[r]-1] = append(parts[index[r]-1], n)
	}
	if g.First != none {
		add(g.First)
	}
	for n := range g.Nodes {
		if n != g.First {
			add(n)
		}
	}
	return parts
}

// part is a connected part while it is placed.
type part struct {
	g     Graph
	nodes []int // of the graph, the root first
	links []link
	items []item
	order [][]int // by layer: items from left to right
	at    []int   // by item: its position in its layer
	x     []float64
	tops  []float64 // by layer
	highs []float64 // by layer: its height

	width, height float64
}

// link is an edge without its direction: upper is above lower.
type link struct {
	edge         int // of the graph; none for the mark's
	upper, lower int // items
	reversed     bool
	label        int   // the layer of its label
	chain        []int // items from upper to lower
}

type kind int

const (
	box kind = iota
	bend
	label
	mark
)

// item is something with a place in a layer.
type item struct {
	kind        kind
	of          int // the node or the link
	layer       int
	left, right float64 // of its centre line
	height      float64
	loops       []int // edges
	up, down    []joint
}

// joint is one half of a segment between items of neighbouring layers.
type joint struct {
	to     int
	port   float64 // from the item's centre line to the segment's end here
	weight float64
}

func placePart(g Graph, nodes []int, sweeps int) *part {
	p := &part{g: g, nodes: nodes}
	p.addBoxes()
	p.breakCycles()
	p.assignLayers()
	p.splitLinks()
	p.orderLayers(sweeps)
	p.assignPorts()
	p.assignX()
	p.assignY()
	return p
}

func (p *part) addBoxes() {
	at := make(map[int]int, len(p.nodes))
	for i, n := range p.nodes {
		size := p.g.Nodes[n]
		at[n] = i
		p.items = append(p.items, item{kind: box, of: n, left: size.W / 2, right: size.W / 2, height: size.H})
	}
	for i, e := range p.g.Edges {
		from, ok := at[e.From]
		if !ok {
			continue
		}
		to := at[e.To]
		if from != to {
			p.links = append(p.links, link{edge: i, upper: from, lower: to})
			continue
		}
		b := &p.items[from]
		b.loops = append(b.loops, i)
		b.right = max(b.right, p.g.Nodes[e.From].W/2+loopGap+e.Label.W)
		tall := 0.0
		for _, l := range b.loops {
			tall += p.g.Edges[l].Label.H
		}
		b.height = max(b.height, tall)
	}
	if p.nodes[0] == p.g.First {
		p.items = append(p.items, item{kind: mark, left: MarkSize / 2, right: MarkSize / 2, height: MarkSize})
		p.links = append(p.links, link{edge: none, upper: len(p.items) - 1, lower: 0})
	}
}

// breakCycles turns the links that lead back, as a depth-first search from the first box finds them, and those that
// lead into the first node.
func (p *part) breakCycles() {
	out := make([][]int, len(p.items))
	for i, l := range p.links {
		out[l.upper] = append(out[l.upper], i)
	}
	const fresh, open, done = 0, 1, 2
	state, next := make([]int, len(p.items)), make([]int, len(p.items))
	for root := range p.items {
		if state[root] != fresh {
			continue
		}
		stack := []int{root}
		state[root] = open
		for len(stack) > 0 {
			at := stack[len(stack)-1]
			if next[at] == len(out[at]) {
				state[at] = done
				stack = stack[:len(stack)-1]
				continue
			}
			l := &p.links[out[at][next[at]]]
			next[at]++
			switch state[l.lower] {
			case open:
				l.reversed = true
			case fresh:
				state[l.lower] = open
				stack = append(stack, l.lower)
			}
		}
	}
	for i := range p.links {
		l := &p.links[i]
		if l.edge != none && l.lower == 0 && p.nodes[0] == p.g.First {
			l.reversed = true
		}
		if l.reversed {
			l.upper, l.lower = l.lower, l.upper
		}
	}
}

// length returns how many layers a link spans at least: labels need one between those of boxes.
func (l link) length() int {
	if l.edge == none {
		return 1
	}
	return 2
}

// assignLayers puts every item as high as its links allow, then shortens links where that moves no other item.
func (p *part) assignLayers() {
	above, below := make([][]int, len(p.items)), make([][]int, len(p.items))
	for i, l := range p.links {
		above[l.lower] = append(above[l.lower], i)
		below[l.upper] = append(below[l.upper], i)
	}
	for i := range p.nodes {
		p.items[i].layer = len(p.items) - len(p.nodes) // below the mark: boxes are in every second layer
	}
	var sorted []int
	waiting := make([]int, len(p.items))
	for i := range p.items {
		if waiting[i] = len(above[i]); waiting[i] == 0 {
			sorted = append(sorted, i)
		}
	}
	for k := 0; k < len(sorted); k++ {
		for _, l := range below[sorted[k]] {
			to := p.links[l].lower
			p.items[to].layer = max(p.items[to].layer, p.items[sorted[k]].layer+p.links[l].length())
			if waiting[to]--; waiting[to] == 0 {
				sorted = append(sorted, to)
			}
		}
	}
	for range 8 {
		moved := false
		for _, i := range slices.Backward(sorted) {
			low := math.MaxInt
			for _, l := range below[i] {
				low = min(low, p.items[p.links[l].lower].layer-p.links[l].length())
			}
			high := 0
			for _, l := range above[i] {
				high = max(high, p.items[p.links[l].upper].layer+p.links[l].length())
			}
			to := p.items[i].layer
			if len(below[i]) > len(above[i]) {
				to = low
			} else if len(above[i]) > len(below[i]) {
				to = high
			}
			moved = moved || to != p.items[i].layer
			p.items[i].layer = to
		}
		if !moved {
			break
		}
	}
	least := math.MaxInt
	for i := range p.items {
		least = min(least, p.items[i].layer)
	}
	for i := range p.items {
		p.items[i].layer -= least
	}
}

// splitLinks gives every link an item in each layer that it passes, one of them its label.
func (p *part) splitLinks() {
	layers, parity := 0, 0
	for i := range p.items {
		layers = max(layers, p.items[i].layer+1)
	}
	if len(p.nodes) > 0 {
		parity = p.items[0].layer % 2
	}
	load := make([]float64, layers)
	for i := range p.items {
		load[p.items[i].layer] += p.items[i].left + p.items[i].right
	}
	for i := range p.links {
		l := &p.links[i]
		if l.edge == none {
			continue
		}
		size := p.g.Edges[l.edge].Label
		from, to := p.items[l.upper].layer, p.items[l.lower].layer
		// The layer with the least labels, of equal ones that next to where the arrow starts.
		best := none
		for layer := from + 1; layer < to; layer++ {
			if layer%2 != parity && (best == none || load[layer] < load[best] || l.reversed && load[layer] == load[best]) {
				best = layer
			}
		}
		l.label = best
		load[best] += size.W + lineGap
	}
	for i := range p.links {
		l := &p.links[i]
		l.chain = append(l.chain, l.upper)
		for layer := p.items[l.upper].layer + 1; layer < p.items[l.lower].layer; layer++ {
			it := item{kind: bend, of: i, layer: layer}
			if l.edge != none && layer == l.label {
				size := p.g.Edges[l.edge].Label
				it.kind, it.left, it.right, it.height = label, size.W/2, size.W/2, size.H
			}
			l.chain = append(l.chain, len(p.items))
			p.items = append(p.items, it)
		}
		l.chain = append(l.chain, l.lower)
		for k := 1; k < len(l.chain); k++ {
			p.join(l.chain[k-1], l.chain[k])
		}
	}
}

// join connects two items. Long lines should be straight more than short ones.
func (p *part) join(upper, lower int) {
	weight := 1.0
	for _, i := range []int{upper, lower} {
		if k := p.items[i].kind; k == bend || k == label {
			weight *= 2
		}
	}
	p.items[upper].down = append(p.items[upper].down, joint{to: lower, weight: weight})
	p.items[lower].up = append(p.items[lower].up, joint{to: upper, weight: weight})
}

// copyTo adds the placed part to a drawing, moved by x and y.
func (p *part) copyTo(out *Drawing, x, y float64) {
	for i := range p.items {
		if it := &p.items[i]; it.kind == box {
			size := p.g.Nodes[it.of]
			out.Nodes[it.of] = Rect{x + p.x[i] - size.W/2, y + p.middle(i) - size.H/2, size.W, size.H}
			p.copyLoops(out, it, out.Nodes[it.of])
		}
	}
	for _, l := range p.links {
		var points []Point
		for k, i := range l.chain {
			it := &p.items[i]
			upper, lower := x+p.x[i], x+p.x[i]
			top, bottom := y+p.tops[it.layer], y+p.tops[it.layer]+p.highs[it.layer]
			half := it.height / 2
			if it.kind == box {
				half = p.g.Nodes[it.of].H / 2
			}
			if k > 0 {
				upper += portTo(it.up, l.chain[k-1])
				points = append(points, Point{upper, top})
			}
			if k == 0 {
				lower += portTo(it.down, l.chain[1])
				points = append(points, Point{lower, y + p.middle(i) + half})
			}
			if k == len(l.chain)-1 {
				points = append(points, Point{upper, y + p.middle(i) - half})
			} else {
				points = append(points, Point{lower, bottom})
			}
			if it.kind == label {
				out.Edges[l.edge].Label = Rect{lower - it.left, y + p.middle(i) - half, 2 * it.left, it.height}
			}
		}
		points = simplify(points)
		if l.edge == none {
			out.Mark = points
			continue
		}
		if l.reversed {
			slices.Reverse(points)
		}
		out.Edges[l.edge].Points = points
	}
}

func (p *part) copyLoops(out *Drawing, it *item, r Rect) {
	tall := 0.0
	for _, l := range it.loops {
		tall += p.g.Edges[l].Label.H
	}
	middle := r.Y + r.H/2
	top := middle - tall/2
	for _, l := range it.loops {
		size := p.g.Edges[l].Label
		const reach, open = loopGap, 9.0
		out.Edges[l] = Route{
			Loop:   true,
			Points: []Point{{r.X + r.W, middle - open}, {r.X + r.W + reach, middle - open - 5}, {r.X + r.W + reach, middle + open + 5}, {r.X + r.W, middle + open}},
			Label:  Rect{r.X + r.W + loopGap, top, size.W, size.H},
		}
		top += size.H
	}
}

func portTo(joints []joint, to int) float64 {
	for _, j := range joints {
		if j.to == to {
			return j.port
		}
	}
	return 0
}

// middle returns the Y of an item's centre.
func (p *part) middle(i int) float64 {
	layer := p.items[i].layer
	return p.tops[layer] + p.highs[layer]/2
}

// simplify leaves out repeated points, and the middle ones of a vertical line.
func simplify(points []Point) []Point {
	out := points[:0]
	for _, at := range points {
		n := len(out)
		if n > 0 && out[n-1] == at {
			continue
		}
		if n > 1 && out[n-1].X == at.X && out[n-2].X == at.X {
			out[n-1] = at
			continue
		}
		out = append(out, at)
	}
	return out
}
