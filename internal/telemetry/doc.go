// Package telemetry shows operators what gavel does: metrics, health, and logs
// without secrets.
//
// It promises that every name of a metric is one of this package, that no label
// comes from a caller (a workflow's name, an id, a path), so that nobody can make
// the number of series grow, and that asking costs the gate nothing: figures that
// others keep are pulled when somebody looks.
//
// It must never hold or show data, contexts, reasons or credentials, and never
// keep a decision from being made.
package telemetry
