package main

import (
	"io"
	"slices"
	"testing"

	"github.com/alecthomas/kong"
)

func TestOverviewGroupsEveryCommand(t *testing.T) {
	parser, err := newParser(&commands{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, command := range parser.Model.Children {
		if command.Group == nil || !slices.ContainsFunc(commandGroups, func(g kong.Group) bool { return g == *command.Group }) {
			t.Errorf("gavel %s belongs to no group: %+v", command.Name, command.Group)
			continue
		}
		shown = append(shown, command.Group.Title)
	}
	var want []string
	for _, g := range commandGroups {
		want = append(want, g.Title)
	}
	if got := slices.Compact(shown); !slices.Equal(got, want) {
		t.Errorf("groups %q, want %q", got, want)
	}
}
