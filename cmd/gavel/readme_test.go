package main

import "testing"

// What the README shows is what the demo prints.
func TestReadmeShowsTheDemo(t *testing.T) {
	t.Parallel()
	showsDemo(t, "../../README.md", "demo")
}
