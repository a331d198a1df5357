package config_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gavel-mcp/gavel/internal/config"
)

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "gavel.yaml")
	if err := os.WriteFile(path, []byte("evidence:\n  sources: {}\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	f, err := config.Load(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(f.Section(config.SectionEvidence).JSON()))
	// Output: {"sources":{}}
}
