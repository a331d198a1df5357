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

// Graph is what is placed. Between two nodes there is at most one edge in each direction, and a node has at most one
// loop. Searches begin with the first node, so that it is at the top.
type Graph struct {
	Nodes []Size
	Edges []Edge
}

// Size is the size of a box.
type Size struct{ W, H float64 }

// Edge is an arrow between nodes, by index, and the size of its label.
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
	// points of one Bézier curve, to the right of its node.
	Points []Point
	Loop   bool
	Label  Rect
}

// Drawing is the result.
type Drawing struct {
	W, H  float64
	Nodes []Rect
	Edges []Route
}

// Distances, in the unit of the sizes.
const (
	nodeGap  = 28   // between boxes of a layer
	lineGap  = 14   // between lines, and between lines and labels
	layerGap = 22   // between layers, at least
	loopGap  = 30   // between a box and the label of its loop
	loopOpen = 9    // between the middle of a box and each end of its loop
	portGap  = 20   // between arrows at one side of a box, at most
	corner   = 12   // between the outer arrows and the end of that side
	maxSlope = 44   // what steep lines add to the distance of layers, at most
	slope    = 0.09 // what they add for their width
)

const (
	none   = -1
	sweeps = 24 // how often the order of all layers is improved, at most
)

// Place places a graph.
func Place(g Graph) Drawing { return place(g, sweeps) }

func place(g Graph, sweeps int) Drawing {
	p := &plan{Graph: g}
	p.addBoxes()
	p.breakCycles()
	p.assignLayers()
	p.splitLinks()
	p.orderLayers(sweeps)
	p.assignPorts()
	p.assignX()
	p.assignY()
	return p.draw()
}

// plan is a drawing in progress.
type plan struct {
	Graph
	items []item // the nodes first
	links []link
	order [][]int   // by layer: items from left to right
	at    []int     // by item: its position in its layer
	x     []float64 // by item: its centre line
	tops  []float64 // by layer
	highs []float64 // by layer: its height

	width, height float64
}

// link is an edge without its direction: it goes down.
type link struct {
	edge         int
	upper, lower int // items
	reversed     bool
	label        int   // the layer of its label
	chain        []int // items from upper to lower
}

// item is something with a place in a layer: a node, a label, or a bend of a link.
type item struct {
	bends       bool // it belongs to a link
	layer       int
	left, right float64 // of its centre line
	height      float64
	loop        int // the edge, none for none
	up, down    []joint
}

// joint is one half of a segment between items of neighbouring layers.
type joint struct {
	to     int
	port   float64 // from the item's centre line to the segment's end here
	weight float64
}

func (p *plan) addBoxes() {
	for _, size := range p.Nodes {
		p.items = append(p.items, item{left: size.W / 2, right: size.W / 2, height: size.H, loop: none})
	}
	for i, e := range p.Edges {
		if e.From != e.To {
			p.links = append(p.links, link{edge: i, upper: e.From, lower: e.To})
			continue
		}
		b := &p.items[e.From]
		b.loop, b.right, b.height = i, b.left+loopGap+e.Label.W, max(b.height, e.Label.H)
	}
}

// breakCycles turns the links that lead back, as a depth-first search finds them.
func (p *plan) breakCycles() {
	below := p.listLinks(false)
	const fresh, open, done = 0, 1, 2
	state, next := make([]int, len(p.items)), make([]int, len(p.items))
	for root := range p.items {
		if state[root] != fresh {
			continue
		}
		state[root] = open
		for stack := []int{root}; len(stack) > 0; {
			at := stack[len(stack)-1]
			if next[at] == len(below[at]) {
				state[at] = done
				stack = stack[:len(stack)-1]
				continue
			}
			l := &p.links[below[at][next[at]]]
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
		if l := &p.links[i]; l.reversed {
			l.upper, l.lower = l.lower, l.upper
		}
	}
}

// listLinks returns for every item the links that end at it from above, or from below.
func (p *plan) listLinks(above bool) [][]int {
	out := make([][]int, len(p.items))
	for i, l := range p.links {
		at := l.upper
		if above {
			at = l.lower
		}
		out[at] = append(out[at], i)
	}
	return out
}

// assignLayers puts every item as high as its links allow, then shortens links where that moves no other item. Boxes
// are in every second layer, labels between them.
func (p *plan) assignLayers() {
	above, below := p.listLinks(true), p.listLinks(false)
	var sorted []int
	waiting := make([]int, len(p.items))
	single := 0
	for i := range p.items {
		if waiting[i] = len(above[i]); waiting[i] == 0 {
			sorted = append(sorted, i)
			if len(below[i]) == 0 { // connected to nothing: they fill rows at the side
				p.items[i].layer = 2 * (single / 6)
				single++
			}
		}
	}
	for k := 0; k < len(sorted); k++ {
		for _, l := range below[sorted[k]] {
			to := p.links[l].lower
			p.items[to].layer = max(p.items[to].layer, p.items[sorted[k]].layer+2)
			if waiting[to]--; waiting[to] == 0 {
				sorted = append(sorted, to)
			}
		}
	}
	for range 8 {
		for _, i := range slices.Backward(sorted) {
			low, high := math.MaxInt, 0
			for _, l := range below[i] {
				low = min(low, p.items[p.links[l].lower].layer-2)
			}
			for _, l := range above[i] {
				high = max(high, p.items[p.links[l].upper].layer+2)
			}
			if len(below[i]) > len(above[i]) {
				p.items[i].layer = low
			} else if len(above[i]) > len(below[i]) {
				p.items[i].layer = high
			}
		}
	}
}

// splitLinks gives every link an item in each layer that it passes, one of them its label.
func (p *plan) splitLinks() {
	layers := 0
	for i := range p.items {
		layers = max(layers, p.items[i].layer+1)
	}
	p.order = make([][]int, layers)
	load := make([]float64, layers)
	for i := range p.links {
		// The layer with the least labels, of equal ones that next to where the arrow starts.
		l := &p.links[i]
		first, last := p.items[l.upper].layer, p.items[l.lower].layer
		l.label = first + 1
		for layer := l.label; layer < last; layer += 2 {
			if load[layer] < load[l.label] || l.reversed && load[layer] == load[l.label] {
				l.label = layer
			}
		}
		size := p.Edges[l.edge].Label
		load[l.label] += size.W + lineGap
		l.chain = append(l.chain, l.upper)
		for layer := first + 1; layer < last; layer++ {
			it := item{bends: true, layer: layer, loop: none}
			if layer == l.label {
				it.left, it.right, it.height = size.W/2, size.W/2, size.H
			}
			l.chain = append(l.chain, len(p.items))
			p.items = append(p.items, it)
		}
		l.chain = append(l.chain, l.lower)
		for k := 1; k < len(l.chain); k++ {
			weight := 4.0 // long lines should be straight more than short ones
			if k == 1 || k == len(l.chain)-1 {
				weight = 2
			}
			upper, lower := &p.items[l.chain[k-1]], &p.items[l.chain[k]]
			upper.down = append(upper.down, joint{to: l.chain[k], weight: weight})
			lower.up = append(lower.up, joint{to: l.chain[k-1], weight: weight})
		}
	}
}

// draw collects the result.
func (p *plan) draw() Drawing {
	out := Drawing{W: p.width, H: p.height, Edges: make([]Route, len(p.Edges))}
	for i, size := range p.Nodes {
		y := p.middle(i)
		r := Rect{p.x[i] - size.W/2, y - size.H/2, size.W, size.H}
		out.Nodes = append(out.Nodes, r)
		if l := p.items[i].loop; l != none {
			x, label := r.X+r.W, p.Edges[l].Label
			out.Edges[l] = Route{
				Loop:   true,
				Points: []Point{{x, y - loopOpen}, {x + loopGap, y - loopOpen - 5}, {x + loopGap, y + loopOpen + 5}, {x, y + loopOpen}},
				Label:  Rect{x + loopGap, y - label.H/2, label.W, label.H},
			}
		}
	}
	for _, l := range p.links {
		r := &out.Edges[l.edge]
		for k, i := range l.chain {
			it := &p.items[i]
			top, bottom, half := p.tops[it.layer], p.tops[it.layer]+p.highs[it.layer], it.height/2
			switch {
			case k == 0:
				x := p.x[i] + portTo(it.down, l.chain[1])
				r.Points = append(r.Points, Point{x, p.middle(i) + p.Nodes[i].H/2}, Point{x, bottom})
			case k == len(l.chain)-1:
				x := p.x[i] + portTo(it.up, l.chain[k-1])
				r.Points = append(r.Points, Point{x, top}, Point{x, p.middle(i) - p.Nodes[i].H/2})
			default:
				r.Points = append(r.Points, Point{p.x[i], top}, Point{p.x[i], bottom})
				if it.layer == l.label {
					r.Label = Rect{p.x[i] - it.left, p.middle(i) - half, 2 * it.left, it.height}
				}
			}
		}
		r.Points = simplify(r.Points)
		if l.reversed {
			slices.Reverse(r.Points)
		}
	}
	return out
}

// portTo returns the port of the joint to an item.
func portTo(joints []joint, to int) float64 {
	return joints[slices.IndexFunc(joints, func(j joint) bool { return j.to == to })].port
}

// middle returns the Y of an item's centre.
func (p *plan) middle(i int) float64 {
	layer := p.items[i].layer
	return p.tops[layer] + p.highs[layer]/2
}

// simplify leaves out repeated points, and the middle ones of a vertical line.
func simplify(points []Point) []Point {
	out := points[:0]
	for _, at := range points {
		n := len(out)
		switch {
		case n > 0 && out[n-1] == at:
		case n > 1 && out[n-1].X == at.X && out[n-2].X == at.X:
			out[n-1] = at
		default:
			out = append(out, at)
		}
	}
	return out
}
