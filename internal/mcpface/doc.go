// Package mcpface is gavel's MCP face: it has tool calls bound to operations, asks the
// engine, and encodes what it answers. internal/mcpwire speaks the protocol.
//
// It promises that every answer of a tool has text and structured content that conforms to
// the tool's declared schema, and that a refused or parked move is a tool error with the
// whole position. Where an operator allowed it, a move that waits for a person is put to one
// through the client; only an answer that chose to approve, to exactly the question that was
// asked, in time and once, approves.
//
// It must never decide about rights or rules, show the text of an unknown error, or take a
// person's silence, or anything unclear, for a yes.
package mcpface
