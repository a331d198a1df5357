package shell

// WritesTo are the files that the command writes, moves or removes, by redirection or by what its
// program does, resolved.
func (c Command) WritesTo() []Word {
	var files []Word
	for _, w := range c.Writes {
		files = append(files, c.Resolve(w))
	}
	return files
}
