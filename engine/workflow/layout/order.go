package layout

import (
	"cmp"
	"slices"
)

// maxSwaps is the number of segments up to which neighbours are swapped one by one; it bounds the time.
const maxSwaps = 4000

// orderLayers orders the items of each layer so that few lines cross.
func (p *part) orderLayers(sweeps int) {
	p.orderFirst()
	best, least := p.copyOrder(), p.countCrossings()
	segments := 0
	for i := range p.items {
		segments += len(p.items[i].down)
	}
	stale := 0
	for sweep := 0; sweep < sweeps && stale < 6 && least > 0; sweep++ {
		down := sweep%2 == 0
		for k := range p.order {
			if down {
				p.sortLayer(k, true, sweep%4 > 1)
			} else {
				p.sortLayer(len(p.order)-1-k, false, sweep%4 > 1)
			}
		}
		if segments <= maxSwaps {
			p.swapNeighbours()
		}
		stale++
		if n := p.countCrossings(); n < least {
			best, least, stale = p.copyOrder(), n, 0
		}
	}
	p.order = best
	p.at = p.positions()
}

// orderFirst orders items as a depth-first search finds them.
func (p *part) orderFirst() {
	layers := 0
	for i := range p.items {
		layers = max(layers, p.items[i].layer+1)
	}
	p.order = make([][]int, layers)
	seen := make([]bool, len(p.items))
	var stack []int
	for root := range p.items {
		if len(p.items[root].up) > 0 {
			continue
		}
		stack = append(stack, root)
		for len(stack) > 0 {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen[at] {
				continue
			}
			seen[at] = true
			p.order[p.items[at].layer] = append(p.order[p.items[at].layer], at)
			for _, j := range slices.Backward(p.items[at].down) {
				stack = append(stack, j.to)
			}
		}
	}
}

func (p *part) copyOrder() [][]int {
	out := make([][]int, len(p.order))
	for i := range out {
		out[i] = slices.Clone(p.order[i])
	}
	return out
}

// positions returns for every item its position in its layer.
func (p *part) positions() []int {
	out := make([]int, len(p.items))
	for _, layer := range p.order {
		for k, i := range layer {
			out[i] = k
		}
	}
	return out
}

// sortLayer sorts a layer by the mean position of what its items are joined to, above or below. Equal ones keep their
// order, or turn it around if flip is set.
func (p *part) sortLayer(layer int, above, flip bool) {
	position := make(map[int]int)
	near := layer + 1
	if above {
		near = layer - 1
	}
	if near < 0 || near >= len(p.order) {
		return
	}
	for k, i := range p.order[near] {
		position[i] = k
	}
	type placed struct {
		item int
		sum  int
		n    int
	}
	row := make([]placed, len(p.order[layer]))
	for k, i := range p.order[layer] {
		row[k] = placed{item: i, sum: k, n: 1}
		joints := p.items[i].down
		if above {
			joints = p.items[i].up
		}
		if len(joints) > 0 {
			row[k].sum, row[k].n = 0, len(joints)
			for _, j := range joints {
				row[k].sum += position[j.to]
			}
		}
	}
	if flip {
		slices.Reverse(row)
	}
	slices.SortStableFunc(row, func(a, b placed) int { return cmp.Compare(a.sum*b.n, b.sum*a.n) })
	for k := range row {
		p.order[layer][k] = row[k].item
	}
}

// swapNeighbours swaps neighbours in a layer while that removes crossings.
func (p *part) swapNeighbours() {
	position := p.positions()
	for range 4 {
		better := false
		for _, layer := range p.order {
			for k := 1; k < len(layer); k++ {
				a, b := &p.items[layer[k-1]], &p.items[layer[k]]
				now := countInversions(a.up, b.up, position) + countInversions(a.down, b.down, position)
				if now == 0 {
					continue
				}
				if countInversions(b.up, a.up, position)+countInversions(b.down, a.down, position) < now {
					layer[k-1], layer[k] = layer[k], layer[k-1]
					position[layer[k-1]], position[layer[k]] = k-1, k
					better = true
				}
			}
		}
		if !better {
			return
		}
	}
}

// countInversions counts the crossings between the segments of two items of which the first is on the left.
func countInversions(left, right []joint, position []int) int {
	n := 0
	for _, a := range left {
		for _, b := range right {
			if position[a.to] > position[b.to] {
				n++
			}
		}
	}
	return n
}

// countCrossings counts the crossings of segments between neighbouring layers.
func (p *part) countCrossings() int {
	position := p.positions()
	total := 0
	var ends []int
	for layer := 0; layer+1 < len(p.order); layer++ {
		// Inversions of the lower ends, in the order of the upper ones, counted in a Fenwick tree.
		tree := make([]int, len(p.order[layer+1])+1)
		seen := 0
		for _, i := range p.order[layer] {
			ends = ends[:0]
			for _, j := range p.items[i].down {
				ends = append(ends, position[j.to])
			}
			for _, end := range ends {
				notAfter := 0
				for k := end + 1; k > 0; k -= k & -k {
					notAfter += tree[k]
				}
				total += seen - notAfter
			}
			for _, end := range ends {
				seen++
				for k := end + 1; k < len(tree); k += k & -k {
					tree[k]++
				}
			}
		}
	}
	return total
}
