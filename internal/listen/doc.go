// Package listen is the one door to the network: a hardened HTTP listener.
//
// It promises that a request reaches a handler only when its Host and Origin are
// ones that the operator allows (a web page cannot reach a local gavel by DNS
// rebinding), that headers, bodies, connections, requests and their time are
// bounded, that no caller keeps others out by what it holds of them, and that at the
// end what was begun is finished before it returns.
//
// It must never know what a request means, and never log a header or a body.
package listen
