// Package mcpface is gavel's MCP face: it decodes tool calls, asks the engine,
// and encodes what it answers.
//
// It promises that what the engine judges is byte for byte what the client sent,
// that every answer of a tool has text and structured content, that a refused or
// parked move is a tool error with the whole position, and that stdout carries
// protocol only.
//
// It must never decide about rights or rules, or show the text of an unknown
// error. It is, with the gateway, the only importer of mcp-go.
package mcpface
