// Package mcpface is gavel's MCP face: it decodes tool calls, asks the engine,
// and encodes what it answers.
//
// It promises that what the engine judges is byte for byte what the client sent,
// that every answer of a tool has text and structured content that conforms to
// the tool's declared schema, and that a refused or parked move is a tool error
// with the whole position. Over stdio it promises that stdout carries protocol
// only, that a line which would be changed on its way in is answered and not
// passed on, that ids come back as they were sent, that a cancelled request is
// not answered, and that the end of a connection takes less than a second.
//
// It must never decide about rights or rules, or show the text of an unknown
// error. Resources do not announce changes: other processes may change them too.
// It is, with the gateway, the only importer of mcp-go.
package mcpface
