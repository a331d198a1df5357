package judge

import "slices"

// WithoutContent returns the pipeline without the content layer, as the control of the injection
// suite.
func (p *Pipeline) WithoutContent() *Pipeline {
	bare := *p
	bare.withModel = slices.DeleteFunc(slices.Clone(p.withModel), func(line []Layer) bool {
		return slices.ContainsFunc(line, func(l Layer) bool { return l.Name() == LayerContent })
	})
	return &bare
}
