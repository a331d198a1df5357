package cli

// Section returns the text of a section that is more than settings, "" for none.
func (s *FileSettings) Section(name string) string { return string(s.file.Section(name).JSON()) }
