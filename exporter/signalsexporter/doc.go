// Package signalsexporter folds metrics and log records into one JSON document and serves it over HTTP at
// /signals.
package signalsexporter
