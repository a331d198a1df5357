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
// Over HTTP it promises the same of every message, to both protocol eras at one address:
// that nothing is done for a caller whom nobody authenticated, that a session's id is
// worth nothing to anybody but the principal that began it, that no notification between
// a call and its answer is lost, and that what callers hold at once is bounded.
//
// A client that subscribed to an instance or a review hears of changes within a
// moment, whichever process made them. Where an operator allowed it, a move that waits
// for a person is put to one through the client; only an answer that chose to approve,
// to exactly the question that was asked, in time and once, approves.
//
// It must never decide about rights or rules, show the text of an unknown error, or
// take a person's silence, or anything unclear, for a yes. It is, with the gateway, the
// only importer of mcp-go.
package mcpface
