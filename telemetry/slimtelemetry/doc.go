// Package slimtelemetry is the Collector's own telemetry in its small form: a zap logger as configured under
// service::telemetry::logs, and no metrics and traces of the Collector about itself. Warnings and errors also
// go to the hub of internal/selflog, from where they reach the document's errors.
package slimtelemetry
