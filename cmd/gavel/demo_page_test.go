package main

import "testing"

// The page shows what the demo prints.
func TestDemoPage(t *testing.T) {
	t.Parallel()
	shows(t, "../../docs/reference/demo.md", runDemo(t, "demo"))
}
