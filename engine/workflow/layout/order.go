package layout

import (
	"cmp"
	"slices"
)

// large is the number of items from which a drawing gets less care, because it takes too long and stays a tangle.
const large = 4000

// orderLayers orders the items of each layer so that few lines cross.
func (p *plan) orderLayers(sweeps int) {
	p.orderFirst()
	best, least := slices.Clone(p.at), p.countCrossings()
	if len(p.items) > large {
		sweeps /= 3
	}
	for sweep, stale := 0, 0; sweep < sweeps && stale < 6 && least > 0; sweep++ {
		flip := sweep%4 > 1
		if sweep%2 == 0 {
			for _, layer := range p.order {
				p.sortLayer(layer, true, flip)
			}
		} else {
			for _, layer := range slices.Backward(p.order) {
				p.sortLayer(layer, false, flip)
			}
		}
		if len(p.items) <= large {
			p.swapNeighbours()
		}
		stale++
		if n := p.countCrossings(); n < least {
			best, least, stale = slices.Clone(p.at), n, 0
		}
	}
	p.at = best
	for _, layer := range p.order {
		slices.SortFunc(layer, func(a, b int) int { return cmp.Compare(best[a], best[b]) })
	}
}

// orderFirst orders items as a depth-first search finds them.
func (p *plan) orderFirst() {
	p.at = make([]int, len(p.items))
	seen := make([]bool, len(p.items))
	for root := range p.items {
		for stack := []int{root}; len(stack) > 0; {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen[at] {
				continue
			}
			seen[at] = true
			p.at[at] = len(p.order[p.items[at].layer])
			p.order[p.items[at].layer] = append(p.order[p.items[at].layer], at)
			for _, j := range slices.Backward(p.items[at].down) {
				stack = append(stack, j.to)
			}
		}
	}
}

// sortLayer sorts a layer by the mean position of what its items are joined to, above or below. Equal ones keep their
// order, or turn it around if flip is set.
func (p *plan) sortLayer(layer []int, above, flip bool) {
	type place struct{ item, sum, n int }
	row := make([]place, len(layer))
	for k, i := range layer {
		joints := p.items[i].down
		if above {
			joints = p.items[i].up
		}
		row[k] = place{item: i, sum: k, n: 1}
		if len(joints) > 0 {
			row[k].sum, row[k].n = 0, len(joints)
		}
		for _, j := range joints {
			row[k].sum += p.at[j.to]
		}
	}
	if flip {
		slices.Reverse(row)
	}
	slices.SortStableFunc(row, func(a, b place) int { return cmp.Compare(a.sum*b.n, b.sum*a.n) })
	for k := range row {
		layer[k] = row[k].item
		p.at[layer[k]] = k
	}
}

// swapNeighbours swaps neighbours in a layer while that removes crossings.
func (p *plan) swapNeighbours() {
	for range 4 {
		for _, layer := range p.order {
			for k := 1; k < len(layer); k++ {
				a, b := &p.items[layer[k-1]], &p.items[layer[k]]
				now := p.countBetween(a.up, b.up) + p.countBetween(a.down, b.down)
				if now > 0 && p.countBetween(b.up, a.up)+p.countBetween(b.down, a.down) < now {
					layer[k-1], layer[k] = layer[k], layer[k-1]
					p.at[layer[k-1]], p.at[layer[k]] = k-1, k
				}
			}
		}
	}
}

// countBetween counts the crossings between the segments of two items of which the first is on the left.
func (p *plan) countBetween(left, right []joint) int {
	n := 0
	for _, a := range left {
		for _, b := range right {
			if p.at[a.to] > p.at[b.to] {
				n++
			}
		}
	}
	return n
}

// countCrossings counts the crossings of segments between neighbouring layers: the inversions of their lower ends, in
// the order of the upper ones, in a Fenwick tree.
func (p *plan) countCrossings() int {
	total := 0
	for k, layer := range p.order[:max(0, len(p.order)-1)] {
		tree := make([]int, len(p.order[k+1])+1)
		seen := 0
		for _, i := range layer {
			for _, j := range p.items[i].down {
				total += seen
				for n := p.at[j.to] + 1; n > 0; n -= n & -n {
					total -= tree[n]
				}
			}
			for _, j := range p.items[i].down {
				for n := p.at[j.to] + 1; n < len(tree); n += n & -n {
					tree[n]++
				}
			}
			seen += len(p.items[i].down)
		}
	}
	return total
}
