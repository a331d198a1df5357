package judge

import "slices"

// WithoutContent is the same pipeline without the content layer: what the injection
// suite is measured against.
func (p *Pipeline) WithoutContent() *Pipeline {
	bare := *p
	bare.modelled = slices.DeleteFunc(slices.Clone(p.modelled), func(line []Layer) bool {
		return slices.ContainsFunc(line, func(l Layer) bool { return l.Name() == LayerContent })
	})
	return &bare
}
