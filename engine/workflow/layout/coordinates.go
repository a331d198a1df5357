package layout

import (
	"cmp"
	"math"
	"slices"
)

// assignPorts spreads the segments at each side of a box, in the order of where they lead.
func (p *plan) assignPorts() {
	for i := range p.items {
		it := &p.items[i]
		for _, joints := range [][]joint{it.up, it.down} {
			slices.SortStableFunc(joints, func(a, b joint) int { return cmp.Compare(p.at[a.to], p.at[b.to]) })
			gap := 0.0
			if n := len(joints); n > 1 {
				gap = max(0, min(portGap, 2*(it.left-corner)/float64(n-1)))
			}
			for k := range joints {
				joints[k].port = math.Round((float64(k) - float64(len(joints)-1)/2) * gap)
			}
		}
	}
}

// gapAfter returns the least distance of the centre lines of two neighbours of a layer.
func (p *plan) gapAfter(a, b int) float64 {
	gap := float64(lineGap)
	if !p.items[a].bends && !p.items[b].bends {
		gap = nodeGap
	}
	return p.items[a].right + gap + p.items[b].left
}

// assignX moves the items of one layer after the other to where their neighbours want them, then straightens lines.
func (p *plan) assignX() {
	p.x = make([]float64, len(p.items))
	for _, layer := range p.order {
		for k, i := range layer {
			if k > 0 {
				p.x[i] = p.x[layer[k-1]] + p.gapAfter(layer[k-1], i)
			}
		}
	}
	for round := range 14 {
		if round > 4 && len(p.items) > large {
			break
		}
		for _, layer := range p.order {
			p.moveLayer(layer)
		}
		for _, layer := range slices.Backward(p.order) {
			p.moveLayer(layer)
		}
	}
	below := p.listLinks(false)
	for range 3 {
		for _, layer := range p.order {
			for _, i := range layer {
				if p.items[i].bends {
					continue
				}
				p.moveBox(i)
				for _, l := range below[i] {
					p.straighten(p.links[l])
				}
			}
		}
	}
	left, right := math.Inf(1), math.Inf(-1)
	for i := range p.x {
		p.x[i] = math.Round(p.x[i]) // keeps the order, but may take a unit from a gap
		left, right = min(left, math.Floor(p.x[i]-p.items[i].left)), max(right, math.Ceil(p.x[i]+p.items[i].right))
	}
	for i := range p.x {
		p.x[i] -= left
	}
	p.width = max(0, right-left)
}

// moveLayer places the items of a layer as near as possible to where their joints want them, without a change of
// their order: an isotonic regression by pooling adjacent violators.
func (p *plan) moveLayer(layer []int) {
	type pool struct {
		at, weight float64
		n          int
	}
	pools := make([]pool, 0, len(layer))
	offsets := make([]float64, len(layer)) // of the items, if all were packed to the left
	for k, i := range layer {
		if k > 0 {
			offsets[k] = offsets[k-1] + p.gapAfter(layer[k-1], i)
		}
		sum, weight := p.x[i]*1e-6, 1e-6
		for _, joints := range [][]joint{p.items[i].up, p.items[i].down} {
			for _, j := range joints {
				// The conversions forbid fused additions, which only some processors have.
				sum += float64(j.weight * (p.x[j.to] + p.farPort(i, j) - j.port))
				weight += j.weight
			}
		}
		now := pool{at: sum/weight - offsets[k], weight: weight, n: 1}
		for len(pools) > 0 && pools[len(pools)-1].at >= now.at {
			last := pools[len(pools)-1]
			pools = pools[:len(pools)-1]
			both := last.weight + now.weight
			now = pool{at: (float64(last.at*last.weight) + float64(now.at*now.weight)) / both, weight: both, n: last.n + now.n}
		}
		pools = append(pools, now)
	}
	k := 0
	for _, pool := range pools {
		for range pool.n {
			p.x[layer[k]] = pool.at + offsets[k]
			k++
		}
	}
}

// farPort returns the port at the other end of a joint of an item.
func (p *plan) farPort(i int, j joint) float64 {
	far := p.items[j.to].up
	if p.items[j.to].layer < p.items[i].layer {
		far = p.items[j.to].down
	}
	return portTo(far, i)
}

// room returns the range in which an item can be without a change of its layer.
func (p *plan) room(i int) (from, to float64) {
	from, to = math.Inf(-1), math.Inf(1)
	if k := p.at[i]; k > 0 {
		left := p.order[p.items[i].layer][k-1]
		from = p.x[left] + p.gapAfter(left, i)
	}
	if layer := p.order[p.items[i].layer]; p.at[i]+1 < len(layer) {
		right := layer[p.at[i]+1]
		to = p.x[right] - p.gapAfter(i, right)
	}
	return from, to
}

// straighten moves the bends of a link so that it has few: from above, as many as can be below one another are.
func (p *plan) straighten(l link) {
	n := len(l.chain)
	ends := [2]float64{p.x[l.chain[0]] + portTo(p.items[l.chain[0]].down, l.chain[1]), p.x[l.chain[n-1]] + portTo(p.items[l.chain[n-1]].up, l.chain[n-2])}
	for k := 1; k < n-1; {
		from, to := math.Inf(-1), math.Inf(1)
		sum, m := 0.0, k
		for ; m < n-1; m++ {
			least, most := p.room(l.chain[m])
			if max(from, least) > min(to, most) {
				break
			}
			from, to = max(from, least), min(to, most)
			sum += p.x[l.chain[m]]
		}
		if m == k { // the gaps are short of a rounding error
			k++
			continue
		}
		at := sum / float64(m-k)
		switch {
		case k == 1 && from <= ends[0] && ends[0] <= to:
			at = ends[0]
		case m == n-1 && from <= ends[1] && ends[1] <= to:
			at = ends[1]
		}
		for at = min(max(at, from), to); k < m; k++ {
			p.x[l.chain[k]] = at
		}
	}
}

// moveBox moves a box below most of the lines that end at it, if there is room.
func (p *plan) moveBox(i int) {
	joints := p.items[i].up
	if len(joints) == 0 {
		joints = p.items[i].down
	}
	var wanted []float64
	for _, j := range joints {
		wanted = append(wanted, p.x[j.to]+p.farPort(i, j)-j.port)
	}
	if len(wanted) > 0 {
		slices.Sort(wanted)
		from, to := p.room(i)
		p.x[i] = min(max(wanted[len(wanted)/2], from), to)
	}
}

// assignY stacks the layers. Steep lines between two layers need more distance.
func (p *plan) assignY() {
	p.tops, p.highs = make([]float64, len(p.order)), make([]float64, len(p.order))
	y := 0.0
	for k, layer := range p.order {
		wide := 0.0
		for _, i := range layer {
			p.highs[k] = max(p.highs[k], math.Ceil(p.items[i].height))
			for _, j := range p.items[i].down {
				wide = max(wide, math.Abs(p.x[j.to]-p.x[i]))
			}
		}
		p.tops[k], p.height = y, y+p.highs[k]
		y = p.height + layerGap + math.Round(min(maxSlope, wide*slope))
	}
}
