package layout

import (
	"cmp"
	"math"
	"slices"
)

// assignPorts spreads the segments at each side of a box, in the order of where they lead.
func (p *part) assignPorts() {
	for i := range p.items {
		it := &p.items[i]
		if it.kind != box {
			continue
		}
		for _, joints := range [][]joint{it.up, it.down} {
			slices.SortStableFunc(joints, func(a, b joint) int { return cmp.Compare(p.at[a.to], p.at[b.to]) })
			gap := 0.0
			if n := len(joints); n > 1 {
				gap = min(portGap, (2*it.left-24)/float64(n-1))
			}
			for k := range joints {
				joints[k].port = math.Round((float64(k) - float64(len(joints)-1)/2) * gap)
			}
		}
	}
}

// gapAfter returns the least distance of the centre lines of two neighbours of a layer.
func (p *part) gapAfter(a, b int) float64 {
	gap := float64(lineGap)
	if p.items[a].kind == box && p.items[b].kind == box {
		gap = nodeGap
	}
	return p.items[a].right + gap + p.items[b].left
}

// assignX moves the items of one layer after the other to where their neighbours want them, then straightens lines.
func (p *part) assignX() {
	p.x = make([]float64, len(p.items))
	for _, layer := range p.order {
		at, last := 0.0, 0.0
		for k, i := range layer {
			if k > 0 {
				at += p.gapAfter(layer[k-1], i)
			}
			p.x[i], last = at, at
		}
		for _, i := range layer {
			p.x[i] -= last / 2
		}
	}
	for range 14 {
		for _, layer := range p.order {
			p.moveLayer(layer)
		}
		for _, layer := range slices.Backward(p.order) {
			p.moveLayer(layer)
		}
	}
	for range 4 {
		for _, l := range p.links {
			p.straighten(l)
		}
		for i := range p.nodes {
			p.moveBox(i)
		}
	}
	left, right := math.Inf(1), math.Inf(-1)
	for _, layer := range p.order {
		// Rounding keeps the order but may take half a unit from a gap.
		for _, i := range layer {
			p.x[i] = math.Round(p.x[i])
			left, right = min(left, p.x[i]-p.items[i].left), max(right, p.x[i]+p.items[i].right)
		}
	}
	left = math.Floor(left)
	for i := range p.x {
		p.x[i] -= left
	}
	p.width = math.Ceil(right - left)
}

// moveLayer places the items of a layer as near as possible to where their joints want them, without a change of
// their order: an isotonic regression by pooling adjacent violators.
func (p *part) moveLayer(layer []int) {
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
func (p *part) farPort(i int, j joint) float64 {
	far := p.items[j.to].up
	if p.items[j.to].layer < p.items[i].layer {
		far = p.items[j.to].down
	}
	return portTo(far, i)
}

// room returns the range in which an item can be without a change of its layer.
func (p *part) room(i int) (from, to float64) {
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
func (p *part) straighten(l link) {
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
		case m == n-1 && from <= ends[1] && ends[1] <= to:
			at = ends[1]
		case k == 1 && from <= ends[0] && ends[0] <= to:
			at = ends[0]
		}
		for at = min(max(at, from), to); k < m; k++ {
			p.x[l.chain[k]] = at
		}
	}
}

// moveBox moves a box so that as many of its lines as possible are straight, if there is room.
func (p *part) moveBox(i int) {
	from, to := p.room(i)
	var wanted []float64
	for _, joints := range [][]joint{p.items[i].up, p.items[i].down} {
		for _, j := range joints {
			wanted = append(wanted, p.x[j.to]+p.farPort(i, j)-j.port)
		}
	}
	if len(wanted) > 0 {
		slices.Sort(wanted)
		p.x[i] = min(max(wanted[(len(wanted)-1)/2], from), to)
	}
}

// assignY stacks the layers. Steep lines between two layers need more distance.
func (p *part) assignY() {
	p.tops, p.highs = make([]float64, len(p.order)), make([]float64, len(p.order))
	y := 0.0
	for k, layer := range p.order {
		slope := 0.0
		for _, i := range layer {
			p.highs[k] = max(p.highs[k], math.Ceil(p.items[i].height))
			for _, j := range p.items[i].down {
				slope = max(slope, math.Abs(p.x[j.to]-p.x[i]))
			}
		}
		p.tops[k] = y
		y += p.highs[k]
		p.height = y
		y += layerGap + math.Round(min(maxSlope, slope*0.09))
	}
}
