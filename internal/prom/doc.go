// Package prom reads the pages of a Prometheus exposition, classic text or OpenMetrics, one after another from the same
// source, and gives the series behind their samples: counters, gauges and histograms with the labels as tags.
//
// A line that cannot be read costs only itself. Identities are resolved once for a line and remembered from page to
// page, so that a page that differs in its values alone costs little more than reading its numbers.
package prom
